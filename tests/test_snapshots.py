"""States kept on the way: which steps, what is kept of them, and that files and unions carry them."""

from dataclasses import replace

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt.runtime.snapshots import chosen_steps, evenly

FK = tt.Tempered(table(tt.Masking, 3, 2).model(), 3.0)
GRID = tt.uniform_grid(10)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (None, ()),
        (0, ()),
        (1, (10,)),
        (2, (0, 10)),
        (3, (0, 5, 10)),
        (6, (0, 2, 4, 6, 8, 10)),
        (99, tuple(range(11))),
        ([7, 3, 3], (3, 7)),
        ((), ()),
    ],
)
def test_the_steps_asked_for_are_kept(wanted, kept):
    assert chosen_steps(wanted, 10) == kept
    assert tuple(tt.run(FK, GRID, particles=3, snapshots=wanted).snapshots.steps.tolist()) == kept


@pytest.mark.parametrize("wanted", [-1, 2.0, True, "3", [11], [-1], [1.0], [True], {3}])
def test_nonsense_is_named_before_anything_runs(wanted):
    with pytest.raises(tt.InvalidInput, match="snapshots"):
        tt.run(FK, GRID, snapshots=wanted)


@pytest.mark.parametrize(("count", "kept"), [(1, 1), (7, 3), (100, 16), (5, 5), (0, 4), (1000, 999)])
def test_even_choices_have_both_ends_and_no_twins(count, kept):
    chosen = evenly(count, kept)
    assert len(chosen) == min(count, kept) == len(set(chosen))
    assert list(chosen) == sorted(chosen)
    if len(chosen) > 1:
        assert (chosen[0], chosen[-1]) == (0, count - 1)


def test_a_snapshot_is_the_run_that_stops_there_and_asking_changes_no_bit():
    whole = tt.run(FK, GRID, particles=6, populations=3, seed=2, snapshots=[0, 4, 10])
    plain = tt.run(FK, GRID, particles=6, populations=3, seed=2)
    assert torch.equal(whole.particles, plain.particles)
    assert torch.equal(whole.log_weights, plain.log_weights)
    kept = whole.snapshots
    assert torch.equal(kept.particles[-1], whole.particles)
    assert torch.equal(kept.log_weights[-1], whole.log_weights)
    assert (kept.particles[0] == 3).all()  # all masked
    mass = kept.log_weights.exp().mean(-1).log()
    torch.testing.assert_close(mass, whole.log_z_path[kept.steps], rtol=1e-12, atol=1e-12)


def test_files_carry_snapshots_and_old_files_without_them_load(tmp_path):
    result = tt.run(FK, GRID, particles=4, snapshots=3)
    back = tt.Result.load(result.save(tmp_path / "new"))
    assert all(torch.equal(a, b) for a, b in zip(back.snapshots, result.snapshots, strict=True))
    old = tt.run(FK, GRID, particles=4)
    from safetensors.torch import load_file

    old.save(tmp_path / "old")
    assert not [name for name in load_file(tmp_path / "old" / "particles.safetensors") if "snapshot" in name]
    assert len(tt.Result.load(tmp_path / "old").snapshots.steps) == 0


def test_a_union_keeps_the_steps_that_all_kept():
    whole = tt.run(FK, GRID, particles=4, populations=3, snapshots=[2, 5, 10])
    parts = [
        tt.run(FK, GRID, particles=4, snapshots=[0, 2, 5, 10]),
        tt.run(FK, GRID, particles=4, populations=2, first_population=1, snapshots=[2, 5, 10]),
    ]
    united = tt.Result.union(parts).snapshots
    assert all(torch.equal(a, b) for a, b in zip(united, whole.snapshots, strict=True))
    bare = replace(parts[0], snapshot_steps=torch.zeros(0, dtype=torch.int64))
    assert len(tt.Result.union([bare, parts[1]]).snapshots.steps) == 0


def test_some_populations_alone_keep_their_snapshots():
    from truetilt.paper.populations import part_of

    whole = tt.run(FK, GRID, particles=4, populations=5, snapshots=3)
    part = part_of(whole, 1, 2)
    assert torch.equal(part.snapshots.particles, whole.snapshots.particles[:, 1:3])
    assert torch.equal(part.snapshots.log_weights[-1], part.log_weights)
    assert len(part_of(tt.run(FK, GRID, particles=4, populations=3), 0, 2).snapshots.steps) == 0

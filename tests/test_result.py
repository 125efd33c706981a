"""What a run gives back: draws, estimates, unions, and files that are whole or refused."""

import json
import math
from dataclasses import fields, replace

import pytest
import torch

import truetilt as tt
from problems import TOP, table, z_limit
from truetilt.core import storage
from truetilt.runtime import result_files
from truetilt.smc.sampler import Stream

INF = math.inf


def result_of(log_weights, particles=None, **settings):
    """A result with these weights, particle k of population j being the state (j, k)."""
    log_w = torch.tensor(log_weights, dtype=torch.float64)
    populations, n = log_w.shape
    if particles is None:
        particles = torch.cartesian_prod(torch.arange(populations), torch.arange(n)).reshape(populations, n, 2)
    ancestors = torch.arange(n, dtype=torch.int32).expand(2, populations, n).contiguous()
    ess, path = torch.ones(2, populations).double(), torch.zeros(2, populations).double()
    return tt.Result(particles, log_w, torch.tensor([1.0, 0.0], dtype=torch.float64), ess, path, ancestors, settings)


def logs(weights):
    return torch.tensor(weights, dtype=torch.float64).log().tolist()


WEIGHTS = [[1.0, 0.0, 5.0], [0.5, 2.5, 1.0]]
MANY = 64


@pytest.fixture
def result():
    return result_of(logs(WEIGHTS))


@pytest.fixture(scope="module")
def sampled():
    return tt.run(tt.Tempered(table(tt.Masking, 3, 2).model(), 3.0), tt.uniform_grid(5), particles=6, populations=3)


# Estimates.


def test_weights_are_the_masses_over_the_union(result):
    torch.testing.assert_close(result.weights, torch.tensor(WEIGHTS, dtype=torch.float64) / 10, rtol=1e-12, atol=0)


def test_log_z_is_the_log_mean_weight_of_the_union_and_of_each_population(result):
    assert result.log_z == pytest.approx(math.log(10 / 6), abs=1e-12)
    assert result.population_log_z.tolist() == pytest.approx([math.log(2), math.log(4 / 3)], abs=1e-12)


def test_log_z_of_a_dead_population_is_minus_infinity():
    result = result_of([[-INF, -INF], [0.0, 0.0]])
    assert result.population_log_z.tolist() == [-INF, 0.0]
    assert result.log_z == pytest.approx(math.log(0.5), abs=1e-12)


def test_log_z_does_not_overflow():
    assert result_of([[5000.0, 5000.0]]).log_z == pytest.approx(5000, abs=1e-9)


def test_final_ess_is_that_of_each_population(result):
    assert result.final_ess.tolist() == pytest.approx([36 / 26, 16 / 7.5], abs=1e-12)


def test_roots_count_the_first_draws_with_descendants():
    result = result_of([[0.0] * 4])
    history = torch.tensor([[[0, 1, 2, 3]], [[0, 0, 2, 2]], [[0, 2, 0, 2]]], dtype=torch.int32)
    assert replace(result, ancestors=history).roots.tolist() == [2]  # slots 0 and 2 go back to 0, 1 and 3 to 2


def test_expectation_is_the_weighted_mean(result):
    got = result.expectation(lambda x: torch.stack([x[..., 0], x[..., 1] ** 2], -1))
    by_hand = [0.4, (0.0 * 1 + 4 * 5 + 1 * 2.5 + 4 * 1) / 10]
    assert got.tolist() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("nonsense", [math.nan, INF, -INF])
def test_expectation_ignores_what_a_weightless_particle_says(result, nonsense):
    h = torch.tensor([[1.0, nonsense, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    assert float(result.expectation(lambda x: h.flatten())) == pytest.approx((1 + 15 + 2 + 12.5 + 6) / 10, abs=1e-12)


def test_expectation_does_not_hide_a_nan_that_has_weight(result):
    assert result.expectation(lambda x: torch.full((6,), math.nan)).isnan()


def test_expectation_rejects_a_function_of_the_wrong_shape(result):
    with pytest.raises(tt.InvalidInput, match=r"\(2,\); of a batch of states \(6, 2\) it must return \[6, \.\.\.\]"):
        result.expectation(lambda x: x.sum(-1)[:2])


def test_a_result_without_weight_has_no_expectation():
    with pytest.raises(tt.DegenerateWeights):
        result_of([[-INF, -INF]]).expectation(lambda x: x[..., 0])


# Draws.


def draw_counts(result, n, seed):
    drawn = result.draw(n, seed)
    shape = result.log_weights.shape
    return torch.bincount(drawn[:, 0] * shape[1] + drawn[:, 1], minlength=shape[0] * shape[1]).reshape(shape)


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draw_counts_are_within_one_of_their_share(result, n, seed):
    share = n * torch.tensor(WEIGHTS, dtype=torch.float64) / 10
    assert ((draw_counts(result, n, seed) - share).abs() < 1).all()


def test_draw_has_the_right_law_one_at_a_time(result):
    """False alarm 5e-7: one draw at each of 2,000 seeds, counts of six states."""
    p = torch.tensor(WEIGHTS, dtype=torch.float64) / 10
    copies = sum(draw_counts(result, 1, seed) for seed in range(2_000)).double()
    assert copies[0, 1] == 0
    z = (copies - 2_000 * p) / (2_000 * p * (1 - p)).sqrt()
    assert z[p > 0].abs().max() < z_limit(6)


def test_draws_come_in_random_order():
    result = result_of([[0.0] * 50])
    order = result.draw(50)[:, 1]
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))
    assert float(torch.corrcoef(torch.stack([order.double(), torch.arange(50.0).double()]))[0, 1]) < 0.7


def test_draw_is_fixed_by_its_seed(result):
    assert torch.equal(result.draw(100, seed=3), result.draw(100, seed=3))
    assert not torch.equal(result.draw(100, seed=3), result.draw(100, seed=4))


def test_draw_never_takes_a_weightless_particle_even_at_the_largest_uniform(monkeypatch):
    result = result_of([[0.0, 0.0, -INF]])
    real = Stream.uniforms
    monkeypatch.setattr(Stream, "uniforms", lambda *args: real(*args).fill_(TOP))
    assert 2 not in result.draw(1000)[:, 1].tolist()


@pytest.mark.parametrize("n", [0, -1])
def test_draw_of_less_than_one_is_rejected_by_name(result, n):
    with pytest.raises(tt.InvalidInput, match=f"draw {n} samples"):
        result.draw(n)


def test_a_result_without_weight_has_nothing_to_draw():
    with pytest.raises(tt.DegenerateWeights):
        result_of([[-INF, -INF]]).draw(1)


def test_draw_independent_has_the_law_of_each_population():
    """False alarm 5e-7: 200 seeds of 64 populations, counts of four particles."""
    p = torch.tensor([0.4, 0.0, 0.1, 0.5], dtype=torch.float64)
    result = result_of(p.log().expand(MANY, 4).tolist())
    drawn = torch.cat([result.draw_independent(seed)[:, 1] for seed in range(200)])
    copies, total = torch.bincount(drawn, minlength=4).double(), len(drawn)
    assert copies[1] == 0
    z = (copies - total * p) / (total * p * (1 - p)).sqrt()
    assert z[p > 0].abs().max() < z_limit(3)


def test_draw_independent_takes_one_from_each_living_population():
    result = result_of([[0.0, -INF], [-INF, -INF], [-INF, 2.0]])
    assert result.draw_independent().tolist() == [[0, 0], [2, 1]]


def test_draw_independent_is_fixed_by_its_seed_and_differs_between_populations():
    result = result_of([[0.0] * 8] * MANY)
    assert torch.equal(result.draw_independent(5), result.draw_independent(5))
    assert not torch.equal(result.draw_independent(5), result.draw_independent(6))
    assert len(set(result.draw_independent(5)[:, 1].tolist())) > 4


def test_draw_independent_of_the_dead_is_an_error():
    with pytest.raises(tt.DegenerateWeights, match="every population died"):
        result_of([[-INF, -INF]]).draw_independent()


# Unions.


def test_a_union_is_the_runs_side_by_side():
    fk, grid = tt.Tempered(table(tt.Masking, 3, 2).model(), 3.0), tt.uniform_grid(5)
    whole = tt.run(fk, grid, particles=6, populations=3, seed=4)
    parts = [
        tt.run(fk, grid, particles=6, populations=k, first_population=first, seed=4) for first, k in ((0, 1), (1, 2))
    ]
    united = tt.Result.union(parts)
    for field in fields(tt.Result):
        if field.name not in ("settings", "counts"):
            assert torch.equal(getattr(united, field.name), getattr(whole, field.name))
    assert united.evaluations == whole.evaluations
    assert united.spent.rounds == 2 * whole.spent.rounds  # each run passes its own batches
    assert united.log_z == whole.log_z
    assert united.settings == {"united": [part.settings for part in parts]}


def test_the_log_z_of_a_union_is_the_mean_mass():
    united = tt.Result.union([result_of(logs([[1.0, 3.0]])), result_of(logs([[0.0, 8.0], [2.0, 2.0]]))])
    assert united.log_z == pytest.approx(math.log(16 / 6), abs=1e-12)


def test_a_union_of_nothing_or_of_unlike_runs_is_rejected():
    with pytest.raises(tt.InvalidInput, match="at least one"):
        tt.Result.union([])
    with pytest.raises(tt.InvalidInput, match="same number of particles"):
        tt.Result.union([result_of([[0.0, 0.0]]), result_of([[0.0]])])
    other_grid = replace(result_of([[0.0]]), times=torch.tensor([1.0, 0.5], dtype=torch.float64))
    with pytest.raises(tt.InvalidInput, match="same time grid"):
        tt.Result.union([result_of([[0.0]]), other_grid])


# Files.


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def same(a, b):
    tensors = [field.name for field in fields(tt.Result) if field.name != "settings"]
    bits = all(
        getattr(a, name).dtype == getattr(b, name).dtype and torch.equal(getattr(a, name), getattr(b, name))
        for name in tensors
    )
    return bits and a.settings == b.settings


def test_save_and_load_give_back_every_bit(sampled, tmp_path):
    sampled.save(tmp_path / "new" / "folder")
    assert same(tt.Result.load(tmp_path / "new" / "folder"), sampled)
    assert files(tmp_path / "new" / "folder") == ["particles.json", "particles.safetensors"]


def test_a_weightless_particle_survives_the_round_trip(tmp_path):
    result = result_of([[0.0, -INF]], alpha=2.0)
    assert same(tt.Result.load(result.save(tmp_path)), result)


def test_saving_again_replaces(sampled, result, tmp_path):
    result.save(tmp_path)
    sampled.save(tmp_path)
    assert same(tt.Result.load(tmp_path), sampled)


@pytest.mark.parametrize("at", ["write_with", "write_json", "replace"])
def test_a_kill_while_saving_again_leaves_the_old_result_or_the_new(sampled, result, tmp_path, monkeypatch, at):
    result.save(tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(*((result_files.os, at, killed) if at == "replace" else (result_files, at, killed)))
    with pytest.raises(KeyboardInterrupt):
        sampled.save(tmp_path)
    monkeypatch.undo()
    if at == "replace":  # as a kill would have it: the header is the new one
        files_of = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
        sampled.save(tmp_path)
        (tmp_path / "particles.next.safetensors").write_bytes((tmp_path / "particles.safetensors").read_bytes())
        (tmp_path / "particles.safetensors").write_bytes(files_of["particles.safetensors"])
    assert same(tt.Result.load(tmp_path), sampled if at == "replace" else result)
    sampled.save(tmp_path)
    assert same(tt.Result.load(tmp_path), sampled)
    assert files(tmp_path) == ["particles.json", "particles.safetensors"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(tt.InvalidInput, match=r"nowhere.*particles\.json"):
        tt.Result.load(tmp_path / "nowhere")


def test_a_file_in_place_of_the_folder_is_named(result, tmp_path):
    result.save(tmp_path)
    with pytest.raises(tt.InvalidInput, match=r"particles\.json"):
        tt.Result.load(tmp_path / "particles.json")


@pytest.mark.parametrize("text", ['{"format": "truetilt-re', "", "\x00\x01", "not json"])
def test_a_damaged_header_is_named(result, tmp_path, text):
    result.save(tmp_path)
    (tmp_path / "particles.json").write_text(text)
    with pytest.raises(tt.InvalidInput, match=r"particles\.json is not JSON"):
        tt.Result.load(tmp_path)


def test_a_header_that_is_not_text_is_named(result, tmp_path):
    result.save(tmp_path)
    (tmp_path / "particles.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(tt.InvalidInput, match=r"particles\.json is not JSON"):
        tt.Result.load(tmp_path)


@pytest.mark.parametrize(
    "foreign", [{}, [], 3, {"format": "other", "version": 1}, {"format": "truetilt-result", "version": 99}]
)
def test_a_foreign_header_is_named(result, tmp_path, foreign):
    result.save(tmp_path)
    (tmp_path / "particles.json").write_text(json.dumps(foreign))
    with pytest.raises(tt.InvalidInput, match=r"particles\.json is not a truetilt result"):
        tt.Result.load(tmp_path)


def test_a_header_that_lost_a_field_is_named(result, tmp_path):
    result.save(tmp_path)
    header = json.loads((tmp_path / "particles.json").read_text())
    del header["settings"]
    (tmp_path / "particles.json").write_text(json.dumps(header))
    with pytest.raises(tt.InvalidInput, match=r"particles\.json"):
        tt.Result.load(tmp_path)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_tensors_are_named(result, tmp_path, damage):
    result.save(tmp_path)
    path = tmp_path / "particles.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-10])
    else:
        path.unlink()
    with pytest.raises(tt.InvalidInput, match=r"particles\.safetensors"):
        tt.Result.load(tmp_path)


def test_the_tensors_of_another_run_are_refused(result, sampled, tmp_path):
    result.save(tmp_path / "a")
    sampled.save(tmp_path / "b")
    (tmp_path / "b" / "particles.safetensors").replace(tmp_path / "a" / "particles.safetensors")
    with pytest.raises(tt.InvalidInput, match=r"particles\.safetensors"):
        tt.Result.load(tmp_path / "a")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "kept.json"
    storage.write_json(path, {"old": 1})

    def half(temporary):
        temporary.write_text("half a fi")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        storage.write_with(path, half)
    assert json.loads(path.read_text()) == {"old": 1}
    assert files(tmp_path) == ["kept.json"]


def test_a_rename_that_fails_leaves_the_old_result_and_no_other_file(result, sampled, tmp_path, monkeypatch):
    result.save(tmp_path)

    def refuse(*_):
        raise OSError("read-only")

    monkeypatch.setattr(storage.os, "replace", refuse)
    with pytest.raises(OSError, match="read-only"):
        sampled.save(tmp_path)
    assert same(tt.Result.load(tmp_path), result)
    assert files(tmp_path) == ["particles.json", "particles.safetensors"]


def test_settings_that_json_cannot_hold_leave_the_old_result(result, sampled, tmp_path):
    result.save(tmp_path)
    with pytest.raises((TypeError, ValueError)):
        replace(sampled, settings={"alpha": math.nan}).save(tmp_path)
    assert same(tt.Result.load(tmp_path), result)


def test_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        storage.write_json(tmp_path / "x.json", math.nan)
    assert files(tmp_path) == []

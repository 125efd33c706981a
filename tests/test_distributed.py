"""Several ranks give the bits of one; what they exchange is what must travel; a rank that dies is named."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import truetilt as tt
from cases import cases, run, same, same_bits, text
from forked import on_ranks, start, wait
from problems import hard_table, table, z_limit
from test_unbiased import N, z_scores
from truetilt import distributed
from truetilt.commands import job_runner
from truetilt.core.logits import take
from truetilt.distributed.exchange import packed, plan, visits
from truetilt.distributed.world import World, world
from truetilt.runtime.checkpoints import found
from truetilt.smc.resampling import Resampled, log_mean_exp
from truetilt.smc.sampler import Source

WHOLE = {name: run(name) for name in cases()}


# the plan


def resampled(size, resample, seed):
    """Ancestors of three populations of 23, numbers to know everyone by, and where the ranks are cut."""
    generator, shape = torch.Generator().manual_seed(seed), (3, 23)
    log_w = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    ancestors = resample(log_w, torch.rand(shape, generator=generator, dtype=torch.float64)).ancestors
    return ancestors, torch.arange(3 * 23).reshape(shape) + 1000, World(0, size).cuts(23)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("resample", [tt.multinomial, tt.systematic, tt.partial(tt.multinomial, 0.3), tt.never])
def test_every_descendant_finds_its_ancestor(size, resample):
    ancestors, values, cuts = resampled(size, resample, seed=size)
    plans = [plan(ancestors, cuts, rank) for rank in range(size)]
    if resample is tt.never:
        assert plans == [None] * size
        return
    shards = [values[:, cuts[r] : cuts[r + 1]].reshape(-1) for r in range(size)]
    for rank, mine in enumerate(plans):
        came = torch.cat([shards[r][plans[r].leaving[rank]] for r in range(size)])
        assert mine.arriving == [len(plans[r].leaving[rank]) for r in range(size)]
        assert mine.arriving[rank] == 0  # nobody writes to itself
        assert len(came.unique()) == len(came)  # and nobody travels twice to one place
        got = torch.cat([shards[rank], came])[mine.row]
        assert torch.equal(got, take(values, ancestors)[:, cuts[rank] : cuts[rank + 1]])


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("resample", [tt.multinomial, tt.systematic, tt.partial(tt.multinomial, 0.3)])
def test_every_descendant_is_drawn_by_the_rank_of_its_ancestor(size, resample):
    ancestors, values, cuts = resampled(size, resample, seed=10 + size)
    every = [visits(ancestors, cuts, rank) for rank in range(size)]
    shards = [values[:, cuts[r] : cuts[r + 1]] for r in range(size)]
    sent = [list(take(shards[r], v.others)[v.here].split(v.asked)) for r, v in enumerate(every)]
    for rank, mine in enumerate(every):
        assert mine.needed == [v.asked[rank] for v in every]
        assert mine.asked[rank] == mine.needed[rank] == 0  # nobody writes to itself
        got = take(shards[rank], mine.own)
        got[mine.away] = torch.cat([sent[r][rank] for r in range(size)])
        assert torch.equal(got, take(values, ancestors)[:, cuts[rank] : cuts[rank + 1]])


def test_packing_keeps_every_bit_of_every_kind():
    x = torch.randint(0, 9, (2, 3, 4), generator=torch.Generator().manual_seed(0))
    odd = torch.tensor([[float("nan"), -0.0, 1e-320], [torch.inf, -torch.inf, 1.0]], dtype=torch.float64)
    tensors = [x, odd, odd.float(), odd > 0, torch.empty(2, 3, 0, dtype=torch.float64)]
    rows, unpack = packed(tensors)
    assert rows.shape == (6, 32 + 8 + 4 + 1)
    for tensor, back in zip(tensors, unpack(rows), strict=True):
        assert back.dtype == tensor.dtype
        assert back.reshape(tensor.shape).contiguous().view(torch.uint8).equal(tensor.contiguous().view(torch.uint8))


# the same bits


@pytest.mark.parametrize("size", [2, 4])
def test_sharded_particles_give_the_bits_of_one_rank(size, tmp_path):
    def work(rank):
        for name, whole in WHOLE.items():
            chunk = None if rank else 3
            assert same(run(name, distributed.run_sharded, chunk=chunk), whole), name

    on_ranks(size, work, tmp_path)


def test_particles_are_drawn_where_the_networks_were_asked(tmp_path):
    """An any-order step asks before it resamples: nobody is asked about again, and no row of logits travels."""
    model = replace(text(), log_p_condition=-1.0)  # known, so that no ratio is summed again at the end
    grid = tt.masked_fraction_grid(model.process.schedule, model.length)
    whole = tt.run(tt.AnyOrder(model, 4.0), grid, particles=16, resample=tt.multinomial)

    def work(rank):
        calls, trunk, widths, send = [], tt.SEDD.trunk, [], torch.distributed.all_to_all_single
        tt.SEDD.trunk = lambda *args: (calls.append(1), trunk(*args))[1]  # in a process of its own

        def noted(came, rows, *counts):
            widths.append(rows[0].numel() * rows.element_size() if len(rows) else 0)
            return send(came, rows, *counts)

        torch.distributed.all_to_all_single = noted
        result = distributed.run_sharded(tt.AnyOrder(model, 4.0), grid, particles=16, resample=tt.multinomial)
        assert torch.equal(result.log_weights, whole.log_weights)
        assert 0 < max(widths) <= 8 * (model.length + 4) < 8 * model.process.vocabulary  # a state and its memory
        assert len(calls) == 2 * (1 + 2 * (model.length - 1))  # two networks, one batch of masks, then two of four

    on_ranks(2, work, tmp_path)


@pytest.mark.parametrize("size", [2, 3])
def test_spread_populations_give_the_bits_of_one_rank(size, tmp_path):
    whole = {name: run(name, populations=5) for name in cases()}

    def work(rank):
        for name in cases():
            got = run(name, distributed.run_populations, populations=5)
            assert same_bits(got, whole[name]), name
            assert got.settings["measured"].keys() == whole[name].settings["measured"].keys()

    on_ranks(size, work, tmp_path)


@pytest.mark.parametrize("size", [2, 4])
def test_networks_in_padded_batches_give_the_bits_of_one_rank(size, tmp_path):
    model = text()
    grids = (tt.uniform_grid(4), tt.masked_fraction_grid(model.process.schedule, 6))
    values = (tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), tt.AnyOrder(model, 2.0))
    options = {"particles": 10, "seed": 2, "resample": tt.systematic}
    whole = [tt.run(fk, grid, **options) for fk, grid in zip(values, grids, strict=True)]

    def work(rank):
        for fk, grid, one in zip(values, grids, whole, strict=True):
            assert same(distributed.run_sharded(fk, grid, **options), one), fk

    on_ranks(size, work, tmp_path)


def test_a_process_alone_makes_a_plain_run():
    assert distributed.world() == World()
    assert same(run("clock", distributed.run_sharded), WHOLE["clock"])
    assert same(run("clock", distributed.run_populations), WHOLE["clock"])


def test_a_rank_whose_populations_all_die_does_not_end_the_run(tmp_path):
    """Particles 2 of a hard problem often all die; only when every population on every rank does is it an error."""
    fk = tt.Tempered(hard_table(tt.Masking).model(), 3.0, 0.0)
    options = {"particles": 2, "populations": 24, "seed": 3, "resample": tt.multinomial}
    whole = tt.run(fk, tt.uniform_grid(6), **options)
    dead = (whole.population_log_z == -torch.inf).nonzero().squeeze(-1).tolist()
    assert 0 < len(dead) < 24

    def work(rank):
        got = distributed.run_populations(fk, tt.uniform_grid(6), **options)
        assert same_bits(got, whole)
        first = dead[0]
        alone = {"populations": 2, "first_population": first if dead[1] == first + 1 else first - 1}
        distributed.run_populations(fk, tt.uniform_grid(6), **options | alone)

    on_ranks(2, work, tmp_path)


# wrong variants


def within_its_shard(log_w, u):
    """Each half draws among its own and all get the mean weight: what a rank that knew no others would do."""
    half = log_w.shape[-1] // 2
    parts = [tt.multinomial(log_w[..., :half], u[..., :half]), tt.multinomial(log_w[..., half:], u[..., half:])]
    ancestors = torch.cat([parts[0].ancestors, parts[1].ancestors + half], -1)
    return Resampled(ancestors, log_mean_exp(log_w)[..., None].expand(log_w.shape).clone())


def test_drawing_only_within_a_shard_is_seen_by_the_tests():
    """False alarm of the right one 5e-7 (problems.z_limit)."""
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = tt.Tempered(problem.model(), 2.0)
    assert z_scores(fk, problem, tt.multinomial).abs().max() < z_limit(400)
    assert z_scores(fk, problem, within_its_shard, n=N).abs().max() > 2 * z_limit(400)


def test_uniforms_counted_by_rank_are_seen_by_the_tests(tmp_path):
    """A wrong variant: particles of two ranks that draw the same uniforms are copies of each other."""

    def careless(self, number, purpose, labels, width):
        populations, n = labels.shape[:2]
        return self.stream.uniforms(number, purpose, populations, n * width).reshape(populations, n, width)

    def work(rank):
        fk, grid, _ = cases()["clock"]
        right = tt.run(fk, grid, particles=38, seed=5, resample=tt.never)
        Source.uniforms = careless  # in this fork alone
        wrong = distributed.run_sharded(fk, grid, particles=38, seed=5, resample=tt.never)
        assert torch.equal(wrong.particles[:, :19], right.particles[:, :19])
        assert torch.equal(wrong.particles[:, 19:], right.particles[:, :19])
        assert not torch.equal(wrong.particles, right.particles)

    on_ranks(2, work, tmp_path)


# what is refused


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"seed": 4}, r"ranks 0 and 1 were told different things: seed \(5 and 4\)"),
        ({"particles": 9}, r"ranks 0 and 1 .* particles \(8 and 9\)"),
        ({"populations": 5}, r"ranks 0 and 1 .* populations \(4 and 5\)"),
        ({"resample": tt.multinomial}, "ranks 0 and 1 .* resampler"),
        ({"fk": tt.Tempered(table(tt.Masking, 3, 3, seed=4).model(), 2.0)}, "ranks 0 and 1 .* model .*'alpha': 2.0"),
        ({"grid": tt.uniform_grid(9)}, r"ranks 0 and 1 .* grid .* steps \(8 and 9\)"),
    ],
    ids=["seed", "particles", "populations", "resample", "fk", "grid"],
)
@pytest.mark.parametrize("how", [distributed.run_sharded, distributed.run_populations], ids=["sharded", "populations"])
def test_ranks_that_were_told_different_things_say_which_before_they_begin(how, told, words, tmp_path):
    def work(rank):
        options = {"fk": tt.Tempered(table(tt.Masking, 3, 3, seed=4).model(), 3.0), "grid": tt.uniform_grid(8)}
        options |= {"particles": 8, "populations": 4, "seed": 5} | (told if rank == 1 else {})
        begun = []
        with pytest.raises(tt.InvalidInput, match=words):  # on every rank
            how(**options, watch=lambda *_: begun.append(1))
        assert not begun

    on_ranks(2, work, tmp_path)


def test_ranks_that_were_told_the_same_thing_begin(tmp_path):
    def work(rank):
        model = table(tt.Masking, 3, 3, seed=4).model()
        distributed.run_populations(tt.Tempered(model, 3.0), tt.uniform_grid(8), particles=3, populations=4, seed=5)

    on_ranks(2, work, tmp_path)


def test_what_ranks_cannot_do_is_refused_by_name(tmp_path):
    def work(rank):
        with pytest.raises(tt.InvalidInput, match="coupled draws sort the particles of all ranks"):
            run("clock", distributed.run_sharded, couple=tt.systematic_draws)
        with pytest.raises(tt.InvalidInput, match="1 particles over 2 ranks"):
            run("clock", distributed.run_sharded, particles=1)
        with pytest.raises(tt.InvalidInput, match="1 populations over 2 ranks"):
            run("clock", distributed.run_populations, populations=1)
        with pytest.raises(tt.InvalidInput, match="37 particles on ranks that were told 40"):
            run("clock", shard=distributed.particle_shard(40))
        (tmp_path / "rank-2-of-3").mkdir(exist_ok=True)
        with pytest.raises(tt.InvalidInput, match="holds rank-2-of-3, and 2 ranks share out 4"):
            run("clock", distributed.run_populations, populations=4, checkpoint=tmp_path)

    on_ranks(2, work, tmp_path)


# stopping, dying, going on


def test_one_sigterm_stops_all_ranks_at_one_step_and_any_number_goes_on(tmp_path):
    kept = tmp_path / "kept"

    def work(rank):
        def ask(done, total, info):
            if done == 3 and rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(tt.Stopped, match="after step 3 of 8"):
            run("populations", distributed.run_sharded, checkpoint=kept, callback_on_step_end=ask)

    on_ranks(2, work, tmp_path)
    assert [path.name for path in found(kept)] == ["step-00000003"]

    def goes_on(rank):
        seen = []
        again = run(
            "populations",
            distributed.run_sharded,
            checkpoint=kept,
            callback_on_step_end=lambda done, *_: seen.append(done),
        )
        assert seen == [4, 5, 6, 7, 8]
        assert same(again, WHOLE["populations"])

    on_ranks(3, goes_on, tmp_path)


def test_a_rank_that_dies_is_named_by_the_others(tmp_path):
    def work(rank):
        def die(done, total, info):
            if done == 2 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        with pytest.raises(distributed.LostRank, match="of 3: rank 1 did not answer"):
            run("clock", distributed.run_sharded, callback_on_step_end=die)
        time.sleep(1.5 * (rank == 0))  # the first keeps the store, where the others read

    assert wait(start(3, work, tmp_path)) == [0, -signal.SIGKILL, 0], [p.read_text() for p in tmp_path.glob("[0-9]")]


DYING = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from cases import run
from truetilt import distributed

def die(done, total, info):
    if done == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)

run("clock", distributed.run_sharded, checkpoint={kept!r}, checkpoint_every=2, callback_on_step_end=die)
"""


def test_the_launcher_names_the_dead_rank_and_the_job_resumes(tmp_path):
    script = tmp_path / "dying.py"
    script.write_text(DYING.format(tests=str(Path(__file__).parent), kept=str(tmp_path / "kept")))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = subprocess.run(launch, capture_output=True, text=True, timeout=100, env=environment)
    assert job.returncode != 0
    assert "rank      : 1 (local_rank: 1)" in job.stderr
    assert "Signal 9 (SIGKILL)" in job.stderr
    assert [path.name for path in found(tmp_path / "kept")] == ["step-00000002", "step-00000004"]
    assert same(run("clock", checkpoint=tmp_path / "kept"), WHOLE["clock"])


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_is_alone_does_not_wait_for_ever(rank, tmp_path):
    def work(_):
        os.environ.update({"RANK": rank, "WORLD_SIZE": "2"})
        begun = time.monotonic()
        with pytest.raises(
            distributed.LostRank, match=rf"rank {rank} of 2 met no others in 1 seconds .*; start all of"
        ):
            world(1.0)
        assert time.monotonic() - begun < 30

    assert wait(start(1, work, tmp_path)) == [0], [p.read_text() for p in tmp_path.glob("[0-9]")]


# sweeps


def test_jobs_are_dealt_over_ranks_and_the_first_gathers_them(tmp_path, monkeypatch):
    done = []

    def work(name):
        done.append((job_runner.RANK, name))
        return {"name": name}

    def dealt(settings):
        return [job_runner.Job(name, work, (name,)) for name in "abcdefg"]

    sweep = job_runner.Experiment("sweep", "sweep", dealt, lambda s, a: a, lambda r: None, ())
    monkeypatch.setattr(job_runner, "RANKS", 3)
    monkeypatch.setattr(sys.modules["truetilt.distributed.world"], "world", lambda: None)
    for rank in (2, 1, 0, 0):
        monkeypatch.setattr(job_runner, "RANK", rank)
        found_here = dict(job_runner.answers(sweep, job_runner.Settings(), tmp_path))
        assert sorted(found_here) == list({0: "abcdefg", 1: "be", 2: "cf"}[rank])
    assert done == [(2, "c"), (2, "f"), (1, "b"), (1, "e"), (0, "a"), (0, "d"), (0, "g")]  # and nothing twice


def test_shares_differ_by_one_at_most():
    for count in range(1, 30):
        for size in range(1, count + 1):
            cuts = World(0, size).cuts(count)
            sizes = {b - a for a, b in pairwise(cuts)}
            assert cuts[0] == 0
            assert cuts[-1] == count
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) >= 1


def test_what_a_sharded_run_measures_is_what_one_rank_does(tmp_path):
    """The first rank looks and tells the others; annealing's own moves are noted over all particles."""
    model = table(tt.Masking, 3, 3).model()
    fk = tt.Annealed(tt.Composed(model, conditions=[(model.conditional, 3.0)]), 4)
    whole = tt.run(fk, particles=20, seed=2)

    def work(rank):
        result = distributed.run_sharded(fk, particles=20, seed=2)
        assert result.settings["measured"] == whole.settings["measured"]
        assert torch.equal(result.moved, whole.moved)
        assert torch.equal(result.accepted, whole.accepted)
        assert result.spent.calls == whole.spent.calls
        assert result.trust().verdict == whole.trust().verdict

    on_ranks(2, work, tmp_path)

"""`steer` against exact answers: every route, every budget, the check by moves, resuming, and what it says."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from truetilt.core.errors import FolderTaken, InvalidInput
from truetilt.exact.tables import flat_index
from truetilt.rewards import answer_file
from truetilt.steering import stage_folder
from truetilt.steering.drift import LIMIT, drift_of
from truetilt.steering.join_runs import joined
from truetilt.steering.problem import SteerProblem
from truetilt.steering.routes import importance
from truetilt.targets.moves import scan_gibbs
from truetilt.twists import forecast
from truetilt.twists.learning import learnable
from truetilt.viz.steer_story import story_lines

S, D = 3, 5
ORDER = tuple(range(D))


def made(seed=0, spread=1.0):
    """A random table, and a reward of sites and pairs with a little of its own for each state."""
    generator = torch.Generator().manual_seed(seed)
    shape = (S,) * D

    def field(each, pairs, noise):
        out = noise * torch.randn(shape, generator=generator, dtype=torch.float64)
        for d in range(D):
            out = out + each * torch.randn(S, generator=generator, dtype=torch.float64).reshape(
                [S if k == d else 1 for k in range(D)]
            )
        for d in range(D - 1):
            pair = torch.randn(S, S, generator=generator, dtype=torch.float64)
            out = out + pairs * pair.reshape([S if k in (d, d + 1) else 1 for k in range(D)])
        return out

    p0 = field(0.8, 0.5, 0.2).reshape(-1).softmax(0).reshape(shape)
    rewards = spread * field(0.5, 0.3, 0.1)
    return p0, rewards


def problem(seed=0, spread=1.0):
    p0, rewards = made(seed, spread)
    model = tt.Table(tt.Masking(S), p0, torch.ones_like(p0)).model()
    model = replace(model, conditional=None, potential=None)
    return model, lambda x: rewards.reshape(-1)[flat_index(x, S)], p0, rewards


def exact(p0, rewards, strength):
    mass = (p0.log() + strength * rewards).reshape(-1)
    return mass.softmax(0), float(mass.logsumexp(0))


def miss(law, result):
    """Total variation between the weighted particles and the exact law of all states."""
    seen = torch.zeros_like(law)
    seen.scatter_add_(0, flat_index(result.particles.flatten(0, 1), S), result.weights.reshape(-1))
    return float(0.5 * (seen - law).abs().sum())


@pytest.mark.parametrize("route", ["importance", "twisted", "annealed", "annealed from base"])
def test_every_route_covers_the_exact_log_z(route):
    """Of 12 seeds at most one may miss by more than 4 standard errors: Student t with 15 degrees, false alarms 1e-5."""
    model, reward, p0, rewards = problem()
    law, log_z = exact(p0, rewards, 2.0)
    misses, errors = 0, []
    for seed in range(12):
        result = tt.steer(model, reward, 2.0, evaluations=40_000, route=route, seed=seed)
        assert result.settings["steer"]["route"] == route
        misses += abs(result.log_z - log_z) > 4 * result.log_z_stderr + 1e-9
        errors.append(miss(law, result))
    assert misses <= 1
    assert sum(errors) / len(errors) < 0.15


def test_weights_that_are_dropped_are_noticed():
    """A wrong variant: particles without their weights miss the target by far more."""
    model, reward, p0, rewards = problem(spread=2.0)
    law, _ = exact(p0, rewards, 2.0)
    result = tt.steer(model, reward, 2.0, evaluations=40_000, route="importance")
    bare = replace(result, log_weights=torch.zeros_like(result.log_weights))
    assert miss(law, bare) > 3 * miss(law, result)


def test_an_easy_reward_is_left_to_importance():
    model, reward, p0, rewards = problem(spread=0.3)
    result = tt.steer(model, reward, evaluations=20_000)
    law, log_z = exact(p0, rewards, 1.0)
    assert result.settings["steer"]["route"] == "importance"
    assert result.trust().verdict == tt.Verdict.trust
    assert abs(result.log_z - log_z) < 4 * result.log_z_stderr
    assert miss(law, result) < 0.1


def test_a_hard_reward_is_not():
    model, reward, p0, rewards = problem(seed=2, spread=3.0)
    result = tt.steer(model, reward, 2.0, evaluations=60_000)
    law, log_z = exact(p0, rewards, 2.0)
    assert result.settings["steer"]["route"] != "importance"
    assert abs(result.log_z - log_z) < 4 * result.log_z_stderr
    assert miss(law, result) < 0.1


@pytest.mark.parametrize(
    ("evaluations", "calls"), [(None, 100), (700, None), (3_000, 90), (20_000, 150), (5_000, 2_000)]
)
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_no_budget_is_overspent_and_everything_is_counted(evaluations, calls, spread):
    model, function, _, _ = problem(spread=spread)
    asked = []

    def base(x, t):
        asked.append(len(x))
        return model.base(x, t)

    own, reward = replace(model, base=base), tt.Reward(function, vocabulary=S)
    result = tt.steer(own, reward, 2.0, evaluations=evaluations, calls=calls)
    spent, limits = result.spent, result.settings["steer"]["asked"]
    assert spent.evaluations == sum(asked) <= limits["evaluations"]
    assert spent.distinct == reward.distinct
    assert calls is None or spent.distinct <= calls
    stages = [tt.Spent(**stage["spent"]) for stage in result.settings["steer"]["stages"]]
    assert sum(stage.evaluations for stage in stages) == spent.evaluations
    assert sum(stage.distinct for stage in stages) == spent.distinct


def test_calls_that_cannot_run_out_do_not_limit():
    """Of 243 states at most 243 are called: with so many calls evaluations alone are the limit, with one less they are
    not."""
    model, function, p0, rewards = problem(spread=3.0)
    law, log_z = exact(p0, rewards, 2.0)
    for calls in (S**D - 1, S**D):
        result = tt.steer(model, tt.Reward(function, vocabulary=S), 2.0, evaluations=40_000, calls=calls)
        assert result.spent.distinct <= calls
        assert abs(result.log_z - log_z) < 4 * result.log_z_stderr
        assert miss(law, result) < 0.05
    assert result.spent.evaluations > 0.9 * 40_000
    uncached = tt.Reward(function, vocabulary=S, cached=False)
    assert tt.steer(model, uncached, 2.0, evaluations=40_000, calls=S**D).spent.distinct <= S**D


def test_where_states_repeat_it_goes_on():
    """Runs that cost fewer calls than they might are followed by others, in one line of the story."""
    model, function, _, _ = problem(spread=0.3)
    result = tt.steer(model, tt.Reward(function, vocabulary=S), evaluations=20_000, calls=150)
    stages = [stage["why"] for stage in result.settings["steer"]["stages"]]
    repeats = stages.count(stages[-1])
    assert repeats > 2
    (line,) = [line for line in result.story if f"then {repeats - 1} more runs with what was left" in line]
    last = result.settings["steer"]["stages"][-repeats:]
    assert f"({sum(stage['spent']['evaluations'] for stage in last):,} evaluations" in line


@pytest.mark.parametrize("evaluations", [1_500, 6_000, 40_000])
@pytest.mark.parametrize("by", ["potential", "ratios"])
def test_no_budget_is_overspent_by_a_condition(evaluations, by):
    p0, _ = made()
    likelihood = torch.rand(p0.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64) ** 4
    whole, asked = tt.Table(tt.Masking(S), p0, likelihood).model(), []

    def counted(call):
        def ask(x, t):
            asked.append(len(x))
            return call(x, t)

        return ask

    nets = {name: counted(getattr(whole, name)) for name in ("base", "conditional", "potential")}
    model = replace(whole, **nets if by == "potential" else nets | {"potential": None})
    result = tt.steer(model, alpha=8.0, evaluations=evaluations)
    assert result.spent.evaluations == sum(asked) <= evaluations


def same(one, other):
    return torch.equal(one.particles, other.particles) and torch.equal(one.log_weights, other.log_weights)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    model, reward, _, _ = problem(spread=2.0)
    runs = [tt.steer(model, reward, 2.0, evaluations=20_000, seed=seed) for seed in (3, 3, 4)]
    assert same(runs[0], runs[1])
    assert runs[0].story == runs[1].story
    assert not torch.equal(runs[0].particles[:1, :1], runs[2].particles[:1, :1]) or not same(runs[0], runs[2])


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop", range(1, 6))
def test_an_interrupted_call_goes_on_to_the_same_bits(tmp_path, stop):
    model, function, _, _ = problem(spread=3.0)
    options = {"evaluations": 20_000, "calls": 200, "seed": 1}
    whole = tt.steer(model, tt.Reward(function, vocabulary=S), 2.0, **options)
    told = []

    def progress(what, share):
        told.extend([] if " · " in what else [(what, share)])  # steps and rounds within a stage aside
        if len(told) == 2 * stop:  # once when a stage begins, once when it is done
            raise Interrupted

    with pytest.raises(Interrupted):
        tt.steer(model, tt.Reward(function, vocabulary=S), 2.0, progress=progress, checkpoint=tmp_path, **options)
    assert 0 < told[-1][1] <= 1
    fresh = tt.Reward(function, vocabulary=S)
    again = tt.steer(model, fresh, 2.0, checkpoint=tmp_path, **options)
    assert same(whole, again)
    assert again.story == whole.story
    assert again.spent == whole.spent
    assert fresh.distinct < whole.spent.distinct  # what was answered before the interruption is not asked again


@pytest.mark.parametrize("name", ["twist", "check", "run"])
def test_a_kill_before_a_stage_is_marked_finished_changes_no_bit(tmp_path, monkeypatch, name):
    """What the reward answered in a stage that is not marked finished is used, and charged to the stage once more."""
    model, function = counted(monkeypatch)
    options = {"evaluations": 20_000, "calls": 1_000, "seed": 1}
    whole = tt.steer(model, alone(function), 2.0, **options)
    write = stage_folder.write_json

    def killed(path, value):
        if path.name == "stage.json" and path.parent.name.endswith(name) and path.parent.name != "0-run":
            raise Interrupted
        write(path, value)

    monkeypatch.setattr(stage_folder, "write_json", killed)
    ASKED.clear()
    with pytest.raises(Interrupted):
        tt.steer(model, alone(function), 2.0, checkpoint=tmp_path, **options)
    monkeypatch.setattr(stage_folder, "write_json", write)
    again = tt.steer(model, alone(function), 2.0, checkpoint=tmp_path, **options)
    assert same(whole, again)
    assert again.story == whole.story
    assert len(ASKED) == whole.spent.distinct


ASKED: list[tuple[int, ...]] = []  # states that the function was asked about
STOP: dict[str, tuple[int, int]] = {}  # after so many of them, the signal that comes


def counted(monkeypatch):
    """A hard problem whose function takes note of each call, and is stopped where STOP says."""
    model, _, _, rewards = problem(spread=3.0)
    monkeypatch.setitem(STOP, "at", (-1, 0))
    ASKED.clear()

    def function(x):
        if len(ASKED) == STOP["at"][0]:
            os.kill(os.getpid(), STOP["at"][1])
        ASKED.append(tuple(x.tolist()))
        return float(rewards[tuple(x)])

    return model, function


def alone(function, **options):
    return tt.Reward(function, vocabulary=S, one_at_a_time=True, **options)


QUICK = [(10, "fresh"), (22, "a file")]
SLOW = [(n, how) for n in (10, 17, 22) for how in ("fresh", "the same", "a file") if (n, how) not in QUICK]


@pytest.mark.interrupt
@pytest.mark.parametrize(("stop", "kind"), [*QUICK, *(pytest.param(*pair, marks=pytest.mark.prove) for pair in SLOW)])
def test_stopped_in_a_stage_it_asks_nothing_twice(tmp_path, monkeypatch, stop, kind):
    """In the first look, in the lessons and after them: by Ctrl-C and then SIGTERM, to the same bits and the same cost,
    whether the reward begins anew, is the same object, or has a file of its own."""
    model, function = counted(monkeypatch)
    options = {"evaluations": 12_000, "calls": 230, "seed": 1}
    whole = tt.steer(model, alone(function), 2.0, **options)
    assert len(ASKED) == whole.spent.distinct > stop + 4
    file = {"cache_file": tmp_path / "file"} if kind == "a file" else {}
    kept, told = alone(function, **file), []
    options |= {"checkpoint": tmp_path / "stages", "progress": lambda what, share: told.append(what)}
    ASKED.clear()
    for at, number, error in ((stop, signal.SIGINT, KeyboardInterrupt), (stop + 4, signal.SIGTERM, tt.Stopped)):
        monkeypatch.setitem(STOP, "at", (at, number))
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(error):
            tt.steer(model, kept, 2.0, **options)
        assert signal.getsignal(signal.SIGTERM) is before
        assert len(ASKED) == at
        kept.close()
        kept = kept if kind == "the same" else alone(function, **file)
    told.clear()
    monkeypatch.setitem(STOP, "at", (-1, 0))
    again = tt.steer(model, kept, 2.0, **options)
    assert same(whole, again)
    assert again.story == whole.story
    assert again.spent == whole.spent
    assert len(ASKED) == len(set(ASKED)) == whole.spent.distinct
    assert re.match(r"going on (in stage 1|after stage \d) of .*stages: \d+ calls of the reward were answered", told[0])
    assert len(kept.known()[0]) == whole.spent.distinct


def test_a_killed_process_loses_no_answer(tmp_path, monkeypatch):
    """SIGKILL in the lessons: the one call that it came in is asked again, and no other."""
    model, function = counted(monkeypatch)
    monkeypatch.setattr(answer_file, "_PATIENCE", 0)  # as where a call takes longer than nine writes
    options = {"evaluations": 12_000, "calls": 230, "seed": 1}
    whole = tt.steer(model, alone(function), 2.0, **options)
    monkeypatch.setitem(STOP, "at", (22, signal.SIGKILL))
    child = os.fork()
    if child == 0:
        ASKED.clear()
        tt.steer(model, alone(function), 2.0, checkpoint=tmp_path, **options)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    monkeypatch.setitem(STOP, "at", (-1, 0))
    ASKED.clear()
    again = tt.steer(model, alone(function), 2.0, checkpoint=tmp_path, **options)
    assert same(whole, again)
    assert again.story == whole.story
    assert len(ASKED) == whole.spent.distinct - 22


@pytest.mark.interrupt
def test_what_was_known_before_stays_free(tmp_path, monkeypatch):
    """States that the reward knew when the call began cost nothing after an interruption either, known or not then."""
    model, function = counted(monkeypatch)
    options = {"evaluations": 20_000, "calls": 100, "seed": 1}
    some = torch.cartesian_prod(*[torch.arange(S)] * D)[::2]
    knowing = alone(function)
    knowing(some)
    ASKED.clear()
    whole = tt.steer(model, knowing, 2.0, **options)
    knowing = alone(function)
    knowing(some)
    ASKED.clear()
    monkeypatch.setitem(STOP, "at", (40, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        tt.steer(model, knowing, 2.0, checkpoint=tmp_path, **options)
    monkeypatch.setitem(STOP, "at", (-1, 0))
    again = tt.steer(model, alone(function), 2.0, checkpoint=tmp_path, **options)
    assert same(whole, again)
    assert again.story == whole.story
    assert len(ASKED) == whole.spent.distinct <= 100


@pytest.mark.interrupt
def test_a_folder_without_a_finished_stage_is_taken_over(tmp_path, monkeypatch):
    """From a reward that failed at once: by its mended form, which is asked about everything; by another budget, which
    uses what was answered."""
    model, function = counted(monkeypatch)
    monkeypatch.setitem(STOP, "at", (3, signal.SIGINT))
    mine = tmp_path / "2024-runs" / "0-run"  # of the user's
    mine.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        tt.steer(model, alone(function), 2.0, calls=100, checkpoint=tmp_path)
    monkeypatch.setitem(STOP, "at", (9, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        tt.steer(model, alone(function), 2.0, calls=99, checkpoint=tmp_path)
    assert len(set(ASKED)) == len(ASKED) == 9

    def mended(x):
        ASKED.append(tuple(x.tolist()))
        return 1.0 * int(x.sum())

    ASKED.clear()
    result = tt.steer(model, alone(mended), 2.0, calls=100, checkpoint=tmp_path)
    assert len(ASKED) == result.spent.distinct
    assert same(result, tt.steer(model, alone(mended), 2.0, calls=100))
    assert mine.is_dir()


def test_a_folder_of_another_call_is_refused(tmp_path):
    model, reward, _, _ = problem()
    tt.steer(model, reward, evaluations=2_000, checkpoint=tmp_path)
    with pytest.raises(FolderTaken, match=r"stages .* another evaluations; delete the folder .* to begin anew"):
        tt.steer(model, reward, evaluations=2_001, checkpoint=tmp_path)
    with pytest.raises(InvalidInput, match="another model and reward"):
        tt.steer(model, lambda x: x.sum(-1), evaluations=2_000, checkpoint=tmp_path)
    (tmp_path / "steer.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"steer\.json cannot be read"):
        tt.steer(model, reward, evaluations=2_000, checkpoint=tmp_path)


def test_a_folder_has_one_owner(tmp_path, monkeypatch):
    """A second call in a folder that is in use is told whose it is; the first one is not disturbed."""
    model, reward, _, _ = problem()
    told = []

    def second(what, share):
        if not told:
            told.append(what)
            with pytest.raises(FolderTaken, match=rf"in use by process {os.getpid()} on .*; wait .* another folder"):
                tt.steer(model, reward, evaluations=2_000, seed=2, checkpoint=tmp_path)

    result = tt.steer(model, reward, evaluations=2_000, checkpoint=tmp_path, progress=second)
    assert told
    assert same(result, tt.steer(model, reward, evaluations=2_000, checkpoint=tmp_path))
    assert not (tmp_path / ".owner").exists()


def test_a_dead_owner_frees_its_folder(tmp_path):
    model, reward, _, _ = problem()
    child = os.fork()
    if child == 0:
        options = {"checkpoint": tmp_path, "progress": lambda what, share: os.kill(os.getpid(), signal.SIGKILL)}
        tt.steer(model, reward, evaluations=2_000, **options)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (tmp_path / ".owner").exists()
    tt.steer(model, reward, evaluations=2_000, checkpoint=tmp_path)


def spoilt(content, chance):
    """The bytes of a file, damaged: cut, with a bit flipped, or something else altogether."""
    kind, place = chance.randrange(5), chance.randrange(max(len(content), 1))
    flipped = bytearray(content)
    flipped[place : place + 1] = bytes([flipped[place] ^ 1 << chance.randrange(8)]) if content else b"x"
    return [content[:place], bytes(flipped), bytes(flipped), b"", chance.choice([b"{}", b"[]", b"null", b"\xff"])][kind]


def refusal(model, reward, folder, options):
    """The words by which a call refuses a folder; None if it does not."""
    try:
        tt.steer(model, tt.Reward(reward), checkpoint=folder, **options)
    except InvalidInput as error:
        return str(error)
    return None


def test_damaged_stages_are_named_with_what_to_delete(tmp_path):
    """Every file of a call, damaged in several ways: the words name what is to be deleted, and without it the call goes
    on to the same answer; or the answer is the same though a file is damaged."""
    model, reward, _, _ = problem()
    options = {"evaluations": 400, "seed": 1}
    whole = tt.steer(model, tt.Reward(reward), checkpoint=tmp_path / "left", **options)
    names = [path.relative_to(tmp_path / "left") for path in (tmp_path / "left").rglob("*") if path.is_file()]
    assert {"stage.json", "steer.json", "answers.sqlite", "particles.json"} <= {name.name for name in names}
    chance, caught = random.Random(0), 0
    for number, name in enumerate(names * 3):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "left", folder)
        (folder / name).write_bytes(spoilt((folder / name).read_bytes(), chance))
        words = refusal(model, reward, folder, options)
        if words is not None:
            caught += 1
            found = re.search(rf"delete (?:the folder )?({re.escape(str(folder))}\S*?)[:;]? ", words)
            assert found, words
            shutil.rmtree(found[1])
        if words is None or number % 5 == 0:
            assert same(whole, tt.steer(model, tt.Reward(reward), checkpoint=folder, **options))
    assert caught > 2 * len(names)


def answer(model, reward, strength, particles, seed=0):
    """An importance run of independent draws."""
    route = importance(SteerProblem(model, reward, strength, ORDER, D))
    return tt.run(route.fk, route.grid, particles=particles, populations=4, resample=tt.never, seed=seed)


def test_moves_leave_a_right_answer_alone_and_find_what_a_wrong_one_missed():
    """Right answers: none of 40 is accused (false alarms 1e-4 each). Wrong ones, without their best states: all are."""
    model, function, _p0, _ = problem(spread=1.0)
    reward = tt.Reward(function, vocabulary=S)
    asked = SteerProblem(model, reward, 2.0, ORDER, D)
    for seed in range(40):
        result = answer(model, reward, 2.0, 400, seed)
        drift, spent = drift_of(asked, result, (64, 2 * D), scan_gibbs, seed, 0)
        assert not drift.found, drift
        assert spent.evaluations == 64 * 2 * D
        values = function(result.particles.flatten(0, 1)).reshape(result.log_weights.shape)
        cut = replace(result, log_weights=result.log_weights.masked_fill(values > values.quantile(0.7), -math.inf))
        if seed < 10:
            missed, _ = drift_of(asked, cut, (64, 2 * D), scan_gibbs, seed, 0)
            assert missed.mean > LIMIT * missed.stderr


def test_a_rare_state_that_the_first_look_does_not_see_is_not_trusted_away():
    """The target's mass is on states of p0-mass 1e-4, which steps of one token lead to: weights alone look perfect."""
    sites = torch.tensor([0.85, 0.1, 0.05], dtype=torch.float64)
    p0 = torch.einsum("a,b,c,d,e->abcde", *[sites] * D)
    process = tt.Masking(S)
    model = replace(tt.Table(process, p0, torch.ones_like(p0)).model(), conditional=None, potential=None)

    def reward(x):
        return 4.5 * (x == 2).sum(-1).double()

    log_z = D * math.log(0.95 + 0.05 * math.exp(4.5))
    for seed in range(5):
        result = tt.steer(model, reward, evaluations=12_000, seed=seed)
        off = abs(result.log_z - log_z)
        assert result.trust().verdict != tt.Verdict.trust or off < 3 * float(
            result.log_z_interval().high - result.log_z
        )


def test_joined_runs_are_one_run():
    model, function, p0, rewards = problem()
    one, other = (answer(model, function, 1.0, n, seed) for n, seed in ((30, 0), (70, 1)))
    both = joined(one, other)
    assert both.particles.shape == (4, 100, D)
    each = torch.cat([one.log_weights, other.log_weights], 1)
    assert torch.allclose(both.log_z_path[-1], each.logsumexp(-1) - math.log(100))
    assert torch.allclose(both.ess[:-1], torch.tensor(100.0, dtype=torch.float64))
    assert both.spent.evaluations == one.spent.evaluations + other.spent.evaluations
    assert both.trust().figures.roots == 100
    assert abs(both.log_z - exact(p0, rewards, 1.0)[1]) < 0.2


@pytest.mark.prove  # half a minute
def test_tables_that_are_too_large_promise_nothing_and_are_not_learned(monkeypatch):
    """A pair of neighbours among 800 tokens has more entries than a guess may have, a site of four million too."""
    tried = []
    monkeypatch.setattr(forecast, "_share", lambda lessons, layout, ridge: tried.append(layout.reach) or 0.5)
    x = torch.zeros(64, 3, dtype=torch.int64)
    assert forecast.promised_share(x, torch.zeros(64), 800) == 0.5
    assert tried == [0]
    assert forecast.promised_share(x, torch.zeros(64), 1 << 22) is None
    assert not learnable(3, 1 << 22)
    huge = tt.Masking(1 << 22)
    law = torch.zeros(1, dtype=torch.float64)

    def base(x, t):
        return tt.SiteLogits.of((law - math.log(1 << 22)).expand(*x.shape, 1 << 22))

    model = tt.Model(huge, 3, base)
    with pytest.raises(InvalidInput, match="here it is one of importance, annealed from base"):
        tt.steer(model, lambda x: x[:, 0].double(), evaluations=120, populations=2, route="twisted")
    result = tt.steer(model, lambda x: 40.0 * (x[:, 0] < 9).double(), evaluations=120, populations=2)
    assert "twisted" not in {stage["what"].split(":")[0] for stage in result.settings["steer"]["stages"]}


def test_ways_that_were_not_tried_are_told_where_the_answer_is_not_trusted():
    story = {
        "asked": {},
        "stages": [],
        "spent": tt.Spent()._asdict(),
        "outlook": "",
        "left out": {"twisted": "it rained", "importance": "it is late", "annealed": "it rained"},
    }
    assert "Not tried: twisted, annealed, because it rained." in story_lines(story)[0]
    assert "Not tried: importance, because it is late." in story_lines(story)[1]
    model, reward, _, _ = problem(spread=0.1)
    trusted = tt.steer(model, reward, evaluations=20_000)
    assert trusted.trust().verdict == "trust"
    assert not any(line.startswith("Not tried") for line in trusted.story)


def test_an_impossible_budget_ends_in_an_honest_verdict():
    model, reward, _, _ = problem(spread=6.0)
    result = tt.steer(model, reward, 2.0, calls=40)
    assert result.trust().verdict == tt.Verdict.doubt
    assert "What is needed" in result.story[-1]
    assert "calls" in result.story[-1]


def test_a_budget_that_buys_no_draw_is_refused():
    model, reward, _, _ = problem()
    with pytest.raises(
        InvalidInput, match="79 evaluations do not buy one draw for each of 16 populations, which takes 80"
    ):
        tt.steer(model, reward, evaluations=79)
    with pytest.raises(InvalidInput, match="15 calls do not buy"):
        tt.steer(model, reward, calls=15)
    assert tt.steer(model, reward, evaluations=80).particles.shape == (16, 1, D)


def test_what_it_says():
    model, reward, _, _ = problem(spread=2.0)
    told = []
    result = tt.steer(model, reward, 2.0, evaluations=30_000, progress=lambda what, share: told.append((what, share)))
    story = result.story
    assert story[0].startswith("1. Importance: 16 populations of")
    assert "Twice the budget would" in story[-1] or "What is needed" in story[-1]
    assert "of 30,000 evaluations" in story[-2]
    stages = result.settings["steer"]["stages"]
    assert len([what for what, _ in told if " · " not in what]) == 2 * len(stages)
    assert told == sorted(told, key=lambda pair: pair[1])
    json.dumps(result.settings)
    assert tt.run(tt.Composed(model), particles=4).story == []


def test_a_saved_answer_keeps_its_story_and_its_verdict(tmp_path):
    model, reward, _, _ = problem(spread=6.0)
    result = tt.steer(model, reward, 2.0, calls=40)
    result.save(tmp_path / "run")
    again = tt.Result.load(tmp_path / "run")
    assert again.story == result.story
    assert str(again.trust()) == str(result.trust())
    assert again.spent == result.spent
    result.report(tmp_path / "run.html")


def test_a_finding_of_the_check_is_part_of_the_verdict():
    model, reward, _, _ = problem(spread=0.3)
    result = tt.steer(model, reward, evaluations=20_000)
    accused = replace(result, settings=result.settings | {"findings": [["do not trust", "Moves lead it away."]]})
    assert result.trust().verdict == tt.Verdict.trust
    assert accused.trust().verdict == tt.Verdict.doubt
    assert accused.trust().reasons[0] == "Moves lead it away."


def test_a_condition_by_its_potential_and_by_its_ratios():
    """log sum of p0 p(zeta|x)^alpha, less log p(zeta) with the conditional as base, alpha times that for ratios."""
    generator = torch.Generator().manual_seed(5)
    p0, _ = made()
    likelihood = torch.rand(p0.shape, generator=generator, dtype=torch.float64) ** 2
    model = tt.Table(tt.Masking(S), p0, likelihood).model()
    log_p = float((p0 * likelihood).sum().log())
    for own, share in ((model, 1.0), (replace(model, potential=None), 4.0)):
        result = tt.steer(own, alpha=4.0, evaluations=60_000)
        truth = float((p0 * likelihood**4).sum().log()) - share * log_p
        assert abs(result.log_z - truth) < 4 * result.log_z_stderr
        assert result.log_z_less(0.0, log_p) == pytest.approx(result.log_z + share * log_p)
        law = (p0 * likelihood**4).reshape(-1)
        assert miss(law / law.sum(), result) < 0.15
        assert result.spent.calls == 0
    assert tt.steer(model, alpha=1.0, evaluations=5_000).log_z == 0


def test_a_process_without_a_mask_is_weighed_at_the_end():
    p0, rewards = made(spread=0.5)
    model = tt.Table(tt.Uniform(S), p0, torch.ones_like(p0)).model()
    model = replace(model, conditional=None, potential=None)
    options = {"evaluations": 200_000, "num_inference_steps": 64}
    result = tt.steer(model, lambda x: rewards.reshape(-1)[flat_index(x, S)], **options)
    assert result.settings["steer"]["route"] == "importance"
    assert abs(result.log_z - exact(p0, rewards, 1.0)[1]) < 0.1  # a time grid has an error of its own


def test_conditionals_that_disagree_forbid_moves():
    """Noise on each masked state's answers: no joint law has them, so nothing is annealed or checked by moves."""
    model, reward, _, _ = problem(spread=2.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn((S + 1) ** D, D, S, generator=generator, dtype=torch.float64)

    def base(x, t):
        found = model.base(x, t)
        return tt.SiteLogits.of(found.dense() + noise[flat_index(x, S + 1)])

    result = tt.steer(replace(model, base=base), reward, 2.0, evaluations=30_000)
    stages = [stage["what"] for stage in result.settings["steer"]["stages"]]
    assert "whether the model's conditionals agree" in stages
    assert not any("moves" in what for what in stages)
    assert result.settings["steer"]["route"] in ("importance", "twisted")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give a reward"),
        ({"reward": len, "alpha": 2.0}, "one of the two"),
        ({"alpha": 2.0}, "needs a conditional score"),
        ({"reward": 3}, "reward"),
        ({"reward": len, "strength": 0.0}, "strength is 0"),
        ({"reward": len, "order": "backwards"}, 'give "left to right"'),
        ({"reward": len, "order": [0, 1]}, "each of the 5 sites once"),
        ({"reward": len, "route": "guidance"}, "here it is one of importance, twisted"),
        ({"reward": len, "evaluations": 0}, "evaluations is 0"),
        ({"reward": len, "calls": 2.5}, "calls is 2.5"),
        ({"reward": len, "populations": 1}, "populations is 1"),
        ({"reward": len, "num_inference_steps": 6}, "num_inference_steps is 6"),
        ({"reward": len, "twist": 1}, "the twist"),
        ({"reward": len, "calls": 15}, "do not buy one draw"),
        ({"reward": len, "progress": 1}, "progress"),
        ({"reward": len, "seed": -1}, "seed"),
    ],
)
def test_bad_arguments_are_refused_before_work_starts(options, words):
    model, _, _, _ = problem()
    with pytest.raises(InvalidInput, match=words):
        tt.steer(model, **options)


def test_an_unknown_option_names_what_was_meant():
    model, reward, _, _ = problem()
    with pytest.raises(TypeError, match="num_inference_steps"):
        tt.steer(model, reward, steps=5)


def test_a_reward_that_was_the_same_everywhere_is_not_trusted():
    """A needle that no draw met: weights are perfect, and log Z is off by nats."""
    model, _, _, _ = problem()

    def needle(x):
        return 30.0 * (x == torch.tensor([2, 0, 2, 1, 2])).all(-1).double()

    result = tt.steer(model, needle, evaluations=1_000)
    if bool((result.log_weights == 0).all()):
        assert result.trust().verdict == tt.Verdict.care
        assert "the same for all" in result.trust().reasons[0]


def test_a_large_vocabulary_is_not_called_token_by_token():
    """No limit on calls, 40 tokens: the check and the moves call the reward once a move."""
    process = tt.Masking(40)
    model = tt.Model(process, 6, tt.PosteriorScore(process, lambda x, t: torch.zeros(*x.shape, 40)))
    reward = tt.Reward(lambda x: 0.1 * (x % 7).sum(-1).double(), vocabulary=40)
    result = tt.steer(model, reward, evaluations=12_000)
    assert result.spent.calls < 12_000
    log_z = 6 * math.log(sum(math.exp(0.1 * (v % 7)) for v in range(40)) / 40)
    assert abs(result.log_z - log_z) < 4 * result.log_z_stderr


def test_a_route_that_cannot_be_paid_is_refused_before_anything_is_spent():
    model, function, _, _ = problem()
    reward = tt.Reward(function, vocabulary=S)
    with pytest.raises(InvalidInput, match="do not buy 4 particles for each of 16 populations by 'annealed'"):
        tt.steer(model, reward, evaluations=1_500, route="annealed")
    assert reward.calls == 0


def test_what_a_condition_cannot_use_is_refused():
    p0, _ = made()
    model = tt.Table(tt.Masking(S), p0, p0 / p0.max()).model()
    with pytest.raises(InvalidInput, match="a condition has none; give evaluations"):
        tt.steer(model, alpha=2.0, calls=100)
    with pytest.raises(InvalidInput, match="need none; leave it out"):
        tt.steer(replace(model, potential=None), alpha=2.0, twist=lambda x, t: x.sum(-1))


def test_a_twist_for_another_length_is_refused_before_anything_is_spent():
    model, function, _, _ = problem()
    reward = tt.Reward(function, vocabulary=S)
    shorter = tt.Model(process := tt.Masking(S), 3, tt.PosteriorScore(process, lambda x, t: torch.zeros(*x.shape, S)))
    twist = tt.learn_twist(shorter, lambda x: x.sum(-1).double(), calls=100, draws=25, order=range(3))
    with pytest.raises(InvalidInput, match="length 3"):
        tt.steer(model, reward, twist=twist)
    assert reward.calls == 0


def test_routes_that_are_not_there_or_lead_nowhere_say_why():
    p0, _ = made()
    uniform = replace(tt.Table(tt.Uniform(S), p0, torch.ones_like(p0)).model(), conditional=None, potential=None)
    with pytest.raises(InvalidInput, match="here it is one of importance, or None"):
        tt.steer(uniform, lambda x: x.sum(-1), route="twisted")
    model, function, _, _ = problem()
    with pytest.raises(InvalidInput, match="do not suffice for 'twisted': it needs a learned twist"):
        tt.steer(model, function, calls=70, route="twisted")

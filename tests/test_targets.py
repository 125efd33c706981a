"""A target says what it is: moves for another one are refused, and log Z says which constant it estimates."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt import continuous as c
from truetilt.core.bases import FeynmanKac, MoveKernel
from truetilt.core.target import NO_WEIGHTS, UNKNOWN, Target
from truetilt.exact.joint import JointTempered
from truetilt.runtime.run_plan import Options
from truetilt.smc.sampler import WHOLE
from truetilt.smc.shards import Shard
from truetilt.targets.stage import SiteTarget

ONE, OTHER = table(tt.Masking, 3, 2, seed=1), table(tt.Masking, 3, 2, seed=2)
MODEL, CLOCK = ONE.model(), tt.uniform_grid(8)
REVEALS = tt.masked_fraction_grid(ONE.process.schedule, 2)
ANOTHER_LIKELIHOOD = tt.Table(ONE.process, ONE.p0, OTHER.likelihood).model()


def reward(x, t):
    return x.sum(-1).double()


def run(fk, kernel, grid=CLOCK, **often):
    options = {name: often.pop(name) for name in ("resample",) if name in often}
    return tt.run(fk, grid, particles=16, moves=tt.Rejuvenation(kernel, **often), **options)


WRONG = {
    "a reward and a condition": (tt.Steered(MODEL, reward), tt.Metropolis(tt.Tilted(MODEL, 1.0)), CLOCK, "law"),
    "another exponent": (tt.Tilted(MODEL, 3.0), tt.Metropolis(tt.Tilted(MODEL, 4.0)), CLOCK, r"alpha \(3.0 and 4.0\)"),
    "another likelihood": (
        tt.Tilted(MODEL, 3.0),
        tt.Metropolis(tt.Tilted(ANOTHER_LIKELIHOOD, 3.0)),
        CLOCK,
        "potential",
    ),
    "another base": (tt.AnyOrder(MODEL, 3.0), tt.Gibbs(tt.AnyOrder(OTHER.model(), 3.0)), REVEALS, "base"),
    "another number of sites": (
        tt.AnyOrder(MODEL, 3.0),
        tt.Gibbs(tt.AnyOrder(table(tt.Masking, 3, 3).model(), 3.0)),
        REVEALS,
        r"length \(2 and 3\)",
    ),
}
ANOTHER_WAY = {
    "another ramp": (tt.Tilted(MODEL, 3.0, tt.Power(1.0)), tt.Metropolis(tt.Tilted(MODEL, 3.0)), CLOCK, "ramp"),
    "revealing with a ramp": (
        tt.AnyOrder(MODEL, 3.0, ramp=tt.Power(2.0)),
        tt.Gibbs(tt.AnyOrder(MODEL, 3.0)),
        REVEALS,
        "ramp",
    ),
    "revealing, moved by a potential": (
        tt.AnyOrder(MODEL, 3.0),
        tt.Metropolis(tt.Tilted(MODEL, 3.0, tt.Power(0.0))),
        REVEALS,
        "weights",
    ),
    "ratios, moved by a potential": (
        tt.Tempered(MODEL, 3.0),
        tt.Metropolis(tt.Tilted(MODEL, 3.0, tt.Power(0.0))),
        CLOCK,
        "weights",
    ),
    "the potential as a reward": (
        tt.Steered(MODEL, MODEL.potential, 3.0),
        tt.Metropolis(tt.Tilted(MODEL, 3.0, tt.Power(1.0))),
        CLOCK,
        "weights",
    ),
}


@pytest.mark.parametrize("often", [{"each_step": 1}, {"after_resampling": 1}, {"at_end": 1}])
@pytest.mark.parametrize("name", WRONG)
def test_moves_for_another_final_target_are_refused_whenever_they_move(name, often):
    fk, kernel, grid, part = WRONG[name]
    with pytest.raises(tt.InvalidInput, match=f"different targets: they differ in .*{part}"):
        run(fk, kernel, grid, **often)


@pytest.mark.parametrize("name", ANOTHER_WAY)
def test_moves_on_the_way_must_share_the_intermediate_target(name):
    fk, kernel, grid, part = ANOTHER_WAY[name]
    for often in ({"each_step": 1}, {"after_resampling": 1}):
        with pytest.raises(tt.InvalidInput, match=f"different ways .move at_end only.: they differ in .*{part}"):
            run(fk, kernel, grid, **often)
    assert run(fk, kernel, grid, at_end=1).log_z > -math.inf  # the final target is the same


def test_the_same_target_built_twice_is_the_same():
    again = table(tt.Masking, 3, 2, seed=1).model()
    assert run(tt.Tilted(MODEL, 3.0), tt.Metropolis(tt.Tilted(again, 3)), each_step=1).log_z > -math.inf


@pytest.mark.parametrize("kernel", [tt.Gibbs(tt.AnyOrder(MODEL, 4.0)), tt.Metropolis(tt.Tilted(MODEL, 4.0))])
def test_particles_without_weights_may_start_on_their_way_to_any_target(kernel):
    guided = tt.Unweighted(MODEL, MODEL.conditional)
    result = run(guided, kernel, at_end=40)
    assert result.trust().figures.strayed is False
    result = run(tt.AnyOrder(MODEL, 1.0), kernel, REVEALS, at_end=40, resample=tt.never)
    assert "another target" not in str(result.trust())  # alpha = 1: all weights are equal


def test_weights_of_one_target_on_particles_of_another_are_not_trusted():
    kernel = tt.Gibbs(tt.AnyOrder(MODEL, 4.0))
    result = tt.run(
        tt.AnyOrder(MODEL, 2.0), REVEALS, particles=64, populations=16, resample=tt.never,
        moves=tt.Rejuvenation(kernel, at_end=20),
    )  # fmt: skip
    assert result.trust().verdict == tt.Verdict.doubt
    assert "another target than the weights" in str(result.trust())


def test_a_model_that_does_not_say_what_it_aims_at_is_named():
    class Silent(MoveKernel):
        choices = 1

        def __init__(self, kernel):
            self.move = kernel.move

        def move(self, *where):
            """That of the kernel."""

    with pytest.warns(UserWarning, match="Silent does not say what its target is"):
        run(tt.AnyOrder(MODEL, 3.0), Silent(tt.Gibbs(tt.AnyOrder(MODEL, 3.0))), REVEALS, at_end=1)


@dataclass(frozen=True)
class Own(SiteTarget):
    """A user's value that says nothing of its target: its sites are those of an any-order one."""

    fk: tt.AnyOrder

    model = property(lambda self: self.fk.model)
    scores = property(lambda self: self.fk.scores)

    def stage(self, t):
        return self.fk.stage(t)

    def start(self, shape, t):
        return self.fk.start(shape, t)

    def move(self, *where):
        return self.fk.move(*where)


def test_moves_of_a_value_that_does_not_say_what_it_aims_at():
    fk = Own(tt.AnyOrder(MODEL, 3.0))
    assert (fk.target, fk.remedies, fk.how) == (None, UNKNOWN, "")
    assert tt.Metropolis(fk).target is tt.Block(fk, 2).target is None
    with pytest.warns(UserWarning, match="Gibbs does not say what its target is"):
        run(tt.Tempered(MODEL, 3.0), tt.Gibbs(fk), at_end=1)


def test_a_value_that_only_moves_can_be_run():
    """A value writes `start` and `move`: all else has a default."""
    fk = JointTempered(ONE, 2.0)
    assert (fk.target, fk.spec, fk.remedies, fk.how, fk.most_log_weight) == (None, None, UNKNOWN, "", None)
    assert (fk.grid, fk.moves, fk.device, fk.choices(1.0, 0.5)) == (None, None, "cpu", 0)
    result = tt.run(fk, CLOCK, particles=64)
    assert result.log_z_words == "a constant that this model does not name"
    assert result.settings["target"] == result.settings["weights"] == ""
    assert "how" not in result.settings["model"]


def shard_without(name):
    """The shard of a single process without one of its members."""
    kept = {one: getattr(WHOLE, one) for one in dir(WHOLE) if one != name and not one.startswith("__")}
    return SimpleNamespace(**kept)


def test_what_a_shard_must_have_is_what_is_checked():
    members = {name for name in {*vars(Shard), *Shard.__annotations__} if not name.startswith("_")}
    Options(shard=SimpleNamespace(**{name: getattr(WHOLE, name) for name in members}))
    for name in members:
        with pytest.raises(tt.InvalidInput, match="leave it out"):
            Options(shard=shard_without(name))


class Quacking:
    """It moves, and is no Feynman-Kac value and no kernel of moves."""

    choices = 0

    def start(self, shape, t):
        """Nothing."""

    def move(self, particles, t, s, u):
        """Nothing."""


def test_a_value_of_another_make_is_refused_in_words():
    need = r"fk is .*Quacking.*; give what to sample, such as tt.Tilted\(model, alpha\).*derives from tt.feynman_kac"
    for call in (tt.run, tt.flow):
        with pytest.raises(tt.InvalidInput, match=need):
            call(Quacking(), CLOCK)
    with pytest.raises(tt.InvalidInput, match=r"kernel is .*; give moves, such as tt.Gibbs.*feynman_kac.MoveKernel"):
        tt.Rejuvenation(Quacking(), at_end=1)
    for wrong in (tt.Tilted, None, MODEL, 3):
        with pytest.raises(tt.InvalidInput, match=r"fk is .*; give what to sample"):
            tt.run(wrong, CLOCK)


def test_exact_answers_ask_a_value_for_the_list_of_its_choices():
    class Unlisted(tt.AnyOrder):
        branches = FeynmanKac.branches

    with pytest.raises(tt.InvalidInput, match=r"does not list what it may choose.*`branches"):
        tt.flow(Unlisted(MODEL, 3.0), REVEALS)


@pytest.mark.parametrize("name", ["device", "target", "remedies", "most_log_weight"])
def test_an_error_inside_what_a_value_says_of_itself_is_seen(name):
    """A typing error in a property is no absent property."""
    broken = type("Broken", (tt.Tilted,), {name: property(lambda self: self.no_such_part.device)})
    with pytest.raises(AttributeError, match="no_such_part"):
        tt.run(broken(MODEL, 3.0), CLOCK, particles=4)


def test_a_run_shows_the_error_inside_a_target():
    @dataclass(frozen=True)
    class Broken(tt.Metropolis):
        @property
        def target(self):
            return self.fk.tarjet

    with pytest.raises(AttributeError, match="tarjet"):
        run(tt.Tilted(MODEL, 3.0), Broken(tt.Tilted(MODEL, 3.0)), at_end=1)


def test_parts_that_only_one_side_has_are_not_compared():
    full, part = Target({"law": "a", "base": 1, "potential": 2}), Target({"law": "a", "base": 1})
    assert full.differences(part, True) == part.differences(full, True) == NO_WEIGHTS.differences(full, True) == []
    assert full.differences(Target({"law": "b"}), False) == ["law (a and b)"]
    slow, fast = (Target({"law": "a"}, {"ramp": ramp}) for ramp in (1, 2))
    assert slow.differences(fast, on_the_way=False) == []
    assert slow.differences(fast, on_the_way=True) == ["ramp (1 and 2)"]


def test_targets_with_no_part_in_common_are_different():
    mine, theirs = Target({"rewards": 1}), Target({"law": "a"})
    assert mine.differences(theirs, False) == ["every part of the law (they name rewards and law)"]
    silent, ramped = Target({"law": "a"}), Target({"law": "a"}, {"ramp": 1})
    assert silent.differences(ramped, on_the_way=False) == silent.differences(silent, on_the_way=True) == []
    assert silent.differences(ramped, on_the_way=True) == ["every part of the way (they name nothing and ramp)"]
    assert silent.differences(silent.at_end_only(), on_the_way=True) != []  # though it says nothing of the way


def test_moves_that_are_right_at_the_end_alone_are_refused_earlier():
    @dataclass(frozen=True)
    class AtEnd(tt.Metropolis):
        @property
        def target(self):
            return self.fk.target.at_end_only()

    tilted = tt.Tilted(MODEL, 3.0)
    assert run(tilted, AtEnd(tilted), at_end=1).log_z > -math.inf
    with pytest.raises(tt.InvalidInput, match="move at_end only"):
        run(tilted, AtEnd(tilted), each_step=1)


# log Z


SAMPLERS = {
    "tempered": (lambda a: tt.Tempered(MODEL, a), CLOCK),
    "tilted": (lambda a: tt.Tilted(MODEL, a), CLOCK),
    "steered": (lambda a: tt.Steered(MODEL, MODEL.potential, a), CLOCK),
    "any order": (lambda a: tt.AnyOrder(MODEL, a), REVEALS),
    "first hitting": (lambda a: tt.FirstHitting(MODEL, a), CLOCK),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_log_z_of_every_sampler_converts_to_one_constant(name):
    """All estimate one sum, less so many log p(zeta); a wrong share would miss by 0.5 or more."""
    alpha, (make, grid) = 2.5, SAMPLERS[name]
    result = tt.run(make(alpha), tt.uniform_grid(200) if grid is CLOCK else grid, particles=4000, seed=1)
    p0 = ONE.p0 / ONE.p0.sum()
    log_p_zeta = float((p0 * ONE.likelihood).sum().log())
    exact = float((p0 * ONE.likelihood**alpha).sum().log())
    assert log_p_zeta < -0.3
    for share in (0.0, 1.0, alpha):
        assert result.log_z_less(share, log_p_zeta) == pytest.approx(exact - share * log_p_zeta, abs=0.05)
    assert result.log_z_words.startswith("log sum of p0(x) p(zeta|x)^2.5")


def test_the_constant_of_a_reward_has_no_condition_in_it():
    result = tt.run(tt.Steered(MODEL, reward, 0.5), CLOCK, particles=50)
    assert result.log_z_words == "log of the mean of exp(0.5 reward(x)) under p0"
    with pytest.raises(tt.InvalidInput, match=r"no p\(zeta\) in it"):
        result.log_z_less(1.0, -1.0)


@pytest.mark.parametrize(("share", "log_p"), [("1", -1.0), (1.0, None), (math.nan, -1.0), (1.0, -math.inf)])
def test_junk_to_convert_by_is_refused(share, log_p):
    result = tt.run(tt.Tempered(MODEL, 2.0), CLOCK, particles=8)
    with pytest.raises(tt.InvalidInput, match=r"share|log_p_zeta"):
        result.log_z_less(share, log_p)


@pytest.mark.parametrize("name", ["log_z", "remedies", "moves"])
@pytest.mark.parametrize("value", [3, "x", [1], {"a": 1}, {"words": 3, "share": "q"}, {"words": "w", "share": "q"}])
def test_settings_of_another_kind_are_refused_when_they_are_read(name, value, tmp_path):
    tt.run(tt.Tempered(MODEL, 2.0), CLOCK, particles=8).save(tmp_path)
    header = json.loads((tmp_path / "particles.json").read_text())
    header["settings"][name] = value
    (tmp_path / "particles.json").write_text(json.dumps(header))
    if name == "moves" and isinstance(value, dict):
        assert tt.Result.load(tmp_path).trust()  # of a kernel that nobody here knows
        return
    with pytest.raises(tt.InvalidInput, match=f"{name} is "):
        tt.Result.load(tmp_path)


def test_a_saved_result_still_says_which_constant_it_is(tmp_path):
    result = tt.run(tt.Tempered(MODEL, 2.0), CLOCK, particles=8)
    loaded = tt.Result.load(result.save(tmp_path))
    assert loaded.log_z_words == "log sum of p0(x) p(zeta|x)^2 - 2 log p(zeta)"
    assert loaded.log_z_less(2.0, -1.0) == result.log_z


# advice that fits


def test_advice_names_what_the_sampler_can_do():
    uniform = table(tt.Uniform, 3, 2, seed=1).model()
    assert "tt.Tilted" in tt.Tempered(MODEL, 3.0).remedies.weigh
    assert "tt.Gibbs" in tt.Tempered(MODEL, 3.0).remedies.move
    assert "Tilted" not in " ".join(tt.Tilted(MODEL, 3.0).remedies)
    assert "tt.Gibbs" in tt.Steered(MODEL, reward).remedies.move
    assert tt.Steered(uniform, reward).remedies.move == tt.Tilted(uniform, 2.0).remedies.move == ""
    assert "strength" in tt.Steered(MODEL, reward).remedies.lower


def test_a_steered_run_is_told_of_its_strength_and_a_tilted_one_not_to_tilt():
    strong = tt.run(tt.Steered(MODEL, lambda x, t: 30.0 * reward(x, t)), CLOCK, particles=20)
    words = str(strong.trust())
    assert "tt.Gibbs" in words
    assert "smaller strength" in words
    assert "alpha" not in words
    tilted = tt.run(tt.Tilted(MODEL, 80.0), CLOCK, particles=20, resample=tt.never)
    words = str(tilted.trust())
    assert "Use" in words
    assert "Tilted" not in words
    moving = tt.Rejuvenation(tt.Metropolis(tt.Tilted(MODEL, 80.0)), at_end=1)
    again = tt.run(tt.Tilted(MODEL, 80.0), CLOCK, particles=20, moves=moving)
    assert again.settings["remedies"]["move"] == ""


def test_real_vectors_say_it_too():
    line = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    model = c.Observed(c.VP(), line, c.Observation([0.8], (0,), 1.0)).model()
    result = tt.run(c.Tilted(model, 2.0), CLOCK, particles=8)
    assert result.log_z_words == "log sum of p0(x) p(zeta|x)^2 - log p(zeta)"
    assert c.Tilted(model, 2.0).target.differences(c.Tilted(model, 3.0).target, False) == ["alpha (2.0 and 3.0)"]
    assert "leaned" in c.Tilted(model, 2.0).remedies.weigh
    assert torch.isfinite(result.log_weights).all()

"""The checks of truetilt.testing: what is right passes, and each wrong variant is rejected in words that name it."""

from dataclasses import dataclass, fields, replace

import pytest
import torch
from torch import nn

import truetilt as tt
from test_wrong import AlphaInProposal, clamped_euler, forgets_mass, partial_as_printed
from truetilt.core.bases import MoveKernel
from truetilt.core.types import Resampled
from truetilt.diffusion.kernels import SiteLaw
from truetilt.targets.accept_move import AcceptMove
from truetilt.targets.on_clock import OnClock, Proposal, Tilt, powers
from truetilt.testing import (
    Rejected,
    check_kernel,
    check_move,
    check_potential,
    check_resampler,
    check_score,
    check_target,
)

MASKING, UNIFORM = tt.Masking(3), tt.Uniform(3)
both = pytest.mark.parametrize("process", [MASKING, UNIFORM])


def rejected(words):
    return pytest.raises(Rejected, match=words)


def test_a_rejection_is_one_of_our_errors_and_a_failed_assertion():
    assert issubclass(Rejected, tt.TruetiltError)
    assert issubclass(Rejected, AssertionError)


# resamplers: those of ours are checked in test_resampling.py


def reset_to_the_same_mass_everywhere(log_w, u):
    """The mean over all populations instead of each one's own."""
    mean = log_w.logsumexp((0, 1)) - torch.tensor(float(log_w.numel())).log()
    return Resampled(tt.systematic(log_w, u).ancestors, torch.full_like(log_w, float(mean)))


def partial_as_printed_with_its_mass(log_w, u):
    """The same, scaled so that mass is kept: still biased."""
    out = partial_as_printed(log_w, u)
    total = out.log_w.masked_fill(log_w.gather(-1, out.ancestors) == -torch.inf, -torch.inf)
    return Resampled(out.ancestors, total + log_w.logsumexp(-1, True) - total.logsumexp(-1, True))


def in_the_middle(log_w, u):
    """Systematic resampling that forgets its uniform: no noise, and a bias."""
    return tt.systematic(log_w, torch.full_like(u, 0.5))


def from_anybody(log_w, u):
    return tt.systematic(log_w, u)._replace(ancestors=(u * log_w.shape[-1]).long())


def in_place(log_w, u):
    out = tt.systematic(log_w.clone(), u)
    log_w.copy_(out.log_w)
    return out


def by_the_first_population(log_w, u):
    """One ancestor for each place, the same for all populations."""
    return tt.systematic(log_w, u[:1].expand(u.shape))


@pytest.mark.parametrize(
    ("resample", "words"),
    [
        (forgets_mass, "mass is not kept"),
        (tt.adaptive(forgets_mass, 0.9), "mass is not kept"),
        (reset_to_the_same_mass_everywhere, "mass|got some"),
        (partial_as_printed, "mass is not kept"),
        (partial_as_printed_with_its_mass, "standard errors from its weight|NaN"),
        (in_the_middle, "biased on .* standard errors from its weight"),
        (from_anybody, "descend from one of weight zero"),
        (in_place, "written to"),
        (by_the_first_population, "beside others"),
        (lambda log_w, u: tt.never(log_w, u)._replace(log_w=log_w * torch.nan), "NaN"),
    ],
)
def test_wrong_resamplers(resample, words):
    with rejected(words):
        check_resampler(resample)


def test_a_resampler_that_returns_something_else():
    with pytest.raises(tt.InvalidInput, match="must return ancestors and log-weights"):
        check_resampler(lambda log_w, u: log_w)
    with pytest.raises(tt.InvalidInput, match="int64"):
        check_resampler(lambda log_w, u: Resampled(u, log_w))


# kernels: those of ours are checked in test_kernels.py


def changed(change):
    """Euler with its odds changed."""

    def kernel(process, log_score, x, t, s):
        law = tt.euler(process, log_score, x, t, s)
        return SiteLaw(x, change(law.odds, x, s))

    return kernel


def hurried(process, log_score, x, t, s):
    """Twice the rates."""
    return tt.euler(process, log_score, x, t, max(0.0, 2 * s - t))


def early(process, log_score, x, t, s):
    """Stops short of s = 0."""
    return tt.euler(process, log_score, x, t, 0.5 * (s + t) if s == 0 else s)


@dataclass(frozen=True)
class Leaning(SiteLaw):
    """Draws from other uniforms than it says."""

    def sample(self, u):
        return super().sample(u**1.2)

    def take(self, ancestors):
        return Leaning(self.x[ancestors], self.odds.take(ancestors))


def leaning(process, log_score, x, t, s):
    return Leaning(x, tt.euler(process, log_score, x, t, s).odds)


def test_wrong_clamped_euler_loses_the_support_of_the_base():
    with rejected("impossible under guidance.*never clamp"):
        check_kernel(clamped_euler, [MASKING])
    with rejected("Uniform"):
        check_kernel(clamped_euler, [UNIFORM])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (changed(lambda odds, x, s: odds._replace(log_hold=odds.log_hold - 0.01)), "off 1 by"),
        (changed(lambda odds, x, s: odds._replace(log_hold=odds.log_hold * torch.nan)), "NaN"),
        (early, "a mask is left"),
        (leaning, "standard errors more or less often"),
    ],
)
def test_wrong_kernels(kernel, words):
    with rejected(words):
        check_kernel(kernel)


def test_wrong_kernel_with_twice_the_rates_has_another_limit():
    with rejected("by half as steps double"):
        check_kernel(hurried, [UNIFORM])


# targets


def tempered(alpha):
    return lambda table: table.target(alpha)


@both
@pytest.mark.parametrize(
    ("make", "alpha"),
    [
        (lambda m: tt.Tempered(m, 2.0, 1.7), 2.0),
        (lambda m: tt.Tilted(m, 4.0), 4.0),
        (lambda m: tt.Steered(m, m.potential, 2.0), 2.0),
        (lambda m: tt.Unweighted(m, m.conditional), 1.0),
    ],
)
def test_targets_of_ours(make, alpha, process):
    check_target(make, tempered(alpha), process)


@pytest.mark.parametrize("options", [{}, {"beta": 1.0}, {"choose": tt.adapted_sites}, {"order": (1, 0)}])
def test_any_order_targets_are_exact_at_any_number_of_steps(options):
    check_target(lambda m: tt.AnyOrder(m, 4.0, **options), tempered(4.0))


@dataclass(frozen=True)
class FinalWeightsDropped(tt.Tilted):
    """What the particles carry is not counted at the end."""

    @property
    def tilt(self):
        right = super().tilt
        return Tilt(right.potential, lambda t: right.exponent(t) if t > 0 else 0.0)


@dataclass(frozen=True)
class NoBaseOverProposal(tt.Tempered):
    """Weighs a guided proposal by the likelihood ratio alone."""

    def propose(self, x, t, s):
        (_, p), (_, p_zeta), _ = super().propose(x, t, s).ratios
        return Proposal(super().propose(x, t, s).law, powers((1.0, p_zeta), (-1.0, p)))


@dataclass(frozen=True)
class Forgiving(tt.Tilted):
    """NaN counts as 0."""

    @property
    def tilt(self):
        right = super().tilt
        return Tilt(lambda x, t: torch.nan_to_num(right.potential(x, t)), right.exponent)


@dataclass(frozen=True)
class Silent(OnClock):
    def propose(self, x, t, s):
        return tt.Unweighted(self.model, self.model.base).propose(x, t, s)


@dataclass(frozen=True)
class DrawsOtherwise(tt.Unweighted):
    """Its law draws from other uniforms than it says: the flow cannot see it, the sampler does."""

    def propose(self, x, t, s):
        law = super().propose(x, t, s).law
        return Proposal(Otherwise(law.x, law.odds))


class Otherwise(SiteLaw):
    def sample(self, u):
        return super().sample(u**1.5)


@pytest.mark.parametrize(
    ("make", "alpha", "words"),
    [
        (lambda m: tt.Tempered(m, 3.0), 2.0, "by half as steps double"),
        (lambda m: FinalWeightsDropped(m, 4.0), 4.0, "by half as steps double"),
        (lambda m: AlphaInProposal(m, 4.0), 4.0, "by half as steps double"),
        (lambda m: NoBaseOverProposal(m, 4.0, 2.0), 4.0, "by half as steps double"),
        (lambda m: DrawsOtherwise(m, m.base), 0.0, "standard errors from that of the flow"),
        (lambda m: Forgiving(m, 2.0), 2.0, "potential answered NaN"),
        (Silent, 0.0, "`target` of Silent is None"),
    ],
)
def test_wrong_targets(make, alpha, words):
    with rejected(words):
        check_target(make, tempered(alpha))


def zeros(x, t):
    return (x == 0).sum(-1).double()


def rewarded(table):
    return table.p0 * zeros(table.states, 0.0).exp().reshape((table.process.states,) * 2)[:3, :3]


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda x, t: zeros(x, t) - zeros(x, t).mean(), "standard errors from that of the flow"),
        (lambda x, t: zeros(x, t) + 1e-12 * torch.arange(len(x)), "chunks of 1 change the result"),
    ],
)
def test_wrong_target_whose_weights_hang_on_company(reward, words):
    check_target(lambda m: tt.Steered(m, zeros), rewarded)
    with rejected(words):
        check_target(lambda m: tt.Steered(m, reward), rewarded)


def test_an_exact_law_of_another_shape_is_named():
    with rejected("a law of clean states"):
        check_target(lambda m: tt.Tilted(m, 2.0), lambda table: torch.ones(4, 4))


# moves


def any_order(model):
    return tt.AnyOrder(model, 3.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: tt.Gibbs(any_order(m)),
        lambda m: tt.Gibbs(any_order(m), tt.systematic_scan),
        lambda m: tt.Gibbs(any_order(m), tt.backward_scan),
        lambda m: tt.Block(any_order(m), 2),
        lambda m: tt.Block(any_order(m), 3),
    ],
)
def test_moves_of_ours(make):
    check_move(make, tempered(3.0), along=any_order)


def test_metropolis():
    check_move(lambda m: tt.Metropolis(tt.Tilted(m, 3.0)), tempered(3.0))


@dataclass(frozen=True)
class Wrapped(MoveKernel):
    """A kernel with its moves changed."""

    kernel: object
    change: object

    @property
    def target(self):
        return self.kernel.target

    @property
    def choices(self):
        return self.kernel.choices

    def move(self, particles, t, number, u):
        return self.change(self.kernel.move(particles, t, number, u))


def without_masses(move):
    """A block that is accepted always."""
    return replace(move, log_accept=torch.zeros_like(move.log_accept))


def forgetting(move):
    """It remembers of the new state what it knew of the old one."""
    return replace(move, aux_y=move.aux_x)


@dataclass(frozen=True)
class Weighing(AcceptMove):
    """Adds to the weight."""

    def after(self, y):
        log_after, aux = super().after(y)
        return log_after + 0.1, aux

    def take(self, ancestors):
        return Weighing(*vars(super().take(ancestors)).values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_masses, "does not leave its law alone.*standard errors"),
        (forgetting, "remembers another log_p"),
        (lambda move: replace(move, y=torch.full_like(move.y, 3)), "states that its law does not hold|its law alone"),
        (lambda move: Weighing(*vars(move).values()), "changes weights"),
        (lambda move: replace(move, log_accept=move.log_accept + 1.0), "log_accept is above 0"),
    ],
)
def test_wrong_blocks(change, words):
    with rejected(words):
        check_move(lambda m: Wrapped(tt.Block(any_order(m), 2), change), tempered(3.0), along=any_order)


@pytest.mark.parametrize("scan", [tt.random_scan, tt.systematic_scan])
def test_wrong_gibbs_with_another_exponent(scan):
    with rejected("does not leave its law alone"):
        check_move(lambda m: tt.Gibbs(tt.AnyOrder(m, 2.9), scan), tempered(3.0))


def test_wrong_gibbs_with_the_exponent_of_another_time():
    """At the end it is right; on the way the run's exponent is another."""

    def make(model):
        return tt.Gibbs(any_order(model), tt.systematic_scan)

    check_move(make, tempered(3.0))
    with rejected(r"at t = 0\.\d+ does not leave its law alone"):
        check_move(make, tempered(3.0), along=lambda m: tt.AnyOrder(m, 3.0, ramp=tt.Power(1.0)))


# networks


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, t):
        return self.drop(self.table(x)) + self.table(x).mean(1, keepdim=True)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@both
def test_scores_and_potentials_of_ours(process, net):
    check_score(tt.PosteriorScore(process, net), process, 4)
    problem = tt.Table(process, torch.rand(3, 3, 3) + 0.1, torch.rand(3, 3, 3) + 0.1)
    model = problem.model()
    check_score(model.base, process, 3)
    check_score(tt.Guided(process, model.base, model.conditional, 2.0), process, 3)
    check_potential(model.potential, process, 3)
    check_potential(lambda x, t: (x == 0).sum(-1), process, 3)


def score_of(logits):
    return lambda x, t: tt.SiteLogits.of(logits(x, t))


def values(x):
    return (x[..., None] * torch.arange(3)).double()


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (lambda x, t: values(x) + values(x).mean((0, 1)), "asked one by one, the score answers"),
        (lambda x, t: values(x) + torch.arange(len(x))[:, None, None], "asked one by one"),
        (
            lambda x, t: values(x).masked_fill((x == 3).all(-1)[:, None, None], torch.nan),
            "t = 1: the score answers NaN",
        ),
        (lambda x, t: values(x) * -torch.inf, "NaN"),
        (lambda x, t: values(x).masked_fill(x[..., None] == 3, -torch.inf), "no token is possible"),
        (lambda x, t: torch.rand(*x.shape, 3), "otherwise when asked again"),
        (lambda x, t: values(x.fill_(0)), "writes to the states"),
    ],
)
def test_wrong_scores(logits, words):
    with rejected(words):
        check_score(score_of(logits), MASKING, 4)


def test_a_score_that_hides_a_network_in_train_mode(net):
    with rejected("a Net in train mode"):
        check_score(score_of(lambda x, t: net(x, t)), MASKING, 4)


def test_a_score_of_another_shape():
    with pytest.raises(tt.InvalidInput, match=r"return \[7, 4, 3\]"):
        check_score(score_of(lambda x, t: torch.zeros(*x.shape, 4)), MASKING, 4)


@pytest.mark.parametrize(
    ("potential", "words"),
    [
        (lambda x, t: x.sum(-1) - x.double().mean(), "asked one by one, the potential answers"),
        (lambda x, t: torch.full(x.shape[:1], -torch.inf), "-inf for noise alone"),
        (lambda x, t: torch.where((x == 0).any(-1), torch.inf, 0.0), "is \\+inf for"),
    ],
)
def test_wrong_potentials(potential, words):
    with rejected(words):
        check_potential(potential, MASKING, 4)


def test_potentials_of_another_shape_and_of_nan():
    with pytest.raises(tt.InvalidInput, match="one number a state"):
        check_potential(lambda x, t: x[:, :1].double(), MASKING, 4)
    with pytest.raises(tt.InvalidWeights, match="returned NaN"):
        check_potential(lambda x, t: torch.full(x.shape[:1], torch.nan), MASKING, 4)


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda: check_resampler(None), "resample is None"),
        (lambda: check_resampler(tt.systematic, 1), "particles is 1"),
        (lambda: check_resampler(lambda log_w: log_w), r"called with \(log_w, u\)"),
        (lambda: check_kernel("euler"), "kernel is 'euler'"),
        (lambda: check_kernel(tt.euler, 3), "processes"),
        (lambda: check_kernel(tt.euler, [tt.Masking(50_000)]), "50000 tokens; give one of at most 8"),
        (lambda: check_kernel(lambda process, score, x, t, s: x), "must return the law of a step"),
        (lambda: check_target(tt.Tilted, tempered(2.0)), "make cannot be called"),
        (lambda: check_target(3, tempered(2.0)), "make is 3"),
        (lambda: check_target(lambda m: m, tempered(2.0)), "what make returned"),
        (lambda: check_target(lambda m: tt.Tilted(m, 2.0), 2.0), "exact is 2.0"),
        (lambda: check_target(lambda m: tt.Tilted(m, 2.0), lambda table: "law"), "what exact returned"),
        (lambda: check_target(lambda m: tt.Tilted(m, 2.0), tempered(2.0), "masking"), "process is"),
        (lambda: check_move(any_order, tempered(3.0)), "return moves, such as tt.Gibbs"),
        (lambda: check_move(lambda m: tt.Gibbs(any_order(m)), tempered(3.0), along=3), "along is 3"),
        (lambda: check_score(3, MASKING, 2), "base is 3"),
        (lambda: check_potential(3, MASKING, 2), "the potential is 3"),
        (lambda: check_potential(zeros, MASKING, 0), "length is 0"),
    ],
)
def test_junk_is_refused_in_words(check, words):
    with pytest.raises(tt.InvalidInput, match=words):
        check()


# malformed parts: what is wrong is named, and no error of torch comes through


def raising(*_):
    raise RuntimeError("the size of tensor a (7)\nmust match b (4)")


class Broken:
    """A value with some of its parts replaced; a part that is None is not there."""

    def __init__(self, value, **parts):
        self.value, self.parts = value, parts

    def __getattr__(self, name):
        if self.parts.get(name, self) is None:
            raise AttributeError(name)
        return self.parts[name] if name in self.parts else getattr(self.value, name)


def with_methods(value, **parts):
    """A value of a class of its own, with some of its methods replaced."""
    own = {name: staticmethod(part) for name, part in parts.items()}
    return type("Changed", (type(value),), own)(**{f.name: getattr(value, f.name) for f in fields(value)})


def broken_law(**parts):
    """Euler steps whose law has other parts."""

    def kernel(process, log_score, x, t, s):
        return Broken(tt.euler(process, log_score, x, t, s), **parts)

    return kernel


def broken_odds(**parts):
    return changed(lambda odds, x, s: odds._replace(**{name: make(odds, x) for name, make in parts.items()}))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (raising, "the kernel raised RuntimeError: the size of tensor a .7. must match b"),
        (broken_law(sample=None), "the kernel's law is .* and has no sample"),
        (broken_law(sample=raising), "`sample` of the kernel's law raised RuntimeError"),
        (broken_law(sample=lambda u: None), "`sample` of the kernel's law returned is None; it must be int64"),
        (broken_law(sample=lambda u: u), r"`sample` of the kernel's law returned is torch.float64 of shape \[16, 2\]"),
        (broken_law(sample=lambda u: u.long()[:, :1]), r"of shape \[16, 1\]; it must be int64 of shape \[16, 2\]"),
        (broken_law(sample=lambda u: u.long() + 9), "holds tokens outside 0 to 3"),
        (broken_law(log_prob=lambda y: None), "`log_prob` of the kernel's law returned is None"),
        (broken_law(log_prob=lambda y: y.double()), r"`log_prob` .* of shape \[16, 2\]; it must be .* \[16\]"),
        (broken_law(log_prob=raising), "`log_prob` of the kernel's law raised"),
        (broken_law(take=lambda ancestors: None), "`take` of the kernel's law returned is None and has no sample"),
        (broken_law(odds=None), "it must return the law of a step"),
        (broken_law(odds=3), "`odds` of the kernel's law is 3 and has no logits"),
        (broken_odds(log_hold=lambda odds, x: None), "`odds.log_hold` of the kernel's law is None"),
        (broken_odds(log_hold=lambda odds, x: x), "`odds.log_hold` .* is torch.int64"),
        (broken_odds(log_move=lambda odds, x: odds.log_move[:, :1]), r"`odds.log_move` .* \[16, 1\]"),
        (broken_odds(logits=lambda odds, x: odds.logits.dense()), "`odds.logits` .* must be tt.SiteLogits of 3 tokens"),
    ],
)
def test_malformed_kernels(kernel, words):
    with pytest.raises((Rejected, tt.InvalidInput), match=words):
        check_kernel(kernel, [MASKING])


@pytest.mark.parametrize(
    ("resample", "words"),
    [
        (raising, "the resampler raised RuntimeError: the size of tensor"),
        (lambda log_w, u: None, "the resampler returned None"),
        (lambda log_w, u: Resampled(u.long()[..., :1], log_w), "ancestors are int64, both of that shape"),
        (lambda log_w, u: Resampled(u.long() - 1, log_w), "ancestors outside 0 to 8|not among the particles"),
        (lambda log_w, u: (torch.zeros(log_w.shape), log_w), "int64"),
    ],
)
def test_malformed_resamplers(resample, words):
    with pytest.raises((Rejected, tt.InvalidInput), match=words):
        check_resampler(resample)


def with_moves(change):
    """A target each of whose moves is changed; `start` is as it was."""
    return lambda m: with_methods(tt.Tilted(m, 2.0), move=lambda *asked: change(tt.Tilted(m, 2.0).move(*asked)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (raising, "make raised RuntimeError"),
        (lambda m: with_methods(tt.Tilted(m, 2.0), start=raising), "`start` raised RuntimeError: the size of tensor"),
        (lambda m: with_methods(tt.Tilted(m, 2.0), start=lambda *_: None), "`start` returned is None and has no law"),
        (lambda m: with_methods(tt.Tilted(m, 2.0), choices=lambda *_: 1.5), "what choices returned is 1.5"),
        (lambda m: with_methods(tt.Tilted(m, 2.0), choices=raising), "`choices` raised"),
        (lambda m: with_methods(tt.Tilted(m, 2.0), move=raising), "`move` raised RuntimeError"),
        (
            lambda m: with_methods(tt.Tilted(m, 2.0), branches=lambda *_: [3]),
            "`branches` returned .3.; it must return pairs",
        ),
        (lambda m: with_methods(tt.Tilted(m, 2.0), branches=raising), "`branches` raised"),
        (with_moves(lambda move: Broken(move, uniforms="two")), "`uniforms` of .* is 'two'; it must be a whole number"),
        (with_moves(lambda move: Broken(move, lazy=None)), "the move that `move` returned is .* and has no lazy"),
        (with_moves(lambda move: Broken(move, lazy="no")), "`lazy` of .* is 'no'; it must be True where no network"),
        (with_moves(lambda move: Broken(move, labels=None)), "the move that `move` returned is .* and has no labels"),
        (with_moves(lambda move: Broken(move, labels=move.x[:, 0])), r"`labels` of .*; it must be a tensor \[5, m\]"),
        (with_moves(lambda move: Broken(move, labels=move.x.double())), "`labels` of .* of whole numbers"),
        (with_moves(lambda move: Broken(move, labels=list(move.x))), "`labels` of .* of whole numbers"),
        (with_moves(lambda move: Broken(move, log_before=0.0)), "`log_before` of the move that `move` .* is 0.0"),
        (
            with_moves(lambda move: Broken(move, after=lambda y: None)),
            "`after` of .* returned None; it must return",
        ),
        (with_moves(lambda move: Broken(move, after=lambda y: (y, {}))), "the log-weights .* is torch.int64 of shape"),
        (with_moves(lambda move: Broken(move, after=lambda y: (y[:, 0].double(), {"h": 1}))), "keeps 'h' as 1"),
        (with_moves(lambda move: Broken(move, take=raising)), "`take` of the move that `move` returned raised"),
        (with_moves(lambda move: Broken(move, law=Broken(move.law, sample=lambda u: u))), "`sample` of the law of"),
    ],
)
def test_malformed_targets(make, words):
    with pytest.raises((Rejected, tt.InvalidInput), match=words):
        check_target(make, tempered(2.0))


def test_an_error_inside_a_target_is_told_and_no_absent_one():
    class Misspelt(tt.Tilted):
        @property
        def target(self):
            return self.no_such_part

    class MisspeltMove(tt.Metropolis):
        @property
        def target(self):
            return self.fkk

    with rejected("what the value says of itself raised AttributeError: .*no_such_part"):
        check_target(lambda m: Misspelt(m, 2.0), tempered(2.0))
    with rejected("what the kernel says of itself raised AttributeError: .*fkk"):
        check_move(lambda m: MisspeltMove(tt.Tilted(m, 2.0)), tempered(2.0))


def test_a_target_that_fails_later_in_its_run_is_rejected_in_words():
    def make(model):
        right = tt.Tilted(model, 2.0)
        return with_methods(right, move=lambda p, t, s, u=None: right.move(p, t, s, u) if t > 0.3 else raising())

    with rejected("the value that make built raised RuntimeError"):
        check_target(make, tempered(2.0))


def test_an_exact_law_that_raises_is_rejected_in_words():
    with rejected("exact raised RuntimeError"):
        check_target(lambda m: tt.Tilted(m, 2.0), raising)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (raising, "`move` of the kernel raised RuntimeError"),
        (lambda move: None, "the kernel's move is None and has no law"),
        (lambda move: Broken(move, log_accept=None), "`log_accept` of the kernel's move is None"),
        (lambda move: Broken(move, log_accept=torch.zeros(2)), r"`log_accept` .* of shape \[2\]"),
        (lambda move: Broken(move, after=raising), "`after` of the kernel's move raised"),
        (lambda move: Broken(move, law=Broken(move.law, sample=lambda u: None)), "returned is None; it must be int64"),
    ],
)
def test_malformed_moves(change, words):
    with rejected(words):
        check_move(lambda m: Wrapped(tt.Gibbs(any_order(m)), change), tempered(3.0))


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (raising, "the score raised RuntimeError: the size of tensor"),
        (lambda x, t: None, "returned a NoneType; return tt.SiteLogits.of"),
        (lambda x, t: tt.SiteLogits.of(values(x)[:, :2]), r"return \[7, 4, 3\]"),
    ],
)
def test_malformed_scores(score, words):
    with pytest.raises((Rejected, tt.InvalidInput), match=words):
        check_score(score, MASKING, 4)


@pytest.mark.parametrize(
    ("potential", "words"),
    [
        (raising, "the potential raised RuntimeError: the size of tensor"),
        (lambda x, t: None, "what the potential returned is None"),
        (lambda x, t: x.sum(-1).to(torch.complex64), "complex64"),
    ],
)
def test_malformed_potentials(potential, words):
    with pytest.raises((Rejected, tt.InvalidInput), match=words):
        check_potential(potential, MASKING, 4)


@pytest.mark.parametrize("particles", [2, 9, 32, 100])
@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic", "residual", "ssp", "never"])
def test_every_scheme_of_ours_passes_at_any_number_of_particles(scheme, particles):
    tt.testing.check_resampler(getattr(tt, scheme), particles)


def without_shift(log_w, u):
    """Weights exponentiated as they are: nothing is left of them at log-weights of -800."""
    w = log_w.exp()
    cdf = w.cumsum(-1)
    ancestors = torch.searchsorted(cdf, u * cdf[..., -1:]).clamp(max=log_w.shape[-1] - 1)
    return Resampled(ancestors, w.mean(-1, keepdim=True).log().expand(log_w.shape))


def flattening(log_w, u):
    """Even weights are left where they are, and made equal all the same."""
    w = log_w.softmax(-1)
    even = (1 / w.square().sum(-1, keepdim=True) > 0.9 * log_w.shape[-1]) & (log_w > -torch.inf).all(-1, keepdim=True)
    drawn = tt.systematic(log_w, u)
    own = torch.arange(log_w.shape[-1]).expand(log_w.shape)
    return Resampled(torch.where(even, own, drawn.ancestors), drawn.log_w)


def of_its_own_dice(log_w, u):
    return tt.systematic(log_w, torch.rand(u.shape, dtype=u.dtype))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(without_shift, "mass is not kept|NaN"), (flattening, "biased on even"), (of_its_own_dice, "draw from u alone")],
)
def test_resamplers_that_err_at_the_edge_are_rejected(wrong, words):
    with pytest.raises(tt.testing.Rejected, match=words):
        tt.testing.check_resampler(wrong)

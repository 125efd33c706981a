"""The exact flow with moves between the steps: right moves change nothing, wrong ones are caught; as sampled.

A move that leaves its target alone is invisible in the flow of a value without time error, so wrong kernels show.
"""

from dataclasses import dataclass, replace

import pytest
import torch

import truetilt as tt
from problems import clean, hard_table, table, tv, z_limit
from rewarded import hard, rewarded
from truetilt.core.bases import MoveKernel
from truetilt.core.types import Particles
from truetilt.targets.moves import Gibbs
from truetilt.testing.targets import masses
from truetilt.testing.verdicts import common, z_scores

R, H = rewarded(), hard()
WIDE, HARD = (1.4, (2.0, -0.7), 1.5), (1.4, (2.0, 0.5), 1.5)
SCANS = [tt.random_scan, tt.systematic_scan, tt.backward_scan]


@pytest.mark.parametrize("ramp", [tt.Power(0.0), tt.Power(1.0), tt.at_end])
@pytest.mark.parametrize("problem", [R, H], ids=["soft", "hard"])
def test_right_moves_leave_the_flow_of_a_composed_value_alone(problem, ramp):
    parts = WIDE if problem is R else HARD
    for twist in (None, problem.twist):
        fk = problem.composed(*parts, twist=twist, ramp=ramp)
        kernels = [*(tt.Gibbs(fk, scan) for scan in SCANS), tt.Metropolis(fk, surrogate=problem.twist), tt.Block(fk, 2)]
        for kernel in kernels:
            moves = tt.Rejuvenation(kernel, each_step=1, at_end=1)
            assert problem.gap(fk, problem.log_target(*parts), moves=moves) < 1e-12
        ended = tt.Rejuvenation(tt.Pair(fk), at_end=1)
        assert problem.gap(fk, problem.log_target(*parts), moves=ended) < 1e-12


def test_a_twist_that_knows_the_time_at_a_step_that_reveals_nothing():
    """The weight held the twist's value of the time before, and a move there redraws by that of now."""
    fk = R.composed(*WIDE, twist=lambda x, t: (1 + t) * R.twist(x, t))
    grid = tuple(sorted({*tt.uniform_grid(9), *R.grid}, reverse=True))
    grid = tuple(t for t in grid if t == 1 or R.process.count_masked(3, t) < 3)  # where there is something to move
    moves = tt.Rejuvenation(tt.Gibbs(fk), each_step=1)
    assert len(grid) > 6
    assert R.gap(fk, R.log_target(*WIDE), grid=grid, moves=moves) < 1e-12


@pytest.mark.parametrize("beta", [None, 1.0])
def test_right_moves_leave_the_any_order_clock_alone(beta):
    for problem, size in ((table(tt.Masking, 3, 3, seed=4), 3), (hard_table(tt.Masking), 2)):
        fk = tt.AnyOrder(problem.model(), 3.0, beta)
        grid = tt.masked_fraction_grid(problem.process.schedule, size)
        for kernel in (tt.Gibbs(fk), tt.Block(fk, 2)):
            limit = tt.flow(fk, grid, 4, size, tt.Rejuvenation(kernel, each_step=1, at_end=2))
            assert tv(clean(limit.law, problem), problem.target(3.0)) < 1e-12
            assert abs(float(limit.log_z - problem.log_z_tempered(3.0))) < 1e-12


def test_moves_in_clock_time_are_seen_and_shrink_its_error():
    """On a time grid the law on the way is not quite the target, so that moves show: they bring it nearer."""
    problem = table(tt.Masking, 3, 2, seed=6)
    for fk in (tt.Tilted(problem.model(), 4.0), tt.Steered(problem.model(), problem.potential, 3.0)):
        grid, target = tt.uniform_grid(8), problem.target(fk.alpha if isinstance(fk, tt.Tilted) else 3.0)
        errors = [
            tv(clean(tt.flow(fk, grid, 4, 2, moves).law, problem), target)
            for moves in (None, *(tt.Rejuvenation(tt.Gibbs(fk), each_step=1, at_end=count) for count in (0, 8)))
        ]
        assert errors[0] > 0.005
        assert errors[2] < 0.05 * errors[0]


def sampled(fk, grid, moves, seed=3):
    """Mean weights at every state of 20,000 populations of 4."""
    resample = tt.adaptive(tt.systematic, 0.9)
    result = tt.run(fk, grid, particles=4, populations=20_000, seed=seed, resample=resample, moves=moves)
    return masses(Particles(result.particles, result.log_weights, {}), 4)


@pytest.mark.parametrize("kind", ["tilted", "steered"])
@pytest.mark.parametrize("name", ["gibbs", "gibbs, in turn", "metropolis", "surrogate"])
def test_the_flow_with_moves_is_the_samplers(kind, name):
    """In clock time, where moves change the limit: z-tests of at most 400 scores, false-alarm rate 5e-7."""
    problem = table(tt.Masking, 3, 2, seed=6)
    model, grid = problem.model(), tt.uniform_grid(4)
    fk = {"tilted": tt.Tilted(model, 3.0), "steered": tt.Steered(model, problem.potential, 2.0)}[kind]
    kernel = {
        "gibbs": tt.Gibbs(fk),
        "gibbs, in turn": tt.Gibbs(fk, tt.systematic_scan),
        "metropolis": tt.Metropolis(fk),
        "surrogate": tt.Metropolis(fk, surrogate=lambda x, t: 0.3 * x.sum(-1).double()),
    }[name]
    moves = tt.Rejuvenation(kernel, each_step=2, at_end=1)
    exact = tt.flow(fk, grid, 4, 2, moves).log_mass.exp()
    assert z_scores(*common(sampled(fk, grid, moves), exact)).abs().max() < z_limit(400)


def test_moves_are_numbered_as_the_sampler_numbers_them():
    asked = {"run": [], "flow": []}

    def noting(place):
        def scan(revealed, number, u):
            asked[place].append(number)
            return tt.systematic_scan(revealed, number, u)

        return scan

    fk = R.composed(strength=1.0)
    for place in asked:
        moves = tt.Rejuvenation(tt.Gibbs(fk, noting(place)), each_step=2, at_end=3)
        if place == "run":
            tt.run(fk, R.grid, particles=2, moves=moves)
        else:
            R.flow(fk, moves=moves)
    assert asked["run"] == list(range(9))
    assert list(dict.fromkeys(asked["flow"])) == asked["run"]


# wrong kernels


@dataclass(frozen=True)
class FinalGibbs(Gibbs):
    """Redraws by the last stage, whatever the time."""

    def at(self, particles, t, site, draw=None):
        fk = replace(self.fk, ramp=tt.Power(0.0))
        return Gibbs(fk, self.scan).at(particles, t, site, draw)


@dataclass(frozen=True)
class Forgetful(Gibbs):
    """Redraws right, and keeps the memory of the state that was."""

    def at(self, particles, t, site, draw=None):
        return _Forgets(super().at(particles, t, site, draw), particles.aux)


class _Forgets:
    def __init__(self, move, aux):
        self.move, self.aux, self.law, self.log_before = move, aux, move.law, move.log_before

    def after(self, y):
        return self.move.after(y)[0], self.aux

    def take(self, ancestors):
        return _Forgets(self.move.take(ancestors), {k: v[ancestors] for k, v in self.aux.items()})


def test_wrong_moves_are_caught():
    fk = R.composed(*WIDE, twist=R.twist, ramp=tt.Power(1.0))
    gaps = {
        kernel: R.gap(fk, R.log_target(*WIDE), moves=tt.Rejuvenation(kernel(fk), each_step=1))
        for kernel in (Gibbs, FinalGibbs, Forgetful)
    }
    assert gaps.pop(Gibbs) < 1e-12
    assert min(gaps.values()) > 0.01


# what is refused


def test_bad_input():
    fk = R.composed(strength=1.0)
    with pytest.raises(tt.InvalidInput, match=r"moves is a Gibbs; give tt\.Rejuvenation"):
        R.flow(fk, moves=tt.Gibbs(fk))
    with pytest.raises(tt.InvalidInput, match="hang on the weights of finitely many particles"):
        R.flow(fk, moves=tt.Rejuvenation(tt.Gibbs(fk), after_resampling=1))
    with pytest.raises(tt.InvalidInput, match=r"the kernel of the moves is .* all that a move may do"):
        R.flow(fk, moves=tt.Rejuvenation(_Sealed(tt.Gibbs(fk)), at_end=1))
    annealed = tt.Annealed(fk, 2, kernel=lambda value: _Sealed(tt.Gibbs(value)))
    with pytest.raises(tt.InvalidInput, match="give a kernel that has `branches`"):
        R.flow(annealed)
    assert tt.run(annealed, particles=4).log_weights.isfinite().all()


def test_a_kernel_that_lists_its_choices_need_not_say_its_target():
    class Nameless(MoveKernel):
        choices = 1

        def __init__(self, kernel):
            self.kernel = kernel

        def move(self, *where):
            return self.kernel.move(*where)

        def branches(self, *where):
            return self.kernel.branches(*where)

    fk = R.composed(strength=1.0)
    moves = [tt.Rejuvenation(kernel, at_end=1) for kernel in (tt.Gibbs(fk), Nameless(tt.Gibbs(fk)))]
    named, nameless = (R.flow(fk, moves=each).log_mass for each in moves)
    assert torch.equal(named, nameless)


class _Sealed(MoveKernel):
    """A kernel that moves, and does not say all that it may do."""

    def __init__(self, kernel):
        self.kernel, self.fk = kernel, kernel.fk

    @property
    def choices(self):
        return self.kernel.choices

    def move(self, particles, t, number, u):
        return self.kernel.move(particles, t, number, u)


def test_a_particle_with_nothing_revealed_stays_itself_under_a_move():
    """A Gibbs move in clock time left it the memory of a token that it was not given, and the next weight was wrong."""
    problem = table(tt.Masking, 3, 2, seed=6)
    fk = tt.Steered(problem.model(), problem.potential, 3.0)
    x = torch.full((1, 2), 3)
    tilt = fk.tilt(x, 0.7)
    at = Particles(x, torch.zeros(1).double(), {"log_tilt": tilt})
    for _, move in tt.Gibbs(fk).branches(at, 0.7, 0):
        assert torch.equal(move.after(x)[1]["log_tilt"], tilt)

"""Moves leave their target invariant: the transition matrix is built and applied, on enumerated spaces."""

import itertools

import pytest
import torch

import truetilt as tt
from problems import clean, hard_table, table, tv, z_limit
from truetilt.core.types import Particles
from truetilt.exact.flow import push
from truetilt.exact.tables import flat_index
from truetilt.targets.accept_move import AcceptLaw
from truetilt.targets.stage import nothing_known

PROBLEM = table(tt.Masking, 3, 3, seed=4)
GRID = tt.masked_fraction_grid(PROBLEM.process.schedule, 3)
MASK = PROBLEM.process.mask


def intermediate(alpha, t):
    """p(x_U) p(zeta|x_U)^alpha over states with as many sites revealed as at time t, normalised; and log ratios."""
    masked = (PROBLEM.states == MASK).sum(-1)
    level = PROBLEM.process.count_masked(3, t)
    log_p = PROBLEM.marginal(0.5).log().reshape(-1)
    log_ratio = PROBLEM.potential(PROBLEM.states, 0.5) - PROBLEM.evidence.log()
    log_target = torch.where(masked == level, log_p + alpha * log_ratio, -torch.inf)
    return log_target.log_softmax(0), log_ratio


def memory(x, log_ratio):
    """What an any-order run remembers of states."""
    return nothing_known(x, 1) | {"log_ratios": log_ratio[..., None]}


def particles(log_mass, aux):
    alive = (log_mass > -torch.inf).nonzero().squeeze(-1)
    return Particles(PROBLEM.states[alive], log_mass[alive], {k: v[alive] for k, v in aux.items()})


def pushed(moves, at):
    """Mass after a mixture of moves [(probability, move)]."""
    parts = [push(move, at.log_w + log_p, PROBLEM.states, 4)[0] for log_p, move in moves]
    return torch.stack(parts).logsumexp(0)


@pytest.mark.parametrize("t", GRID[1:])
@pytest.mark.parametrize("alpha", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("ramp", [tt.Power(0.0), tt.Power(1.0)])
def test_gibbs_leaves_every_intermediate_target_invariant(t, alpha, ramp):
    fk = tt.AnyOrder(PROBLEM.model(), alpha, ramp=ramp)
    target, log_ratio = intermediate(fk.exponent(t), t)
    at = particles(target, memory(PROBLEM.states, log_ratio))
    gibbs, seen = tt.Gibbs(fk), at.x != MASK
    count = seen.sum(-1)
    moves = []
    for d in range(3):
        log_p = torch.where(seen[:, d], -count.double().log(), -torch.inf)
        here = seen[:, d].nonzero().squeeze(-1)
        part = Particles(at.x[here], at.log_w[here], {k: v[here] for k, v in at.aux.items()})
        move = gibbs.at(part, t, torch.full((len(here), 1), d))
        moves.append((log_p[here], part, move))
        _, aux = move.after(part.x)
        assert torch.allclose(aux["log_ratios"], part.aux["log_ratios"])  # redrawing the same token changes no memory
    total = torch.stack([push(m, p.log_w + lp, PROBLEM.states, 4)[0] for lp, p, m in moves]).logsumexp(0)
    assert (total.exp() - target.exp()).abs().max() < 1e-12


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("t", [GRID[2], GRID[3]])
def test_blocks_leave_every_intermediate_target_invariant(size, t):
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    target, log_ratio = intermediate(3.0, t)
    block = tt.Block(fk, size)
    total = torch.zeros(64, dtype=torch.float64)
    for sites in itertools.permutations(range(3), size):
        index = torch.tensor(sites)
        masked = PROBLEM.states == MASK
        here = ((target > -torch.inf) & ~masked[:, index].any(-1)).nonzero().squeeze(-1)
        ways = torch.tensor(1.0, dtype=torch.float64)
        for j in range(size):
            ways = ways * ((~masked).sum(-1)[here] - j)
        part = Particles(PROBLEM.states[here], target[here], memory(PROBLEM.states[here], log_ratio[here]))
        for tokens in itertools.product(range(3), repeat=size):
            log_q = torch.zeros(len(here), dtype=torch.float64)

            def fill(j, law, tokens=tokens):
                nonlocal log_q
                y = law.x.scatter(-1, law.sites, tokens[j])
                log_q = log_q + law.log_prob(y)
                return y

            move = block.at(part, t, index.expand(len(here), size), fill)
            for end in (part.x, move.y):  # whichever it ends in, it remembers log p(zeta|x) / p(zeta) of that
                known = PROBLEM.potential(end, 0.5) - PROBLEM.evidence.log()
                assert torch.allclose(move.after(end)[1]["log_ratios"][..., 0], known, rtol=0, atol=1e-12)
            total += push(move, part.log_w + log_q - ways.log(), PROBLEM.states, 4)[0].exp()
    assert (total - target.exp()).abs().max() < 1e-12


@pytest.mark.parametrize("t", [0.0, 0.35])
def test_metropolis_leaves_the_tilted_target_invariant(t):
    fk = tt.Tilted(PROBLEM.model(), 4.0, tt.Power(1.0))
    h = (3 * (1 - t)) * PROBLEM.potential(PROBLEM.states, t if t > 0 else 1e-9)
    log_given = PROBLEM.conditional_marginal(t).log().reshape(-1)
    target = torch.where(log_given > -torch.inf, log_given + h, -torch.inf).log_softmax(0)
    at = particles(target, {"log_tilt": h})
    kernel, seen = tt.Metropolis(fk), at.x != MASK
    total = torch.zeros(64, dtype=torch.float64)
    for d in range(3):
        log_p = torch.where(seen[:, d], -seen.sum(-1).double().log(), -torch.inf)
        for v in range(3):
            log_q = None

            def fill(law, v=v):
                nonlocal log_q
                y = law.x.scatter(-1, law.sites, v)
                log_q = law.log_prob(y)
                return y

            move = kernel.at(at, t, torch.full((len(at.x), 1), d), fill)
            chance = torch.where(seen[:, d], log_q + log_p, -torch.inf)
            total += push(move, at.log_w + chance, PROBLEM.states, 4)[0].exp()
    nothing = (~seen).all(-1)
    total += torch.zeros_like(total).index_add(0, flat_index(at.x, 4)[nothing], at.log_w[nothing].exp())
    assert (total - target.exp()).abs().max() < 1e-12


SCANS = [tt.random_scan, tt.systematic_scan, tt.backward_scan]


@pytest.mark.parametrize("scan", SCANS)
def test_smc_with_moves_stays_unbiased(scan):
    """20,000 populations of 4 with moves after every step: at most 400 z-scores, false-alarm rate 5e-7."""
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    for moves in (
        tt.Rejuvenation(tt.Gibbs(fk, scan), each_step=2, at_end=2),
        tt.Rejuvenation(tt.Block(fk, 2), each_step=1),
    ):
        result = tt.run(
            fk, GRID, particles=4, populations=20_000, resample=tt.adaptive(tt.systematic, 0.8), moves=moves
        )
        exact = (PROBLEM.target(3.0) * PROBLEM.log_z_tempered(3.0).exp()).reshape(-1)
        mass = torch.zeros(20_000, 27, dtype=torch.float64)
        mass.scatter_add_(1, flat_index(result.particles, 3), result.log_weights.exp() / 4)
        z = (mass.mean(0) - exact) / (mass.std(0) / 20_000**0.5)
        assert z[exact > 1e-4].abs().max() < z_limit(400)  # rarer states are not visited often enough to be normal
        assert (result.moved[-1] > 0).any()


def test_moves_that_hang_on_resampling_cost_unbiasedness():
    """What the docstring warns of: at two particles E[Z-hat] is low; with the same moves always made it is Z."""
    fk = tt.AnyOrder(PROBLEM.model(), 8.0, order=(0, 1, 2))
    z = {}
    for name in ("after_resampling", "each_step"):
        moves = tt.Rejuvenation(tt.Gibbs(fk, tt.backward_scan), **{name: 3})
        result = tt.run(
            fk, GRID, particles=2, populations=20_000, resample=tt.adaptive(tt.systematic, 0.8), moves=moves
        )
        ratio = (result.population_log_z - PROBLEM.log_z_tempered(8.0)).exp()
        z[name] = float((ratio.mean() - 1) / (ratio.std() / 20_000**0.5))
    assert z["after_resampling"] < -5
    assert abs(z["each_step"]) < z_limit(1)


def test_a_population_moves_as_it_would_alone():
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    moves = tt.Rejuvenation(tt.Gibbs(fk, tt.systematic_scan), each_step=1, after_resampling=2, at_end=1)
    settings = {"particles": 6, "moves": moves, "seed": 5, "resample": tt.adaptive(tt.systematic, 0.8)}
    whole = tt.run(fk, GRID, populations=6, **settings)
    for k in range(6):
        alone = tt.run(fk, GRID, first_population=k, **settings)
        assert torch.equal(whole.particles[k], alone.particles[0])
        assert torch.equal(whole.log_weights[k], alone.log_weights[0])
        assert torch.equal(whole.moved[:, k], alone.moved[:, 0])


def test_a_scan_goes_on_from_step_to_step():
    seen = []

    def scan(revealed, number, u):
        seen.append(number)
        return tt.systematic_scan(revealed, number, u)

    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    tt.run(fk, GRID, particles=4, moves=tt.Rejuvenation(tt.Gibbs(fk, scan), each_step=2, at_end=3))
    assert seen == list(range(9))


def started(name):
    model = PROBLEM.model()
    guided = tt.Guided(model.process, model.base, model.conditional, 3.0, tt.posterior_level)
    return {
        "base": (tt.AnyOrder(model, 0.0), GRID),  # weights 1: plain samples of the base
        "guidance": (tt.Unweighted(model, guided), tt.uniform_grid(10)),
        "tempered": (tt.Tempered(model, 3.0), tt.uniform_grid(10)),
    }[name]


@pytest.mark.parametrize("kind", ["gibbs", "block", "metropolis"])
@pytest.mark.parametrize("name", ["base", "guidance", "tempered"])
def test_moves_alone_bring_any_samples_to_the_target(name, kind):
    """Start from a wrong law, move: the chain forgets where it began. 10,000 draws of 27 states: TV below 0.04."""
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    kernel = {
        "gibbs": tt.Gibbs(fk, tt.systematic_scan),
        "block": tt.Block(fk, 2),
        "metropolis": tt.Metropolis(tt.Tilted(PROBLEM.model(), 3.0), tt.systematic_scan),
    }[kind]
    start, grid = started(name)
    moves = tt.Rejuvenation(kernel, at_end=60)
    result = tt.run(start, grid, particles=10_000, seed=1, resample=tt.never, moves=moves)
    law = torch.bincount(flat_index(result.particles, 3).reshape(-1), minlength=27).double() / 10_000
    assert tv(law.reshape(3, 3, 3), PROBLEM.target(3.0)) < 0.04
    assert tv(PROBLEM.p0, PROBLEM.target(3.0)) > 0.3
    accepted = float(result.accepted[-1])
    assert accepted == pytest.approx(1.0) if kind == "gibbs" else 0.2 < accepted < 0.99
    assert 0 < float(result.moved[-1]) <= accepted + 0.01
    assert result.settings["moves"]["kernel"]["name"] == type(kernel).__name__
    assert result.settings["moves"]["at_end"] == 60


def test_between_clock_steps_only_a_model_of_the_same_clock_may_move():
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    moves = tt.Rejuvenation(tt.Gibbs(fk), each_step=1)
    with pytest.raises(tt.InvalidInput, match="move at_end only"):
        tt.run(tt.Tempered(PROBLEM.model(), 3.0), tt.uniform_grid(10), particles=4, moves=moves)


def test_a_block_move_asks_once_for_what_both_ways_share():
    model, asked = PROBLEM.model(), []

    def base(x, t):
        asked.append(t)
        return model.base(x, t)

    fk = tt.AnyOrder(tt.Model(model.process, 3, base, model.conditional), 3.0)
    for size in (1, 2, 3):
        asked.clear()
        tt.run(fk, GRID, particles=4, moves=tt.Rejuvenation(tt.Block(fk, size), at_end=1))
        assert len(asked) == 3 + 2 * size - 1 + 3  # the last three: whether the conditionals agree


def test_hard_states_count_at_alpha_zero():
    """p0 itself: what zeta forbids is as good as any state, and a block must leave it."""
    problem = hard_table(tt.Masking)
    fk, size = tt.AnyOrder(problem.model(), 0.0), problem.process.vocabulary
    grid = tt.masked_fraction_grid(problem.process.schedule, problem.length)
    moves = tt.Rejuvenation(tt.Block(fk, 2), at_end=30)
    result = tt.run(fk, grid, particles=10_000, moves=moves)
    cells = size**problem.length
    law = torch.bincount(flat_index(result.particles, size).reshape(-1), minlength=cells).double() / 10_000
    assert tv(law.reshape(problem.p0.shape), problem.p0) < 0.03


@pytest.mark.parametrize("kind", ["gibbs", "block", "metropolis"])
def test_a_score_of_nan_is_named_in_moves(kind):
    """Moves add no weight, so nothing else would notice."""
    good, calls = PROBLEM.model(), []

    def broken(x, t):
        calls.append(t)
        logits = good.conditional(x, t)
        return logits if len(calls) <= 3 else logits.with_rows(torch.full_like(logits.rows, torch.nan))

    model = tt.Model(good.process, 3, good.base, broken, good.potential)
    fk = tt.AnyOrder(model, 3.0)
    kernel = {
        "gibbs": tt.Gibbs(fk, tt.systematic_scan),
        "block": tt.Block(fk, 2),
        "metropolis": tt.Metropolis(tt.Tilted(model, 3.0), tt.systematic_scan),
    }[kind]
    with pytest.raises(tt.InvalidWeights, match="the conditional score returned NaN"):
        tt.run(fk, GRID, particles=8, moves=tt.Rejuvenation(kernel, at_end=3))


def test_no_network_is_told_that_nothing_is_masked():
    """A schedule that starts high has no time with little noise; a move must not ask at t = 0, where scores end."""
    problem = tt.Table(tt.Masking(3, tt.Geometric(0.2, 20.0)), PROBLEM.p0, PROBLEM.likelihood)
    fk = tt.AnyOrder(problem.model(), 3.0)
    moves = tt.Rejuvenation(tt.Gibbs(fk, tt.systematic_scan), at_end=9)
    result = tt.run(fk, tt.uniform_grid(200), particles=4000, moves=moves)
    law = torch.zeros(27, dtype=torch.float64).index_add(0, flat_index(result.particles, 3)[0], result.weights[0])
    assert tv(law.reshape(3, 3, 3), problem.target(3.0)) < 0.06
    with pytest.raises(tt.InvalidInput, match="a schedule that starts lower"):
        tt.masked_fraction_grid(tt.Geometric(0.2, 20.0), 10)


def test_a_move_that_cannot_be_accepted_never_is():
    x, y = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64)
    law = AcceptLaw(x, y, torch.tensor([-torch.inf, 0.0]).double())
    assert torch.equal(law.sample(torch.zeros(2, 1).double()), torch.stack([x[0], y[1]]))
    top = torch.full((2, 1), 1 - 2.0**-53, dtype=torch.float64)
    assert torch.equal(law.sample(top), torch.stack([x[0], y[1]]))
    assert torch.equal(law.log_prob(y), torch.tensor([-torch.inf, 0.0]).double())
    assert torch.equal(law.log_prob(x), torch.tensor([0.0, -torch.inf]).double())


def test_metropolis_leaves_masked_sites_and_dead_particles_alone():
    problem = hard_table(tt.Masking)
    x = torch.tensor([[3, 2], [0, 0], [0, 2]])  # masked at site 0; of likelihood zero; alive
    at = Particles(x, torch.zeros(3, dtype=torch.float64), {})
    for token in range(3):
        move = tt.Metropolis(tt.Tilted(problem.model(), 3.0)).at(
            at, 0.0, torch.zeros(3, 1, dtype=torch.int64), lambda law, v=token: law.x.scatter(-1, law.sites, v)
        )
        assert torch.equal(move.log_accept[:2], torch.full((2,), -torch.inf).double())
        before, after = problem.potential(torch.tensor([[0, 2], [token, 2]]), 0.0).tolist()
        assert float(move.log_accept[2]) == pytest.approx(min(0.0, 2 * (after - before)), abs=1e-12)
        assert torch.equal(move.y[0], x[0])


def test_wrong_gibbs_with_the_exponent_of_another_time():
    """A move for alpha = 3 does not leave the target at alpha = 2 alone."""
    target, log_ratio = intermediate(2.0, 0.0)
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    at = particles(target, memory(PROBLEM.states, log_ratio))
    moves = [(-torch.tensor(3.0).log(), tt.Gibbs(fk).at(at, 0.0, torch.full((len(at.x), 1), d))) for d in range(3)]
    assert tv(clean(pushed(moves, at).exp(), PROBLEM), clean(target.exp(), PROBLEM)) > 0.01


def test_moves_for_another_target_are_refused():
    model = PROBLEM.model()
    fk = tt.AnyOrder(model, 3.0)
    for kernel in (tt.Gibbs(tt.AnyOrder(model, 8.0)), tt.Metropolis(tt.Tilted(model, 8.0))):
        with pytest.raises(tt.InvalidInput, match=r"differ in alpha \(3.0 and 8.0\)"):
            tt.run(fk, GRID, particles=4, moves=tt.Rejuvenation(kernel, at_end=1))
    other = tt.AnyOrder(table(tt.Masking, 3, 2).model(), 3.0)
    with pytest.raises(tt.InvalidInput, match=r"differ in length \(3 and 2\)"):
        tt.run(fk, GRID, particles=4, moves=tt.Rejuvenation(tt.Gibbs(other), at_end=1))
    with pytest.raises(tt.InvalidInput, match="moves is a Gibbs"):
        tt.run(fk, GRID, particles=4, moves=tt.Gibbs(fk))
    for kernel in (tt.Gibbs, tt.Metropolis, tt.Pair):
        with pytest.raises(tt.InvalidInput, match=f"{kernel.__name__} is made from .* not Tempered"):
            kernel(tt.Tempered(model, 3.0))


def test_bad_input():
    fk = tt.AnyOrder(PROBLEM.model(), 3.0)
    with pytest.raises(tt.InvalidInput, match="give 1 to all"):
        tt.Block(fk, 4)
    with pytest.raises(tt.InvalidInput, match="give 1 to all"):
        tt.Block(fk, 1.5)
    with pytest.raises(tt.InvalidInput, match="whole number"):
        tt.Rejuvenation(tt.Gibbs(fk), at_end=1.5)
    with pytest.raises(tt.InvalidInput, match="has no mask"):
        tt.Metropolis(tt.Tilted(table(tt.Uniform, 3, 2).model(), 2.0))
    with pytest.raises(tt.InvalidInput, match="at least 0"):
        tt.Rejuvenation(tt.Gibbs(fk), each_step=-1)

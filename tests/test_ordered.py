"""Edge ratios in a fixed order: on exact conditionals they are the true ratio, and sweeps keep the target.

Where conditionals disagree, what moves add up drifts; a function of the state cannot.
"""

from functools import partial

import pytest
import torch

import truetilt as tt
from problems import table, tv
from truetilt.paper.annealing import Annealing, by_potential, of_learned_nets, sweeps
from truetilt.paper.ordered_ratio import EdgeSweep, OrderedRatio, by_ordered_ratio, spread_order

EXACT = table(tt.Masking, 3, 3)


@pytest.mark.parametrize(("length", "steps"), [(64, 16), (12, 16), (5, 3), (1, 1)])
def test_the_spread_order_names_every_site_once(length, steps):
    assert sorted(spread_order(length, steps)) == list(range(length))


def test_neighbours_come_late():
    assert spread_order(8, 4) == (0, 4, 2, 6, 1, 5, 3, 7)


def test_the_ratio_is_the_true_one_where_conditionals_agree():
    x = torch.cartesian_prod(*[torch.arange(3)] * 3)
    log_p = EXACT.likelihood.double().log().flatten()
    log_evidence = (EXACT.p0.double() * EXACT.likelihood.double()).sum().log()
    found = OrderedRatio(EXACT.model())(x)
    assert (found - (log_p - log_evidence)).abs().max() < 1e-6


@pytest.mark.parametrize(("goal", "moves"), [(by_ordered_ratio, sweeps), (by_potential, lambda model: tt.Metropolis)])
def test_annealing_ends_in_the_target(goal, moves):
    """4,000 particles: total variation of about .02 from 27 states by chance alone."""
    fk = Annealing(goal, 4, moves)(EXACT.model(), 4.0)
    result = tt.run(fk, particles=4000, seed=1)
    index = (result.particles[0] * torch.tensor([9, 3, 1])).sum(-1)
    law = torch.zeros(27, dtype=torch.float64).scatter_add(0, index, result.weights[0])
    assert tv(law, EXACT.target(4.0).flatten()) < 0.05
    assert fk.spent.evaluations > 0  # the pilot's
    assert tv(EXACT.target(1.0).flatten(), EXACT.target(4.0).flatten()) > 0.1  # there was a way to go


class Leaning:
    """A score whose conditionals disagree: a token likes what stands to its left, and nothing likes its right."""

    def __init__(self, lean):
        self.lean = lean

    def __call__(self, x, t):
        logits = torch.zeros(*x.shape, 3, dtype=torch.float64)
        left = torch.nn.functional.pad(x[..., :-1], (1, 0), value=3)
        logits += self.lean * torch.nn.functional.one_hot(left, 4)[..., :3].double()
        logits[..., 0] += self.lean
        return logits.log_softmax(-1)


def test_what_moves_add_up_drifts_and_a_function_of_the_state_does_not():
    """Sixteen sweeps at alpha = 4 instead of one: log Z of summed edges grows by 69, of ordered ones by 0.6."""
    process = tt.Masking(3)
    scores = [tt.PosteriorScore(process, Leaning(lean)) for lean in (0.0, 1.0)]
    model = tt.Model(process, 8, *scores)
    edges = tt.Composed(model, conditions=[(model.conditional, 4.0)])
    found = {}
    with of_learned_nets():
        for number in (1, 16):
            gibbs = partial(tt.Gibbs, scan=tt.systematic_scan)
            summed = tt.run(tt.Annealed(edges, 8 * number, kernel=gibbs), particles=256, seed=0)
            ordered = by_ordered_ratio(model, 4.0)
            swept = tt.run(tt.Annealed(ordered, number, kernel=partial(EdgeSweep, model=model)), particles=256, seed=0)
            found[number] = float(summed.log_z), float(swept.log_z)
    assert found[16][0] - found[1][0] > 50
    assert abs(found[16][1] - found[1][1]) < 1.5

"""Baselines of the humanise experiment on a tiny network: the law that they draw from, their reward and budgets."""

import pytest
import torch

import truetilt as tt
from antibody_nets import write_antiberty
from truetilt.antibodies.numbering import HEAVY, VariableDomain
from truetilt.antibodies.redesign import load_antiberty
from truetilt.core.budget import Budget
from truetilt.core.fasta import tokens_of
from truetilt.paper.humanise_designs import DesignSetting, ParentChain, RunSize, one_chain
from truetilt.paper.humanise_samplers import (
    BASELINES,
    contest,
    in_chain,
    log_prob_in_steps,
    one_baseline,
    passes_of_call,
)

PARENT, OPEN = "QVQLKWS", (1, 4)
POSITIONS = (*range(20, 40), *range(60, 66), *range(90, 105))
CHAIN = ParentChain("A", ("QVQLKWSGPE" * 5)[:41], VariableDomain(HEAVY, "kabat", 0, POSITIONS))
CELL, SIZE = DesignSetting((1, 2), 2.0, 4.0, 2.0, 0, 2), RunSize(2, 4, 5)


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return load_antiberty(batch=8, folder=write_antiberty(tmp_path_factory.mktemp("antiberty")))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_base_and_reward_of_the_baselines_are_the_target(nets, order, sharpness):
    """What they draw from, times exp(reward), is exactly the law that ours has in the limit."""
    redesign = nets.redesign(PARENT, OPEN)
    target = redesign.target(alpha=2.0, pull=0.7, sharpness=sharpness, order=order, readings=2)
    exact = tt.flow(target, target.grid, 21, 2).law.reshape(21, 21)[:20, :20]
    on = contest(target, Budget(100, 100), None, 0)
    walk = on.walk(on.model)
    drawn = tt.flow(walk.fk, walk.grid, 21, 2).law.reshape(21, 21)[:20, :20]
    every = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    law = (drawn.log() + on.reward(every).reshape(20, 20)).flatten().softmax(0).reshape(20, 20)
    law = law if order == (0, 1) else law.T  # its first site is the first of the order
    torch.testing.assert_close(law, exact, atol=1e-6, rtol=1e-4)
    assert float((law.T - exact).abs().sum() / 2) > 1e-3  # a wrong variant: sites not put back into the chain
    torch.testing.assert_close(log_prob_in_steps(on.model, every, None).exp(), drawn.flatten(), atol=1e-6, rtol=1e-4)


def test_sites_of_one_step_are_drawn_as_if_independent(nets):
    """log p0 in steps is that of the draws in steps, and another law than one site a step."""
    target = nets.redesign(PARENT, OPEN).target(order=(0, 1))
    on = contest(target, Budget(100, 100), 1, 0)
    walk = on.walk(on.model)
    drawn = tt.flow(walk.fk, walk.grid, 21, 2).law.reshape(21, 21)[:20, :20].flatten()
    every = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    torch.testing.assert_close(log_prob_in_steps(on.model, every, 1).exp(), drawn, atol=1e-6, rtol=1e-4)
    assert float((log_prob_in_steps(on.model, every, None).exp() - drawn).abs().sum() / 2) > 1e-3


def test_a_chain_is_spelled_in_its_own_order():
    x = torch.tensor([[5, 6, 7]])
    assert in_chain(x, (2, 0, 1)).tolist() == [[6, 7, 5]]  # the first that was drawn is the last of the chain


def test_what_a_call_costs():
    assert passes_of_call("tds", 4, 79) == 4  # log p0 of what it drew is known
    assert passes_of_call("adalead", 4, 79) == 83
    assert passes_of_call("best-of-n", 0, 79) == 1


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_runs_within_both_budgets(nets, name):
    ours = one_chain(CHAIN, CELL, SIZE, 0, nets)
    assert ours["reward_calls"] == 8
    evaluations = 6000
    found = one_baseline(CHAIN, CELL._replace(method=name), SIZE, 0, nets, evaluations)
    assert found["designs"]
    asking = passes_of_call(name, 2, 5) * found["distinct_calls"]
    draws = found["network_evaluations"] - asking
    assert 0 < draws <= evaluations
    assert 0 < asking <= evaluations
    assert max(draws, asking) / evaluations > 0.5
    assert len(found["designs"]) <= 16
    assert all(len(one["sequence"]) == 41 for one in found["designs"])
    assert found["log_pi"] < 0


def test_a_budget_that_is_too_small_is_said(nets):
    found = one_baseline(CHAIN, CELL._replace(method="particle-gibbs"), SIZE, 0, nets, 60)
    assert found["designs"] == []
    assert found["reason"] == "8 reward calls can be spent, and its smallest run takes 672 of them"


def test_log_pi_is_that_of_the_target(nets):
    """Of the heaviest design: the sharpness times log p0 summed in its order, and the reward."""
    found = one_chain(CHAIN, CELL, SIZE, 0, nets)
    redesign = nets.redesign(CHAIN.parent, unseen_cdrs=(1, 2), domain=CHAIN.domain)
    x = tokens_of(found["designs"][0]["sequence"])[None, list(redesign.open_sites)]
    seen, log_p = torch.full_like(x, 20), 0.0
    for site in redesign.order():
        log_p += float(redesign.infill(seen, 0.5).normalised().dense()[0, site, x[0, site]])
        seen[0, site] = x[0, site]
    human, changes = redesign.log_species(readings=2)(x, 0.0), redesign.changes(x)
    assert found["log_pi"] == pytest.approx(float(2 * log_p + 4 * human - 2 * changes), abs=1e-3)

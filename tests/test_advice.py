"""Advice names what this sampler can do next by its API, and never what it does already or cannot do."""

from dataclasses import replace

import pytest
import torch

import truetilt as tt
from problems import table

MODEL, UNIFORM = table(tt.Masking, 3, 3, seed=1).model(), table(tt.Uniform, 3, 3, seed=1).model()
GRID = tt.uniform_grid(8)


def ones(x, t=0.0):
    return (x == 1).sum(-1).double()


def steep(x):
    return 12.0 * ones(x)


def flat(x, t):
    return 0.01 * ones(x)


TILTED = tt.Tilted(MODEL, 3.0)
COMPOSED = tt.Composed(MODEL, reward=steep)
TWISTED = replace(COMPOSED, twist=flat)
LEARNED = tt.learn_twist(MODEL, lambda x: 0.01 * ones(x), 1.0, calls=100, draws=40)  # of another reward
ADVICE = {  # the words that must and must not be among those of a value
    "tempered": (tt.Tempered(MODEL, 3.0), ["tt.Tilted", "tt.AnyOrder", "tt.Gibbs", "finer grid"], ["tt.Annealed"]),
    "tempered, no potential": (
        tt.Tempered(replace(MODEL, potential=None), 3.0),
        ["a potential (tt.Tilted)"],
        ["the model's potential"],
    ),
    "tempered, uniform": (tt.Tempered(UNIFORM, 3.0), ["tt.Tilted"], ["tt.AnyOrder", "tt.Gibbs"]),
    "tilted": (TILTED, ["ramp=tt.pilot(fk, grid)", "tt.Metropolis"], ["tt.Tilted"]),
    "tilted, piloted": (replace(TILTED, ramp=tt.pilot(TILTED, GRID, particles=20)), ["tt.Metropolis"], ["tt.pilot"]),
    "steered": (tt.Steered(MODEL, ones), ["tt.pilot", "tt.learn_twist", "tt.Composed"], []),
    "steered at the end": (tt.Steered(MODEL, ones, 1.0, tt.at_end), ["tt.learn_twist"], ["tt.pilot", "finer grid"]),
    "steered with a twist": (
        tt.Steered(MODEL, ones, twist=flat),
        ["tt.Composed with the same twist"],
        ["tt.learn_twist"],
    ),
    "steered, uniform": (tt.Steered(UNIFORM, ones), ["twist="], ["tt.Composed", "tt.Gibbs"]),
    "any order": (
        tt.AnyOrder(MODEL, 3.0),
        ["ramp=tt.pilot(fk, fk.grid)", "conditions=[(model.conditional, 3)]), shares=6)", "tt.Gibbs"],
        ["finer grid", "smaller steps"],
    ),
    "composed": (
        COMPOSED,
        ["tt.learn_twist(model", "tt.Annealed(fk, shares=6)"],
        ["smaller steps", "better twist", "exponent"],
    ),
    "composed with a twist": (TWISTED, ["a better twist", "tt.Annealed(fk, shares=6)"], ["given as twist="]),
    "composed, learned": (replace(COMPOSED, twist=LEARNED), ["more calls"], ["given as twist="]),
    "composed, conditions": (
        tt.Composed(MODEL, conditions=[(MODEL.conditional, 2.0)]),
        ["tt.Annealed", "smaller exponent"],
        ["twist", "strength"],
    ),
    "annealed": (
        tt.Annealed(COMPOSED, 6),
        ["shares=tt.pilot(fk)", "shares=12", "tt.learn_twist"],
        ["tt.Annealed", "tt.Gibbs"],
    ),
    "annealed on a ladder": (
        tt.Annealed(COMPOSED, tt.pilot(tt.Annealed(COMPOSED, 6), particles=20)),
        ["shares=12", "tt.learn_twist"],
        ["tt.pilot"],
    ),
    "annealed from a twist": (tt.Annealed(TWISTED, 6), ["shares=tt.pilot(fk)", "better twist"], ["given as twist="]),
}


@pytest.mark.parametrize("name", ADVICE)
def test_advice_names_the_next_thing_and_nothing_that_is_done(name):
    fk, wanted, unwanted = ADVICE[name]
    words = " ".join(fk.remedies._replace(twist=""))
    assert [word for word in wanted if word not in words] == []
    assert [word for word in unwanted if word in words] == []


@pytest.mark.parametrize("twist", [flat, LEARNED])
def test_weights_that_are_bad_at_the_closing_step_alone_are_the_twists_fault(twist):
    trust = tt.run(replace(COMPOSED, twist=twist), particles=64, populations=16, seed=0).trust()
    assert trust.verdict != "trust"
    blamed = [reason for reason in trust.reasons if "it is the twist" in reason]
    name = "flat" if twist is flat else f"held-out spread {LEARNED.held_out.spread:.2g}"
    assert len(blamed) == 1
    assert name in blamed[0]
    assert "tt.Annealed(fk, shares=6)" in blamed[0]
    assert "smaller steps" not in str(trust)


def test_a_run_that_was_never_resampled_is_told_to_and_one_always_resampled_to_do_it_less():
    strong = tt.Steered(MODEL, lambda x, t: 30.0 * ones(x), 1.0)
    assert "leave resample out" in str(tt.run(strong, GRID, particles=64, resample=tt.never).trust())
    often = tt.run(tt.Tempered(MODEL, 2.0), tt.uniform_grid(100), particles=20, resample=tt.multinomial).trust()
    assert "resample only when needed" in str(often)
    adaptive = tt.run(tt.Tempered(MODEL, 30.0, 0.0), GRID, particles=20).trust()
    assert "resample only when needed" not in str(adaptive)
    assert "leave resample out" not in str(adaptive)


def test_populations_that_disagree_are_told_of_particles_in_each_and_of_a_better_way():
    trust = tt.run(COMPOSED, particles=8, populations=16, seed=1).trust()
    assert trust.verdict == "do not trust"
    assert any("more particles in each" in reason and "tt.learn_twist" in reason for reason in trust.reasons)
    assert torch.isfinite(torch.tensor(trust.figures.log_z))

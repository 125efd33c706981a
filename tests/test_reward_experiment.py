"""truetilt reproduce rewards: its chains are exact, every row runs, and screening calls states with known chances."""

import itertools
import json
import lzma
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from truetilt.baselines.base_draws import site_by_site
from truetilt.cli.main import app
from truetilt.commands import job_runner
from truetilt.exact.tables import flat_index
from truetilt.paper import reward_chains, reward_tables, rewards, rewards_figure, screening

KEYS = {"tv", "floor", "log_z_error", "ess", "rounds", "evaluations", "calls", "distinct"}


@pytest.fixture
def tiny(monkeypatch):
    """Sizes at which a row takes a second."""
    monkeypatch.setattr(reward_chains, "PARTICLES", 60)
    monkeypatch.setattr(reward_chains, "DRAWS", 30)
    monkeypatch.setattr(reward_chains, "LESSONS", 100)
    monkeypatch.setattr(reward_chains, "CALLS", 4000)
    monkeypatch.setattr(screening, "POOL", 2000)
    monkeypatch.setattr(screening, "PILOT", 100)
    monkeypatch.setattr(screening, "STAGE", 100)
    monkeypatch.setattr(reward_tables, "DISTINCT", 400)
    monkeypatch.setattr(rewards, "PROBLEMS", 1)
    monkeypatch.setattr(rewards, "QUICK_SEEDS", 1)
    monkeypatch.setattr(rewards, "QUICK_DIMENSIONS", (4,))


def test_a_chain_with_neighbour_terms_has_its_exact_target():
    chain = reward_chains.chain_problem(3, 0)
    every = torch.tensor(list(itertools.product(range(8), repeat=3)))
    p0 = chain.model.base.law
    log_mass = p0.log_prob(every) + chain.reward(every)
    assert torch.allclose(log_mass.logsumexp(0), chain.target.log_z, atol=1e-12)
    assert torch.allclose(log_mass.log_softmax(0), chain.target.log_prob(every), atol=1e-12)
    assert chain.miss(every, log_mass.softmax(0)) < 1e-12


@pytest.mark.parametrize("name", [*reward_chains.METHODS, reward_chains.ADDITIVE])
def test_every_row_of_a_small_chain(tiny, name):
    found = reward_chains.one_chain(4, 0, name)
    assert found.keys() == KEYS
    assert found["evaluations"] <= 10 * 4 * 60
    assert found["distinct"] <= found["calls"]
    assert (found["log_z_error"] is None) == name.startswith(("best of N", "SVDD"))
    if "twist" in name and "wrong" not in name:
        assert abs(found["log_z_error"]) < 0.3


def table(seed=0):
    """Six sites of four letters: a base that is no product, and a reward far from it."""
    generator = torch.Generator().manual_seed(seed)
    p0 = torch.rand((4,) * 6, generator=generator, dtype=torch.float64) ** 2
    sites = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.arange(4)] * 6)
    values = sites[torch.arange(6), every].sum(-1) + 0.3 * torch.randn(4**6, generator=generator, dtype=torch.float64)
    return reward_tables.RewardTable(p0 / p0.sum(), values)


def test_screening_weighs_right_whatever_the_guess(tiny):
    """The mean of its estimates of Z is Z; more certain than as many base draws."""
    known = table()
    walk, (law, log_z) = site_by_site(known.model()), known.target(1.0)
    ratios, misses, plain = [], [], []
    for seed in range(20):
        reward = known.reward()
        found = screening.screened_importance(walk, reward, 1.0, 4, distinct=400, seed=seed)
        assert found.guessed
        assert reward.distinct <= 400
        ratios.append(math.exp(found.log_z - log_z))
        misses.append(known.miss(law, found.x, found.log_weights.softmax(0)))
        x = screening.within_calls(walk, 400, 4000, seed)
        plain.append(known.miss(law, x, known.values[flat_index(x, 4)].softmax(0)))
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)
    assert np.mean(misses) < 0.7 * np.mean(plain)


def test_a_pilot_that_is_good_is_not_bettered(tiny):
    known = table()
    found = screening.screened_importance(site_by_site(known.model()), known.reward(), 0.1, 4, distinct=400, seed=0)
    assert not found.guessed
    assert abs(found.log_z - known.target(0.1)[1]) < 0.02


def test_states_are_let_through_with_their_chance():
    chance = torch.tensor([0.1, 0.7, 1.0, 0.0, 0.4], dtype=torch.float64)
    seen = torch.stack([screening.let_through(chance, (k + 0.5) / 1000) for k in range(1000)]).double()
    assert torch.allclose(seen.mean(0), chance, atol=2e-3)
    assert seen.sum(1).min() >= 2
    assert seen.sum(1).max() <= 3


@pytest.fixture
def folder(tmp_path):
    """Made-up landscapes in the form of the real ones."""
    (tmp_path / "tfbind8").mkdir()
    (tmp_path / "gb1").mkdir()
    rng, words = np.random.default_rng(0), np.array(list(itertools.product(range(4), repeat=8)))
    scores = rng.normal(size=(8, 4))[np.arange(8), words].sum(-1)
    np.save(tmp_path / "tfbind8" / "a-x.npy", words)
    np.save(tmp_path / "tfbind8" / "a-y.npy", scores)
    letters = reward_tables.AMINO_ACIDS
    variants = {"".join(rng.choice(list(letters), 4)): rng.uniform(0, 8.76) for _ in range(2000)}
    rows = "\n".join(["variant\tfitness", *(f"{name}\t{value}" for name, value in variants.items())])
    (tmp_path / "gb1" / "fitness.tsv.xz").write_bytes(lzma.compress(rows.encode()))
    return tmp_path


def test_landscapes_of_the_same_form(tiny, folder):
    found = reward_tables.one_binding("uniform", 4.0, 0, str(folder / "tfbind8"))
    assert found["screened"]["distinct"] <= 400
    assert found["importance"]["distinct"] == 400
    found = reward_tables.one_fitness(4.0, 0, str(folder / "gb1"), (8,))
    assert found["annealed / 8, recycled"]["log_z_error"] < 0
    assert found["annealed / 8"]["distinct"] == found["annealed / 8, recycled"]["distinct"]


def test_a_fitness_file_that_is_damaged_is_named(folder):
    (folder / "gb1" / "fitness.tsv.xz").write_text("variant\tfitness\nVDGX\t1\n")
    with pytest.raises(tt.InvalidInput, match=r"fitness\.tsv\.xz cannot be read"):
        reward_tables.fitness_table(folder / "gb1")


def test_the_command_and_its_rows(tiny, folder, monkeypatch):
    """The whole experiment in small, in this process: rows with what the issue asks for, and a figure."""
    monkeypatch.setattr(job_runner.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(reward_tables.one_fitness, "__defaults__", ((8, 16),))
    done = CliRunner().invoke(
        app, ["reproduce", "rewards", "--quick", "--json", "--data", str(folder), "--out", str(folder / "out")]
    )
    assert done.exit_code == 0, done.output
    found = json.loads((folder / "out" / "result.json").read_text())
    asked = {"method", "dimension", "alpha", "network_evaluations", "reward_calls", "ratio_to_floor", "log_z_error"}
    assert all(row.keys() >= asked for row in found["rows"])
    assert {row["problem"] for row in found["rows"]} == {"chain", "tfbind8, uniform", "tfbind8, markov1", "gb1"}
    assert (folder / "out" / "figure.png").stat().st_size > 10_000
    without = found | {"rows": [row for row in found["rows"] if row["problem"] == "chain"]}
    assert len(rewards_figure.draw(without).axes) == 1


def test_a_folder_without_landscapes_is_refused(tmp_path):
    with pytest.raises(tt.InvalidInput, match="no folder tfbind8"):
        rewards.jobs(job_runner.Settings(data=str(tmp_path)))


def test_a_new_users_case():
    """DNA of 24 letters, more G and C: ten lines, log Z within a tenth, and a report that trusts it."""
    process, length = tt.Masking(4), 24
    steps = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])
    law = tt.ChainLaw(torch.ones(4), steps, torch.zeros(length, 4))
    model = tt.Model(process, length, tt.ChainScore(process, law))
    reward = tt.Reward(lambda words: [w.count("G") + w.count("C") for w in words], tokenizer="ACGT")
    twist = tt.learn_twist(model, reward, strength=3.0, calls=2_000, draws=100, order=range(length))
    fk = tt.Composed(model, reward=reward, strength=3.0, twist=twist, order=tuple(range(length)))
    result = tt.run(fk, tt.masked_fraction_grid(process.schedule, length), particles=64, populations=16)
    exact = tt.ChainLaw(law.initial, law.transitions, 3.0 * torch.tensor([0.0, 1, 1, 0]).expand(length, 4)).log_z
    assert abs(result.log_z - float(exact)) < 0.1
    assert result.trust().verdict.name.lower() == "trust"

"""The problems of proofs/steer_trust.py: exact answers against all states of short versions, and how it judges."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import truetilt as tt

sys.path.insert(0, str(Path(__file__).parents[1] / "proofs"))

import steer_families as families
import steer_trust as proof

SHORT = {
    "rounding": families.rounding(6),
    "flat needle": families.flat_needle(7, "TGC", 5.0),
    "a needle that overlaps itself": families.flat_needle(7, "TAT", 5.0),
    "forgotten": families.forgotten(7, "ATA", 6.0, 100),
    "runs": families.runs(7, 0.8, 4),
    "sloping needle": families.sloping_needle(6, 1.0, 3.0),
    "plateaus": families.plateaus(8, 2, 3.0),
    "mountains": families.mountains(7, 1.2),
    "forbidden words": families.forbidden_words(7, ("GA", "TT")),
    "each twice": families.each_twice(4, 2, 100),
    "permutation": families.permutation(5),
    "brackets": families.brackets(8),
    "hairpin": families.hairpin(8, 2),
    "must have": families.must_have(7, "GAG"),
    "parity": families.parity(8, 2, 3.0),
    "parity of all": families.parity(7, 1, 3.0),
    "pairs": families.distant_pairs(8, 1.5),
    "noisy": families.noisy(7, 1.5, 0.4),
    "noisy needle": families.noisy_needle(7, "TGC", 5.0),
    "gc": families.gc(7, 3.0, None, False),
    "few gc": families.few_gc(7, -1.5, 2),
    "gc with a floor": families.gc_floor(7),
    "linear": families.linear(5, 6, 1),
    "position weights": families.position_weights(7),
    "sloping motif": families.sloping_motif(7, "TAT", 0.8),
    "neighbours": families.neighbours(7, 0.7),
}


@pytest.mark.parametrize("name", SHORT)
def test_answers_are_those_of_all_states(name):
    problem = SHORT[name]
    law, size = problem.law, len(problem.law.initial)
    found = families.exact(problem)
    nats = families.nats_of(problem)
    every = families.enumerated(law.length, size, law.log_prob, nats, problem.missed)
    assert found.log_z == pytest.approx(every.log_z, abs=1e-10)
    assert torch.allclose(found.marginals, every.marginals, rtol=0, atol=1e-12)
    assert (found.share, found.p0) == pytest.approx((every.share, every.p0), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("name", "log_z"), [("rounding", 0.128), ("forgotten-3", 15.177), ("gc", 56.425)])
def test_the_issue_and_the_readme_have_the_same_answers(name, log_z):
    assert families.family(name).log_z == pytest.approx(log_z, abs=5e-4)
    assert families.family("forgotten-3").missed_share == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("name", [name for name in proof.FAMILIES if name != "rna"])
def test_every_family_names_a_set_that_exists_and_its_reward_is_that_of_the_answer(name):
    family = families.family(name)
    _, reward, strength = family.make()
    x = torch.randint(family.vocabulary, (20, family.length))
    assert family.missed(x).shape == (20,)
    assert family.missed(x).dtype == torch.bool
    assert family.marginals.shape == (family.length, family.vocabulary)
    assert torch.allclose(family.marginals.sum(-1), torch.ones(family.length, dtype=torch.float64))
    assert 0 < family.missed_p0 < 1
    assert 0 < family.missed_share <= 1 + 1e-12
    if not reward.noisy:
        assert torch.allclose(strength * reward(x), family.nats(x))


@pytest.mark.parametrize("name", ["gc-single", "hairpin", "table"])
def test_models_draw_the_law_that_the_answer_is_of(name):
    """The log-probability of a path, site by site, is that of the law."""
    family = families.family(name)
    model, _, _ = family.make()
    x = tt.run(tt.Composed(model, reward=lambda x: torch.zeros(len(x))), particles=30).particles[0]
    log_p = torch.zeros(len(x), dtype=torch.float64)
    for site in range(family.length):
        seen = torch.where(torch.arange(family.length) < site, x, family.vocabulary)
        rows = model.base(seen, 0.5).dense().log_softmax(-1)
        log_p += rows[:, site].gather(-1, x[:, site, None]).squeeze(-1)
    assert torch.allclose(log_p, family.log_p0(x), atol=1e-5)


@pytest.mark.parametrize("seed", [12, 21, 2, 7, 11, 32])
def test_random_problems_that_forbid_have_the_answers_of_all_states(seed, monkeypatch):
    whole, rng = torch.randint, []

    def short(low, high=None, size=None, **options):
        rng.append(None)
        if len(rng) == 1:  # the length
            low, high = 5, 8
        return whole(low, high, size, **options) if high is not None else whole(low, size, **options)

    monkeypatch.setattr(torch, "randint", short)
    family = families.forbidding(seed)
    every = families.enumerated(family.length, family.vocabulary, family.log_p0, family.nats, family.missed)
    assert family.log_z == pytest.approx(every.log_z, abs=1e-10)
    assert torch.allclose(family.marginals, every.marginals, rtol=0, atol=1e-12)
    assert family.missed_p0 == pytest.approx(every.p0, rel=1e-9)
    assert every.share == pytest.approx(1)


def test_rna_is_folded_once(tmp_path):
    pytest.importorskip("RNA", reason="ViennaRNA is not installed")
    found = families.energies(6, tmp_path)
    assert torch.equal(families.energies(6, tmp_path), found)
    assert found.shape == (4**6,)
    assert bool((found >= 0).all())


@pytest.mark.parametrize("name", ["noisy", "noisy-strong", "noisy-needle"])
def test_the_noise_has_the_mean_that_the_answer_is_of(name):
    family = families.family(name)
    _, reward, strength = family.make()
    torch.manual_seed(0)
    x = torch.stack([torch.randint(4, (family.length,)) for _ in range(4)] + [torch.zeros(family.length).long()])
    if name == "noisy-needle":
        x[0, :5] = torch.tensor(families.letters("TGCAT"))
    many = x.repeat_interleave(10_000, 0)
    weights = (strength * reward(many)).reshape(5, -1).exp()
    mean, error = weights.mean(-1), weights.std(-1) / 100
    assert bool(((mean - family.nats(x).exp()).abs() <= 5 * error + 1e-9).all())


def test_a_wrong_answer_would_be_found_out():
    """Wrong variants: the chain read backwards, and marginals of p0 for those of the target."""
    problem = SHORT["forgotten"]
    law = problem.law
    back = tt.ChainLaw(law.initial, law.transitions.T, law.log_factors)
    nats = families.nats_of(problem)
    every = families.enumerated(7, 4, back.log_prob, nats, problem.missed)
    assert abs(families.exact(problem).log_z - every.log_z) > 1e-3
    assert (families.exact(problem).marginals - law.marginals()).abs().max() > 0.01


def test_the_floor_is_the_error_of_independent_draws():
    p, n = 0.3, 7
    by_hand = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) * abs(k / n - p) for k in range(n + 1))
    assert proof.expected_distance(torch.tensor([[p, 1 - p]], dtype=torch.float64), n + 0.4) == pytest.approx(
        by_hand, rel=1e-12
    )
    assert proof.expected_distance(torch.tensor([[0.0, 1.0]]), 10) < 1e-12


def test_a_run_says_how_it_met_the_missed_set_and_whether_its_report_covers_it():
    family = families.family("rounding")
    run = {"answer_share": 0.0, "pooled_share": None, "evidence": {}}
    assert proof.how_met(run, 0) == proof.NEVER
    assert proof.how_met(run, 3) == proof.MET
    assert proof.how_met(run | {"answer_share": 0.02}, 3) == proof.DRAWN
    assert proof.how_met(run | {"answer_share": 0.02, "pooled_share": 0.001}, 3) == proof.MET
    assert proof.covered(family, run) is None
    assert family.missed_reward == pytest.approx(8.0)
    for share, reward, covers in ((1e-4, 7.9, True), (1e-5, 7.9, False), (1e-4, 8.1, False)):
        assert proof.covered(family, {"evidence": {"unmet_share": share, "unmet_reward": reward}}) is covers


def test_the_pool_of_draws_is_read_where_it_is_made(monkeypatch):
    family = families.family("rounding")
    x = torch.tensor([[3, 1, 0, 2, 3, 1, 2, 0, 1, 2], [0] * 10])
    made = SimpleNamespace(x=x, log_w=torch.tensor([0.0, math.log(3.0)], dtype=torch.float64))
    module = SimpleNamespace(pooled=lambda samples: made)
    monkeypatch.setitem(sys.modules, "truetilt.steering.evidence", module)
    with proof.watched_pool() as pool:
        assert proof.pooled_share(family, pool) is None
        assert module.pooled([]) is made
    assert proof.pooled_share(family, pool) == pytest.approx(0.25)


def test_draws_are_those_of_independent_ones_and_few_where_a_mode_is_missed():
    family = families.family("forgotten-3")
    p = family.missed_share
    run = {"squared": family.variance / 50, "answer_share": p + math.sqrt(p * (1 - p) / 20)}
    assert proof.draws_of(family, [run, run]) == pytest.approx((20, 0), abs=1e-6)
    assert proof.draws_of(family, [run | {"answer_share": p}])[0] == pytest.approx(50)
    assert proof.draws_of(family, [run | {"answer_share": 0.0}])[0] == pytest.approx((1 - p) / p)
    assert proof.draws_of(family, [{"exception": "raised"}])[0] == pytest.approx(1)
    assert proof.draws_of(families.family("each-twice"), [{"squared": 0.1, "answer_share": 1.0}])[0] > 1
    assert proof.draws_of(family, []) == (None, 0.0)


def test_answers_of_jobs_are_plain_data():
    assert proof.finite({"a": [math.inf, 1.0], "b": math.nan}) == {"a": [None, 1.0], "b": None}


def test_the_table_of_a_few_jobs_is_whole(capsys):
    run = proof.finite(proof.one("table", 0))
    assert run["exception"] is None
    same = {"squared": run["squared"], "answer_share": run["answer_share"], "kish": 9.0}
    beside = {name: same | {"verdict": "trust", "wrong": True} for name in proof.BESIDE}
    lost = {"exception": "it raised", "seconds": 1.0}
    found = {("steer", "table", 0): run, ("steer", "rounding", 0): lost, ("baseline", "table", 0): beside}
    names = ("table", "rounding")
    rows = proof.by_family(found, names, [0])
    proof.show(rows)
    assert capsys.readouterr().out.count("\n") == 3
    assert rows[0]["draws_ratio"] == pytest.approx(1)
    assert (rows[1]["exceptions"], rows[1]["draws_ratio"]) == (1, None)
    total, more = proof.summary(found, names, [0]), proof.extras(found)
    assert (total["runs"], total["exceptions"], more["plain_trusted_wrong"]) == (2, 1, {"table": 1})
    assert proof.passed(total, rows, more)["no exceptions"] is False
    kept = proof.in_lines(found)
    assert len(kept["runs"]) == 2
    json.dumps([rows, total, more, kept], allow_nan=False)


@pytest.mark.parametrize("name", ["learn_twist", "composed, a Reward"])
def test_a_reward_that_writes_into_a_copy_does_not_matter(name):
    assert proof.written(name, 0)["passed"]


def test_jobs_go_on_where_they_stopped(tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    asked.touch()

    def job(name, seed):
        with asked.open("a") as file:
            file.write(f"{seed}\n")
        if seed == 1:
            raise ValueError("no")
        return {"seed": seed, "exception": None}

    monkeypatch.setitem(proof.KINDS, "steer", job)
    jobs, scratch = [("steer", "rounding", seed) for seed in range(3)], tmp_path / "runs" / "jobs.jsonl"
    first = proof.carried_out(jobs[:2], lambda _: scratch, 2)
    assert first[jobs[1]]["exception"] == "ValueError: no"
    with scratch.open("a") as file:
        file.write('{"job": ["steer", "rounding", 2], "fo')  # cut short
    both = proof.carried_out(jobs, lambda _: scratch, 1)
    assert both == first | {jobs[2]: {"seed": 2, "exception": None}}
    assert sorted(asked.read_text().split()) == ["0", "1", "2"]
    assert proof.carried_out(jobs, lambda _: scratch, 1) == both
    assert json.loads(scratch.read_text().splitlines()[0])["job"][0] == "steer"

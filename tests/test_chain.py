"""The chain oracle against enumeration, against closed forms where enumeration stops, and under the sampler.

False alarms: a test of draws compares at most 100 z-scores and fails by chance with probability 5e-7
(problems.z_limit).
"""

import math
from functools import partial

import pytest
import torch

import truetilt as tt
from problems import TOP, z_limit
from truetilt.exact.chain import Chain, ChainLaw, ChainScore
from truetilt.exact.tables import enumerate_states

BOTH = pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
TIMES = (1.0, 0.6, 0.1, 1e-3)
ALPHAS = (0.0, 0.5, 1.0, 3.0)
LONG = 1024
real = partial(torch.tensor, dtype=torch.float64)
# Zeros in the initial law, in the steps and in the factors: sequences end up impossible for every one of these reasons
HARD = (
    real([0.5, 0.0, 0.5]),
    real([[0.25, 0.5, 0.25], [0.0, 0.375, 0.625], [0.5, 0.5, 0.0]]),
    real([[0.4, 0.1, 0.9], [0.0, 0.7, 0.2], [0.6, 0.3, 0.0]]),
)


def uniforms(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chain(process, vocabulary, length, seed=0, shared=False):
    """Entries uniform on (0, 1)."""
    steps = (vocabulary, vocabulary) if shared else (length - 1, vocabulary, vocabulary)
    sizes = [(vocabulary,), steps, (length, vocabulary)]
    return Chain(process(vocabulary), *(uniforms(*size, seed=3 * seed + k) for k, size in enumerate(sizes)))


def as_table(problem):
    """The same p0 and p(zeta|x), every sequence written out by the definition."""
    size, length = problem.process.vocabulary, problem.length
    p0, likelihood = torch.zeros((size,) * length).double(), torch.zeros((size,) * length).double()
    steps = problem.transitions.expand(length - 1, size, size)
    for x in enumerate_states(size, length).tolist():
        p0[tuple(x)] = problem.initial[x[0]] * math.prod(steps[d, x[d], x[d + 1]] for d in range(length - 1))
        likelihood[tuple(x)] = math.prod(problem.factors[d, x[d]] for d in range(length))
    return tt.Table(problem.process, p0, likelihood)


PROBLEMS = {
    "three sites": lambda process: chain(process, 3, 3),
    "three sites, shared steps": lambda process: chain(process, 3, 3, seed=1, shared=True),
    "one site": lambda process: chain(process, 3, 1, seed=2),
    "one site, shared steps": lambda process: chain(process, 3, 1, seed=3, shared=True),
    "four sites": lambda process: chain(process, 2, 4, seed=4),
    "hard": lambda process: Chain(process(3), *HARD),
}
each_problem = pytest.mark.parametrize("name", PROBLEMS)


@pytest.fixture(params=["tabulated", "messages"])
def way(request, monkeypatch):
    """Masked states are answered from a table of spans, or by messages where it would be too large."""
    if request.param == "messages":
        monkeypatch.setattr("truetilt.exact.chain._LARGEST_TABLE", 0)


def close(mine, theirs):
    """Equal to 1e-10, infinities and all."""
    assert mine.shape == theirs.shape
    assert not mine.isnan().any()
    assert torch.equal(mine == -torch.inf, theirs == -torch.inf)
    finite = theirs > -torch.inf
    assert torch.allclose(mine[finite], theirs[finite], rtol=0, atol=1e-10)


@BOTH
@each_problem
@pytest.mark.usefixtures("way")
def test_scores_are_those_of_the_table(name, process):
    problem = PROBLEMS[name](process)
    table = as_table(problem)
    x, mine, theirs = table.states, problem.model(), table.model()
    pairs = [(mine.base, theirs.base), (mine.conditional, theirs.conditional)]
    pairs += [(problem.true_tempered(alpha), table.true_tempered(alpha)) for alpha in ALPHAS]
    for t in TIMES:
        for ours, reference in pairs:
            logits = ours(x, t)
            close(*(problem.process.rates(score, x, t).dense() for score in (logits, reference(x, t))))
            if process is tt.Masking:  # absolute, and the fallbacks too, at every site
                close(logits.dense(), reference(x, t).dense())


@BOTH
@each_problem
@pytest.mark.usefixtures("way")
def test_potential_is_that_of_the_table(name, process):
    problem = PROBLEMS[name](process)
    table = as_table(problem)
    x = table.states
    for t in TIMES:
        close(problem.model().potential(x, t), table.potential(x, t))
    if process is tt.Masking:  # what is masked says nothing of the tokens, so time does not matter
        assert torch.equal(problem.potential(x, 0.0), problem.potential(x, 1.0))
        x = x[(x != problem.process.mask).all(-1)]
    close(problem.model().potential(x, 0.0), table.potential(x, 0.0))


@each_problem
def test_constants_marginals_and_log_probabilities_are_those_of_the_table(name):
    problem = PROBLEMS[name](tt.Uniform)
    table, length = as_table(problem), problem.length
    close(problem.log_evidence, table.evidence.log())
    for alpha in ALPHAS:
        law, pi = problem.target(alpha), table.target(alpha)
        close(problem.log_z(alpha), table.log_z(alpha))
        close(problem.log_z_tempered(alpha), table.log_z_tempered(alpha))
        close(problem.log_z_tilted(alpha), table.log_z_tilted(alpha))
        close(law.log_z, table.log_z(alpha))
        close(law.log_prob(table.states), pi.reshape(-1).log())
        sites = range(length)
        singles = [pi.sum([k for k in sites if k != d]) if length > 1 else pi for d in sites]
        close(law.marginals(), torch.stack(singles))
        doubles = [pi.sum([k for k in sites if k not in (d, d + 1)]) if length > 2 else pi for d in range(length - 1)]
        close(law.pairwise(), torch.stack(doubles) if doubles else torch.empty(0, 3, 3).double())


def test_alpha_zero_lifts_a_hard_condition():
    problem = Chain(tt.Masking(3), *HARD)
    assert torch.equal(problem.target(0.0).marginals(), problem.p0.marginals())
    assert abs(float(problem.log_z(0.0))) < 1e-14


def test_rows_are_normalised_on_construction():
    problem = Chain(tt.Masking(3), HARD[0] * 7, HARD[1] * real([[2.0], [3.0], [0.1]]), HARD[2])
    ones = torch.ones(3, dtype=torch.float64)
    assert torch.allclose(problem.transitions.sum(-1), ones, atol=1e-15)
    assert torch.allclose(problem.initial, HARD[0])
    close(problem.log_evidence, Chain(tt.Masking(3), *HARD).log_evidence)


@BOTH
def test_impossible_states_fall_back_to_the_base_and_then_to_uniform(process):
    """Token 1 opens no sequence; token 2 does, but not one the condition allows with 0 after it."""
    problem = Chain(process(3), *HARD)
    for t in (0.5,) if process is tt.Masking else (0.5, 0.0):  # a mask at t = 0 has infinite rates
        for score in (problem.model().base, problem.model().conditional, problem.true_tempered(3.0)):
            logits = score(as_table(problem).states, t).dense()
            assert not logits.isnan().any()
            assert (logits.logsumexp(-1) > -torch.inf).all()
    if process is tt.Masking:
        x = torch.tensor([[1, 3, 3], [2, 0, 3]])
        model = problem.model()
        base, conditional = (score(x, 0.5).dense().softmax(-1) for score in (model.base, model.conditional))
        assert torch.allclose(base[0, 1:], torch.full((2, 3), 1 / 3).double())
        assert torch.equal(conditional[0, 1:], base[0, 1:])
        assert torch.allclose(conditional[1, 2], HARD[1][0])
        assert problem.potential(x, 0.5).tolist() == [-torch.inf, -torch.inf]


@BOTH
def test_batches_give_what_their_states_give_alone_to_the_last_bit(process):
    for vocabulary in (3, 5, 9):
        problem = chain(process, vocabulary, 5, seed=5)
        model = problem.model()
        x = (uniforms(2, 3, 11, 5, seed=6) * problem.process.states).long()
        scores = [score(x, 0.4).dense() for score in (model.base, model.conditional, problem.true_tempered(2.0))]
        values, logs = model.potential(x, 0.4), problem.target(2.0).log_prob(x.clamp(max=vocabulary - 1))
        assert scores[0].shape == (2, 3, 11, 5, vocabulary)
        assert values.shape == logs.shape == (2, 3, 11)
        for where in [(0, 0, 0), (1, 2, 10), (0, 1), (1,), (0, slice(1, 3), slice(3, 4))]:
            for score, all_of_it in zip((model.base, model.conditional), scores, strict=False):
                assert torch.equal(score(x[where], 0.4).dense(), all_of_it[where])
            assert torch.equal(model.potential(x[where], 0.4), values[where])
    assert model.base(x[:0], 0.4).dense().shape == (0, 3, 11, 5, vocabulary)


def z_of(mean, exact, n):
    """z of frequencies of n draws; what is impossible must not have happened."""
    possible = exact > 1e-12
    assert (mean[~possible] == 0).all()
    return ((mean - exact) * (n / (exact * (1 - exact))).sqrt())[possible]


@pytest.mark.parametrize("name", ["three sites", "one site", "hard"])
def test_draws_follow_the_law(name):
    problem, n = PROBLEMS[name](tt.Masking), 40_000
    law, exact = problem.target(2.0), as_table(problem).target(2.0).reshape(-1)
    x = law.draw(uniforms(n, problem.length, seed=7))
    place = 3 ** torch.arange(problem.length - 1, -1, -1)
    mean = torch.bincount((x * place).sum(-1), minlength=len(exact)) / n
    assert z_of(mean, exact, n).abs().max() < z_limit(100)


def test_draws_of_a_long_chain_have_its_marginals_and_pairs():
    n = 4000
    law = chain(tt.Masking, 4, 40, seed=8).target(2.0)
    x = law.draw(uniforms(2, n // 2, 40, seed=9)).reshape(n, 40)
    hot = torch.nn.functional.one_hot(x, 4).double()
    for site in (0, 1, 20, 39):
        assert z_of(hot[:, site].mean(0), law.marginals()[site], n).abs().max() < z_limit(100)
    for step in (0, 20, 38):
        pairs = torch.einsum("na,nb->ab", hot[:, step], hot[:, step + 1]) / n
        assert z_of(pairs, law.pairwise()[step], n).abs().max() < z_limit(100)


def test_no_uniform_draws_the_impossible():
    law = Chain(tt.Masking(3), *HARD).given
    corners = enumerate_states(3, 3).double() / 2 * TOP
    assert (law.log_prob(law.draw(corners)) > -torch.inf).all()
    assert (law.log_prob(law.draw(uniforms(5000, 3, seed=1))) > -torch.inf).all()


@BOTH
def test_a_thousand_sites(process):
    problem = chain(process, 7, LONG, seed=10)
    model, law = problem.model(), problem.target(4.0)
    marginals, pairs = law.marginals(), law.pairwise()
    assert law.log_z.isfinite()
    assert (marginals.sum(-1) - 1).abs().max() < 1e-12
    assert (pairs.sum(1) - marginals[1:]).abs().max() < 1e-11
    assert (pairs.sum(2) - marginals[:-1]).abs().max() < 1e-11
    x = law.draw(uniforms(3, LONG, seed=11))
    by_pairs = [(pairs[d, a, b] / marginals[d, a]).log() for d, (a, b) in enumerate(zip(x[0], x[0, 1:], strict=False))]
    assert abs(float(law.log_prob(x[0]) - marginals[0, x[0, 0]].log() - sum(by_pairs))) < 1e-8
    noisy = problem.process.corrupt(x, 0.5, uniforms(3, LONG, seed=12))
    for score in (model.base, model.conditional, problem.true_tempered(4.0)):
        assert score(noisy, 0.5).dense().isfinite().all()
    assert model.potential(noisy, 0.5).isfinite().all()
    log_factors = problem.factors.log()[torch.arange(LONG), x].sum(-1)
    assert torch.allclose(model.potential(x, 0.0), log_factors, rtol=1e-12)
    if process is tt.Masking:
        nothing = torch.full((1, LONG), problem.process.mask)
        assert torch.allclose(model.potential(nothing, 0.7), problem.log_evidence[None], rtol=1e-12)
        posterior = problem.true_tempered(4.0)(nothing, 0.7).dense()[0].softmax(-1)
        assert (posterior - marginals).abs().max() < 1e-12


def test_a_thousand_independent_sites_have_a_closed_form():
    """Steps that forget: the law is a product, and every sum is one site's."""
    p, factors = uniforms(7, seed=13), uniforms(LONG, 7, seed=14)
    problem = Chain(tt.Uniform(7), p, p.expand(7, 7), factors)
    each = p / p.sum() * factors**5
    assert abs(float(problem.log_z(5.0) - each.sum(-1).log().sum())) < 1e-9
    assert (problem.target(5.0).marginals() - each / each.sum(-1, keepdim=True)).abs().max() < 1e-12


def test_a_message_may_span_more_than_float64():
    """A chain that never moves: half the sites favour token 0 by 10^512, half token 1. Scaled messages lose token 1."""
    factors = real([[1.0, 0.1]]).repeat(LONG, 1)
    factors[LONG // 2 :] = factors[LONG // 2 :].flip(-1)
    problem = Chain(tt.Masking(2), real([0.25, 0.75]), torch.eye(2), factors)
    expected = real([0.25, 0.75]).expand(LONG, 2)
    assert (problem.given.marginals() - expected).abs().max() < 1e-9
    assert abs(float(problem.log_evidence) - LONG / 2 * math.log(0.1)) < 1e-9 * LONG
    drawn = problem.given.draw(uniforms(2000, LONG, seed=15))
    assert (drawn == drawn[:, :1]).all()
    assert abs(float(drawn[:, 0].double().mean()) - 0.75) < z_limit(100) * math.sqrt(0.25 * 0.75 / 2000)
    tiny = Chain(tt.Masking(2), torch.ones(2), torch.ones(2, 2), torch.full((3, 2), 1e-200, dtype=torch.float64))
    assert abs(float(tiny.log_z(8.0)) + 8 * 3 * 200 * math.log(10)) < 1e-8  # 1e-200^8 is no float64


@pytest.mark.parametrize(
    ("process", "fk"), [(tt.Masking, tt.Tempered), (tt.Masking, tt.Tilted), (tt.Uniform, tt.Tilted)]
)
def test_smc_on_a_chain_finds_its_target(process, fk):
    problem, alpha = chain(process, 3, 6, seed=16), 2.0
    result = tt.run(fk(problem.model(), alpha), tt.uniform_grid(60), particles=2000, seed=1)
    hot = torch.nn.functional.one_hot(result.particles, 3).double()
    mine = (result.weights[..., None, None] * hot).sum((0, 1))
    assert 0.5 * (mine - problem.target(alpha).marginals()).abs().sum(-1).max() < 0.05
    log_z = problem.log_z_tempered(alpha) if fk is tt.Tempered else problem.log_z_tilted(alpha)
    assert abs(result.log_z - float(log_z)) < 0.1


def test_a_run_on_a_chain_replays_with_any_chunk_size():
    for process in (tt.Masking, tt.Uniform):
        fk = tt.Tilted(chain(process, 5, 6, seed=17).model(), 3.0)
        first, again = (tt.run(fk, tt.uniform_grid(5), particles=37, seed=2, chunk=chunk) for chunk in (None, 5))
        assert torch.equal(first.particles, again.particles)
        assert torch.equal(first.log_weights, again.log_weights)


GOOD = (torch.ones(3), torch.ones(3, 3), torch.ones(4, 3))


@pytest.mark.parametrize(
    ("place", "bad", "words"),
    [
        (0, -GOOD[0], "initial has negative"),
        (0, GOOD[0] * math.nan, "initial has negative, NaN"),
        (0, GOOD[0] * 0, "initial is zero everywhere"),
        (0, torch.ones(4), r"initial has shape \(4,\) and the factors 3 tokens"),
        (1, GOOD[1] * math.inf, "transitions has negative, NaN or infinite"),
        (1, real([[1, 1, 1], [0, 0, 0], [1, 1, 1]]), r"transitions is zero everywhere in row \[1\]"),
        (1, torch.ones(2, 3, 3), r"for 4 sites of 3 tokens give \[3, 3\] for all steps or \[3, 3, 3\]"),
        (1, torch.ones(3, 4), "transitions has shape"),
        (2, -GOOD[2], "factors has negative"),
        (2, real([[1, 1, 1], [0, 0, 0]]), r"factors is zero everywhere in row \[1\]"),
        (2, torch.ones(4, 5), "the process's 3 tokens"),
        (2, torch.ones(3), "one row a site"),
        (2, torch.ones(0, 3), "one row of tokens a site"),
    ],
)
def test_bad_chains(place, bad, words):
    with pytest.raises(tt.InvalidInput, match=words):
        Chain(tt.Masking(3), *(bad if k == place else good for k, good in enumerate(GOOD)))


def test_bad_questions():
    problem = Chain(tt.Masking(3), *GOOD)
    with pytest.raises(tt.InvalidInput, match="the condition is impossible"):
        Chain(tt.Masking(2), torch.ones(2), torch.eye(2), torch.eye(2))
    with pytest.raises(tt.InvalidInput, match="log_factors has NaN"):
        ChainLaw(GOOD[0], GOOD[1], GOOD[2] * math.nan)
    for alpha in (-1.0, math.nan, math.inf):
        with pytest.raises(tt.InvalidInput, match="alpha is"):
            problem.target(alpha)
    for bad in (torch.zeros(2, 5, dtype=torch.int64), torch.full((2, 4), 4), torch.full((2, 4), -1)):
        with pytest.raises(tt.InvalidInput, match=r"give \[\.\.\., 4\] tokens from 0 to 3"):
            problem.model().base(bad, 0.5)
        with pytest.raises(tt.InvalidInput, match=r"give \[\.\.\., 4\] tokens from 0 to 2"):
            problem.p0.log_prob(bad)
    for bad in (torch.zeros(2, 3), torch.ones(2, 4), torch.full((2, 4), math.nan)):
        with pytest.raises(tt.InvalidInput, match=r"numbers in \[0, 1\)"):
            problem.p0.draw(bad)


def test_public_names():
    assert (tt.Chain, tt.ChainLaw, tt.ChainScore) == (Chain, ChainLaw, ChainScore)

"""Bad input fails early, with words that name the fault and the remedy."""

import math
import re

import pytest
import torch

import truetilt as tt
from problems import table
from truetilt.smc.resampling import check_weights

PROBLEM = table(tt.Masking, 3, 2)
MODEL = PROBLEM.model()
GOOD = torch.full((3, 3), 0.5)


@pytest.mark.parametrize("alpha", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("make", [tt.Tempered, tt.Tilted])
def test_alpha_out_of_range(make, alpha):
    with pytest.raises(tt.InvalidInput, match="alpha is"):
        make(MODEL, alpha)


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf, lambda t: -t])
def test_beta_out_of_range(beta):
    with pytest.raises(tt.InvalidInput, match="beta is"):
        tt.Tempered(MODEL, 2.0, beta)
    with pytest.raises(tt.InvalidInput, match="beta is"):
        tt.Guided(PROBLEM.process, MODEL.base, MODEL.conditional, beta)


def test_a_schedule_that_goes_wrong_in_the_middle_names_the_time():
    with pytest.raises(tt.InvalidInput, match=r"beta is .* at t = 0\.5"):
        tt.run(tt.Tempered(MODEL, 2.0, lambda t: -1.0 if t == 0.5 else 1.0), tt.uniform_grid(4), particles=3)


def test_alpha_zero_needs_an_unguided_proposal():
    with pytest.raises(tt.InvalidInput, match="use beta = 0"):
        tt.Tempered(MODEL, 0.0, 1.0)
    tt.Tempered(MODEL, 0.0, 0.0)


@pytest.mark.parametrize("ramp", [lambda u: 0.5, lambda u: math.nan, lambda u: 2 * u])
def test_an_exponent_schedule_must_end_at_one(ramp):
    with pytest.raises(tt.InvalidInput, match="end at 1"):
        tt.Tilted(MODEL, 2.0, ramp)


@pytest.mark.parametrize(
    ("p0", "likelihood", "words"),
    [
        (-GOOD, GOOD, "p0 has negative"),
        (GOOD * math.nan, GOOD, "p0 has negative, NaN"),
        (GOOD, GOOD * math.inf, "the likelihood has negative, NaN or infinite"),
        (GOOD * 0, GOOD, "p0 is zero everywhere"),
        (GOOD, GOOD * 0, "the likelihood is zero everywhere"),
        (torch.diag(torch.ones(3)), 1 - torch.diag(torch.ones(3)), "zero on the whole support"),
        (GOOD, GOOD[:2], "they must agree"),
        (torch.ones(4, 4), torch.ones(4, 4), "3 tokens"),
        (torch.ones(3, 4), torch.ones(3, 4), "3 tokens"),
    ],
)
def test_tables(p0, likelihood, words):
    with pytest.raises(tt.InvalidInput, match=words):
        tt.Table(tt.Masking(3), p0, likelihood)


def test_all_weights_zero_names_the_step():
    fk = tt.Steered(MODEL, lambda x, t: torch.full(x.shape[:-1], -torch.inf), ramp=tt.at_end)
    with pytest.raises(tt.DegenerateWeights, match=r"step 5 .*every particle has weight zero"):
        tt.run(fk, tt.uniform_grid(5), particles=10)


def test_one_dead_population_is_no_error():
    def r(x, t):
        value = torch.zeros(x.shape[:-1], dtype=torch.float64)
        value[:10] = -torch.inf  # of the first population
        return value

    result = tt.run(tt.Steered(MODEL, r, ramp=tt.at_end), tt.uniform_grid(5), particles=10, populations=3)
    assert result.population_log_z[0] == -torch.inf
    assert float(result.weights[0].sum()) == 0
    assert abs(float(result.weights.sum()) - 1) < 1e-12
    assert len(result.draw_independent()) == 2


def test_a_reward_of_nan_is_named_with_its_time():
    fk = tt.Steered(MODEL, lambda x, t: torch.full(x.shape[:-1], math.nan))
    with pytest.raises(tt.InvalidWeights, match=r"returned NaN for 10 of 10 states at t = 0\.8"):
        tt.run(fk, tt.uniform_grid(5), particles=10)


@pytest.mark.parametrize(
    ("ramp", "step"), [(tt.at_end, r"step 5 \(t = 0\.2 -> 0\)"), (tt.Power(0.0), r"step 0 \(t = 1 -> 1\)")]
)
def test_a_reward_of_plus_infinity_is_refused(ramp, step):
    fk = tt.Steered(MODEL, lambda x, t: torch.full(x.shape[:-1], torch.inf), ramp=ramp)
    with pytest.raises(tt.InvalidWeights, match=rf"{step}: 10 of 10 particles have weight \+inf"):
        tt.run(fk, tt.uniform_grid(5), particles=10)


INF = math.inf


@pytest.mark.parametrize(
    ("log_w", "error", "words"),
    [
        ([0.0, math.nan, INF, -INF], tt.InvalidWeights, "here: 2 of 4 particles have weight NaN"),
        ([0.0, INF, INF, INF], tt.InvalidWeights, "here: 3 of 4 particles have weight +inf"),
        ([-INF, -INF], tt.DegenerateWeights, "here: every particle has weight zero"),
    ],
)
def test_bad_weights_are_counted_and_named(log_w, error, words):
    check_weights(torch.tensor([0.0, -INF]), "here")
    with pytest.raises(error, match=re.escape(words)):
        check_weights(torch.tensor(log_w).double(), "here")


def test_a_reward_of_the_wrong_shape():
    fk = tt.Steered(MODEL, lambda x, t: torch.zeros(x.shape))
    with pytest.raises(tt.InvalidInput, match="one number a state"):
        tt.run(fk, tt.uniform_grid(5), particles=10)


@pytest.mark.parametrize("make", [lambda m: tt.Tempered(m, 2.0), lambda m: tt.Tilted(m, 2.0)])
def test_a_score_of_nan_is_named_with_its_step(make):
    def conditional(x, t):
        logits = MODEL.conditional(x, t)
        return logits if t > 0.5 else logits.with_rows(logits.rows * math.nan)

    model = tt.Model(MODEL.process, 2, MODEL.base, conditional, MODEL.potential)
    with pytest.raises(tt.InvalidWeights, match=r"t = 0\.5 -> 0\.25: the conditional score returned NaN"):
        tt.run(make(model), tt.uniform_grid(4), particles=10)


def test_a_score_of_the_wrong_size():
    def with_mask(x, t):
        return tt.SiteLogits.of(torch.zeros(*x.shape, 4))

    with pytest.raises(tt.InvalidInput, match=r"the given score returned 4 values .* 3 tokens"):
        tt.run(tt.Unweighted(MODEL, with_mask), tt.uniform_grid(4), particles=10)


def test_missing_parts_of_a_model():
    bare = tt.Model(MODEL.process, 2, MODEL.base)
    with pytest.raises(tt.InvalidInput, match="needs a conditional score"):
        tt.Tempered(bare, 2.0)
    with pytest.raises(tt.InvalidInput, match="needs a conditional score; give the model one, or a reward"):
        tt.Tilted(bare, 2.0)
    with pytest.raises(tt.InvalidInput, match="a conditional score and a potential"):
        tt.Tilted(tt.Model(MODEL.process, 2, MODEL.base, MODEL.conditional), 2.0)
    with pytest.raises(tt.InvalidInput, match="length"):
        tt.Model(MODEL.process, 0, MODEL.base)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"particles": 0}, "0 particles"),
        ({"populations": 0}, "0 populations"),
        ({"chunk": 0}, "chunk is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"num_inference_steps": 0}, "steps is 0"),
        ({"first_population": -1}, "first_population"),
        ({"kernel": "euler"}, "kernel is 'euler'; give a function .*such as tt.euler"),
    ],
)
def test_run_options(options, words):
    with pytest.raises(tt.InvalidInput, match=words):
        tt.sample(MODEL, 2.0, **options)


def test_grids_must_fall():
    with pytest.raises(tt.InvalidInput, match=r"from 0\.5 to 0\.7 at step 1"):
        tt.run(tt.Tilted(MODEL, 2.0), (1.0, 0.5, 0.7, 0.0), particles=3)


def test_unknown_options_are_not_swallowed():
    with pytest.raises(TypeError, match="partciles"):
        tt.sample(MODEL, 2.0, partciles=3)


def test_what_is_no_model_and_no_score_is_named():
    table = tt.Table(tt.Masking(2), torch.ones(2, 2), torch.ones(2, 2))
    model = table.model()
    for call in (tt.sample, tt.reveal):
        with pytest.raises(tt.InvalidInput, match="model is a Table; wrap it"):
            call(table, 2.0)
    plain = tt.Model(model.process, 2, lambda x, t: torch.zeros(*x.shape, 2), model.conditional)
    with pytest.raises(tt.InvalidInput, match="the base score returned a Tensor"):
        tt.reveal(plain, 2.0)
    with pytest.raises(tt.InvalidInput, match="resample is 'systematic'"):
        tt.sample(model, 2.0, resample="systematic")


@pytest.mark.parametrize(
    "call",
    [
        lambda model: tt.sample(model, 2.0),
        lambda model: tt.sample(model, 2.0, 1.0),
        lambda model: tt.reveal(model, 2.0),
        lambda model: tt.steer(model, alpha=2.0, evaluations=500),
        lambda model: tt.sharpened(model, 2.0),
        lambda model: tt.FirstHitting(model, 2.0),
    ],
)
def test_a_potential_without_a_conditional_names_the_route_of_rewards(call):
    """What the message says gives the same target: p0 p(zeta|x)^alpha."""
    model = tt.Model(MODEL.process, 2, MODEL.base, None, MODEL.potential)
    with pytest.raises(tt.InvalidInput, match=r"take it as a reward, tt.steer\(model, lambda x: model.potential"):
        call(model)
    steered = tt.steer(model, lambda x: model.potential(x, 0.0), strength=2.0, evaluations=4000)
    exact = float((PROBLEM.p0 * PROBLEM.likelihood**2).sum().log())
    assert abs(steered.log_z - exact) < 5 * (steered.log_z_stderr or 0.1)


def test_a_reward_of_fewer_letters_than_the_model_says_so():
    def row(x, t):
        return tt.SiteLogits.of(torch.zeros(*x.shape, 5))

    model = tt.Model(tt.Masking(5), 2, row)
    short = tt.Reward(lambda texts: [0.0] * len(texts), tokenizer="ACGT")
    calls = (
        lambda: tt.steer(model, short),
        lambda: tt.Steered(model, short),
        lambda: tt.Composed(model, reward=short),
        lambda: tt.Steered(model, lambda x: x.sum(-1), twist=short),
        lambda: tt.Lookahead(model, short),
        lambda: tt.learn_twist(model, short),
    )
    for call in calls:
        with pytest.raises(tt.InvalidInput, match="the alphabet of the reward has 4 tokens and the model draws 5"):
            call()
    with pytest.raises(tt.InvalidInput, match=r"alphabet is the tokens 0 to 3.*tokenizer that the states were"):
        short(torch.full((1, 2), 4))
    with pytest.raises(tt.InvalidInput, match="it is masked or noised"):
        short(torch.full((1, 2), 4))
    with pytest.raises(tt.InvalidInput, match="0 to 3: give the reward the tokenizer"):
        short(torch.full((1, 2), 7))


def test_a_model_shows_itself_in_a_line():
    assert (
        repr(MODEL)
        == "<Model: Masking(3), 2 sites; base TableScore, conditional TableScore, potential potential; on cpu>"
    )
    assert "\n" not in repr(tt.AnyOrder(MODEL, 2.0))


def test_a_result_shows_itself_in_a_line():
    table = tt.Table(tt.Masking(2), torch.ones(2, 2), torch.ones(2, 2))
    text = repr(tt.reveal(table.model(), 2.0, particles=8, populations=2))
    assert text.startswith("Result(2 x 8 particles of shape (2,), log Z 0, effective sample size 16 of 16")


def test_posteriors_make_a_score():
    """A network of p(x0|x) through `PosteriorScore` is the exact score; given as it is, it is not."""
    table = tt.Table(tt.Masking(3), torch.rand(3, 3, generator=torch.Generator().manual_seed(1)), torch.ones(3, 3))
    score = table.model().base

    def net(x, t):
        return score(x, 0.5).dense()  # logits up to a constant a site

    x = torch.tensor([[3, 3], [0, 3], [2, 1]])
    made = tt.PosteriorScore(table.process, net)(x, 0.3).dense()
    assert torch.allclose(made[x == 3], score(x, 0.3).dense()[x == 3])
    assert not torch.allclose(net(x, 0.3).log_softmax(-1)[x == 3], score(x, 0.3).dense()[x == 3])


def test_a_network_of_posteriors_is_shown_rows_and_its_answer_is_looked_at():
    shapes = []

    def net(x, t):
        shapes.append(tuple(x.shape))
        return torch.zeros(*x.shape, 3)

    def score(network):
        return tt.PosteriorScore(tt.Masking(3), network)

    made = tt.Model(tt.Masking(3), 4, score(net), score(net))
    tt.sample(made, 1.0, particles=5, populations=2, num_inference_steps=3)
    assert set(shapes) == {(10, 4)}
    for wrong in (lambda x, t: torch.zeros(len(x), 3), lambda x, t: torch.zeros(4, len(x), 3)):
        with pytest.raises(tt.InvalidInput, match=r"must be \[B, D, S\]"):
            score(wrong)(torch.full((2, 5, 4), 3), 0.5)


@pytest.mark.parametrize("path", ["a" * 300, "a/" * 3000, "a/" + "b" * 5000 + "/c", "a/\ud800"])
def test_a_path_that_no_file_can_have_is_named(path, tmp_path, monkeypatch):
    """Wherever a file or a folder is named; a lone surrogate was an error of Unicode, a long name one of the system."""
    monkeypatch.chdir(tmp_path)
    model = table(tt.Masking, 2, 2).model()
    result = tt.sample(model, 1.0, particles=4, num_inference_steps=2)
    reward = tt.Reward(lambda x: x.sum(-1))
    calls = [
        lambda: tt.load(path),
        lambda: tt.from_pretrained(path),
        lambda: tt.Result.load(path),
        lambda: result.save(path),
        lambda: result.report(path),
        lambda: tt.Reward(lambda x: x.sum(-1), cache_file=path),
        lambda: reward.save(path),
        lambda: reward.load_cache(path),
        lambda: tt.steer(model, reward, evaluations=200, checkpoint=path),
        lambda: tt.run(tt.Tilted(model, 1.0), tt.uniform_grid(2), checkpoint=path),
        lambda: tt.load_tokenizer(path),
    ]
    for call in calls:
        with pytest.raises(tt.InvalidInput) as caught:
            call()
        assert len(str(caught.value).encode()) < 400
    assert list(tmp_path.iterdir()) == []

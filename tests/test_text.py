"""Text scores: a lazy head changes no draw and runs only where it is read; given tokens are given."""

import weakref
from types import SimpleNamespace

import pytest
import torch

import truetilt as tt
from problems import table
from test_transformer import TINY, inputs, stirred
from truetilt.core.evaluation import Batch, evaluate_all, needs_of
from truetilt.core.logits import LazyRows, SiteLogits, batch_of
from truetilt.models.conditions import per_condition
from truetilt.models.deduplication import process_of
from truetilt.models.end_tokens import Ended
from truetilt.models.infilling import Retimed
from truetilt.models.net_facts import NetFacts, facts_of
from truetilt.models.net_score import DeftScore, NetScore, Once
from truetilt.models.transformer import SEDDConfig

MASKING = tt.Masking(3)
P0 = torch.tensor(
    [[[3.0, 1, 2], [1, 2, 1], [1, 1, 4]], [[1, 2, 1], [2, 2, 0], [1, 3, 1]], [[1, 1, 1], [2, 1, 3], [5, 1, 1]]]
)
LIKELIHOOD = torch.linspace(0.1, 0.9, 27)[torch.randperm(27, generator=torch.Generator().manual_seed(0))].reshape(
    3, 3, 3
)
LABELS = SEDDConfig(11, 9, 24, 2, 3, 10, classes=2)


class Lazy:
    """A Score whose rows are made when they are read, and how many were."""

    def __init__(self, score):
        self.score, self.made, self.process = score, 0, getattr(score, "process", None)

    def __call__(self, x, t):
        answer = self.score(x, t)

        def make(numbers):
            self.made += len(numbers)
            return answer.rows[numbers]

        return SiteLogits(LazyRows(tuple(answer.store.shape), make), answer.index)


def dense(score):
    """The same Score with every row made at once."""
    return lambda x, t: SiteLogits.of(score(x, t).dense())


def tables():
    table = tt.Table(MASKING, P0 / P0.sum(), LIKELIHOOD)
    eager = table.model()
    lazy = tt.Model(MASKING, 3, Lazy(eager.base), Lazy(eager.conditional), eager.potential)
    return eager, lazy


SAMPLERS = {
    "posterior-level": lambda m: tt.Tempered(m, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie),
    "rate-level": lambda m: tt.Tempered(m, 2.0, 0.5, kernel=tt.tweedie),
    "conditional": lambda m: tt.Tempered(m, 3.0, kernel=tt.tweedie),
    "euler": lambda m: tt.Tempered(m, 2.0, 1.5),
    "tilted": lambda m: tt.Tilted(m, 2.0, kernel=tt.tweedie),
    "guidance": lambda m: tt.Unweighted(
        m, tt.Guided(MASKING, m.base, m.conditional, 2.0, tt.posterior_level), kernel=tt.tweedie
    ),
    "any-order": lambda m: tt.AnyOrder(m, 2.0),
    "any-order, guided": lambda m: tt.AnyOrder(m, 2.0, 1.5),
    "any-order, adapted sites": lambda m: tt.AnyOrder(m, 2.0, choose=tt.adapted_sites),
}


def grid_for(value, steps=7):
    clock = not isinstance(value, tt.AnyOrder)
    return tt.uniform_grid(steps) if clock else tt.masked_fraction_grid(MASKING.schedule, value.model.length)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("chunk", [None, 5])
def test_lazy_rows_change_no_bit(name, chunk):
    results = []
    for model in tables():
        value = SAMPLERS[name](model)
        results.append(tt.run(value, grid_for(value), particles=16, populations=3, seed=4, chunk=chunk))
    eager, lazy = results
    assert torch.equal(eager.particles, lazy.particles)
    assert torch.equal(eager.log_weights, lazy.log_weights)
    assert eager.log_z == lazy.log_z


@pytest.mark.parametrize("name", ["posterior-level", "rate-level", "conditional", "any-order", "any-order, guided"])
def test_each_site_is_read_once_in_its_life(name):
    _, model = tables()
    value = SAMPLERS[name](model)
    tt.run(value, grid_for(value), particles=16, populations=3, resample=tt.never)
    assert (model.base.made, model.conditional.made) == (16 * 3 * 3, 16 * 3 * 3)


def test_reading_everything_is_noticed():
    """The count can fail: a rate that hangs on the logits reads every row."""
    _, model = tables()
    tt.run(tt.Tempered(model, 2.0, 1.5), tt.uniform_grid(7), particles=16, populations=3, resample=tt.never)
    assert model.base.made > 16 * 3 * 3


def test_sample_takes_the_steps_that_read_least():
    """For masking the law of each site itself, unless another kernel is asked for; else Euler's."""
    options = {"particles": 16, "populations": 3, "seed": 4, "resample": tt.never}
    _, model = tables()
    found = tt.sample(model, 2.0, 1.5, num_inference_steps=7, **options)
    assert (model.base.made, model.conditional.made) == (16 * 3 * 3, 16 * 3 * 3)
    same = tt.run(tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie), tt.uniform_grid(7), **options)
    assert torch.equal(found.log_weights, same.log_weights)
    assert found.settings["model"]["guide"] == "posterior_level"
    _, model = tables()
    tt.sample(model, 2.0, 1.5, num_inference_steps=7, kernel=tt.euler, **options)
    assert model.base.made > 16 * 3 * 3
    mixing = table(tt.Uniform, 3, 2).model()
    found = tt.sample(mixing, 1.5, num_inference_steps=7, **options)
    same = tt.run(tt.Tilted(mixing, 1.5, kernel=tt.euler), tt.uniform_grid(7), **options)
    assert torch.equal(found.log_weights, same.log_weights)


def test_a_lazy_score_is_asked_about_what_reveals_to_the_same_bits():
    net = stirred(SEDDConfig(11, 8, 32, 2, 2, 16, classes=2))
    plain, asked = tt.Text(net, tt.Masking(11)).model(1), []
    spared = tt.Model(
        plain.process, plain.length, *(tt.LazyScore(s, (), asked.append) for s in (plain.base, plain.conditional))
    )
    first, second = (tt.sample(m, 2.0, 1.5, particles=6, num_inference_steps=40, seed=1) for m in (plain, spared))
    assert torch.equal(first.particles, second.particles)
    assert torch.equal(first.log_weights, second.log_weights)
    assert sum(asked) <= 2 * 6 * plain.length < 2 * 6 * 40


def test_lazy_laws_are_worked_out_once_and_let_go():
    made = []

    def make(numbers):
        made.append(len(numbers))
        return torch.arange(12.0).reshape(4, 3)[numbers]

    lazy = SiteLogits(LazyRows((4, 3), make), torch.tensor([[3, 0], [1, 1]]))
    one, numbers = lazy.normalised(), torch.tensor([2, 0])
    assert one.store is lazy.normalised().store
    assert torch.equal(one.store[numbers], torch.arange(12.0).reshape(4, 3)[numbers].log_softmax(-1))
    assert lazy.normalised().store[numbers] is one.store[numbers]
    assert made == [2]
    kept = weakref.ref(one.store)
    del one
    assert kept() is None  # at once, and not when cycles are looked for: rows are large


@pytest.mark.parametrize("name", ["posterior-level", "any-order", "euler"])
def test_exact_answers_read_lazy_rows_too(name):
    limits = []
    for model in tables():
        value = SAMPLERS[name](model)
        limits.append(tt.flow(value, grid_for(value), MASKING.states, 3).log_mass)
    assert torch.equal(*limits)


def test_rows_of_two_indices_are_joined_site_by_site():
    a = SiteLogits(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([[3, 0], [1, 1]]))
    b = SiteLogits.of(torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(1)))
    lazy = SiteLogits(LazyRows((4, 5), lambda n: a.rows[n]), a.index)
    for left in (a, lazy):
        both = left.join(b, torch.sub)
        assert torch.equal(both.dense(), a.dense() - b.dense())
        assert torch.equal(both.at(torch.tensor([[1], [0]])).dense(), (a.dense() - b.dense())[[0, 1], [1, 0]][:, None])
        assert torch.equal(both.take(torch.tensor([1, 1])).dense()[0], (a.dense() - b.dense())[1])


def test_parts_are_put_side_by_side_and_stay_lazy():
    """As many prompts as populations: each part is asked about its own, and rows are made where they are read."""
    eager, lazy = tables()
    given = [(0, None, None), (None, 1, None), (None, None, 2)]
    x = torch.full((3, 4, 2), 3)
    x[:, 0, 0], x[1, 2, 1] = 1, 0
    models = [tt.Model(MASKING, 2, tt.Infill(m.base, g)) for m in (eager, lazy) for g in given]
    whole, parts = (per_condition(models[k : k + 3]).base(x, 0.5) for k in (0, 3))
    assert isinstance(parts.store, LazyRows)
    sites = torch.tensor([1, 0]).expand(3, 4, 2)
    assert torch.equal(parts.at(sites).dense(), whole.at(sites).dense())
    assert lazy.base.made == x.numel()
    assert torch.equal(parts.dense(), whole.dense())
    where = (x == 3).nonzero(as_tuple=True)
    shuffled = tuple(axis.flip(0) for axis in where)
    assert torch.equal(parts.among(shuffled).dense(), whole.among(shuffled).dense())


def test_a_lazy_row_of_nan_is_caught_when_it_is_drawn_from():
    eager, _ = tables()
    broken = Lazy(lambda x, t: SiteLogits.of(torch.full((*x.shape, 3), torch.nan)))
    value = tt.Unweighted(eager, broken, kernel=tt.tweedie)
    with pytest.raises(tt.InvalidWeights, match="NaN or only -inf"):
        tt.run(value, tt.uniform_grid(3), particles=4)


class Counted:
    """A net's head that remembers how many rows it was given."""

    def __init__(self, net):
        self.rows, self.head = 0, net.head
        net.head = self

    def __call__(self, hidden, sigma):
        self.rows += len(hidden)
        return self.head(hidden, sigma)


def text_model(dtype=None, batch=7):
    text = tt.Text(stirred(LABELS), tt.Masking(11), batch, dtype)
    return text.model(1)


@pytest.mark.parametrize("make", [
    lambda m: tt.Tempered(m, 1.5, 1.5, tt.posterior_level, kernel=tt.tweedie),
    lambda m: tt.AnyOrder(m, 1.5),
], ids=["clock", "any-order"])  # fmt: skip
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_net_with_a_lazy_head_draws_as_with_a_dense_one(make, dtype):
    model = text_model(dtype)
    full = tt.Model(model.process, model.length, dense(model.base), dense(model.conditional))
    grid = tt.masked_fraction_grid(model.process.schedule, 9)
    lazy, eager = (tt.run(make(m), grid, particles=8, populations=2, seed=1) for m in (model, full))
    assert torch.equal(lazy.particles, eager.particles)
    torch.testing.assert_close(lazy.log_weights, eager.log_weights, atol=1e-5, rtol=1e-5)
    assert (lazy.particles < 11).all()


@pytest.mark.parametrize("clock", [True, False])
def test_the_head_runs_at_revealed_sites_alone(clock):
    """64 rows a block: with as many particles as that, no block of the any-order clock is padded."""
    model = text_model(batch=64)
    value = tt.Tempered(model, 1.5, 1.5, tt.posterior_level, kernel=tt.tweedie) if clock else tt.AnyOrder(model, 1.5)
    head = Counted(model.base.net)
    tt.run(value, tt.masked_fraction_grid(model.process.schedule, 9), particles=64, resample=tt.never)
    revealed, nets = 64 * 9, 2
    assert revealed * nets <= head.rows <= revealed * nets + (2 * 9 * 63 if clock else 0)
    assert head.rows < nets * sum(64 * masked for masked in range(1, 10)) / 2  # what a dense head is asked


@pytest.mark.parametrize("count", [1, 6, 7, 15])
def test_how_many_others_come_after_changes_no_bit(count):
    score = text_model().base
    x = torch.full((20, 9), 11)
    x[:, 4:] = inputs(LABELS, 20)[0][:, 4:]
    assert torch.equal(score(x, 0.5).dense()[:count], score(x[:count], 0.5).dense())


@torch.no_grad()
@pytest.mark.parametrize("config", [TINY, SEDDConfig(11, 9, 24, 2, 3, 10, masked=False, scale_by_sigma=False)])
def test_the_score_is_the_nets_at_the_noise_of_that_time(config):
    process = (tt.Masking if config.masked else tt.Uniform)(11)
    net, (x, _) = stirred(config), inputs(config)
    got = tt.TextScore(net, process)(x, 0.3).dense()
    sigma = process.schedule(0.3).value.float().expand(4)
    expected = net(x, sigma)[..., :11]
    read = x == 11 if config.masked else torch.ones_like(x, dtype=torch.bool)
    torch.testing.assert_close(got[read], expected[read], atol=1e-5, rtol=1e-5)


def test_populations_of_many_labels_share_a_batch():
    text = tt.Text(stirred(LABELS), tt.Masking(11))
    both = per_condition([text.model(0), text.model(1)])
    x = torch.full((2, 3, 9), 11)
    x[..., :3] = 5
    got = both.conditional(x, 0.6).dense()
    for label in (0, 1):
        torch.testing.assert_close(got[label], text.score(label)(x[label], 0.6).dense())


def test_a_guide_net_is_added_lazily():
    text = tt.Text(stirred(LABELS), tt.Masking(11))
    guide = stirred(SEDDConfig(11, 9, 12, 1, 2, 6, classes=2, scale_by_sigma=False), seed=3)
    score = DeftScore(text.score(), guide, 1)
    x = torch.full((3, 9), 11)
    got = score(x, 0.4)
    assert isinstance(got.store, LazyRows)
    log_g = tt.TextScore(guide, tt.Masking(11), 1).logits(Batch(batch_of(x)), 0.4).dense().reshape(*x.shape, -1)
    torch.testing.assert_close(got.dense(), text.score()(x, 0.4).dense() + log_g)


@pytest.mark.parametrize("site", [0, 1, 2])
def test_infilling_samples_the_model_given_those_tokens(site):
    eager, _ = tables()
    given = [None, None, None]
    given[site] = 2
    base, conditional = (tt.Infill(score, tuple(given)) for score in (eager.base, eager.conditional))
    value = tt.AnyOrder(tt.Model(MASKING, 2, base, conditional), 2.0)
    limit = tt.flow(value, tt.masked_fraction_grid(MASKING.schedule, 2), 4, 2)
    got = limit.law.reshape(4, 4)[:3, :3]
    p, likelihood = ((tensor.double()).select(site, 2) for tensor in (P0, LIKELIHOOD))
    expected = p * likelihood**2
    torch.testing.assert_close(got, expected / expected.sum(), atol=1e-6, rtol=0)
    for other in (0, 1):  # another token given is another law
        wrong = P0.double().select(site, other) * LIKELIHOOD.double().select(site, other) ** 2
        assert (got - wrong / wrong.sum()).abs().max() > 0.01


@torch.no_grad()
def test_a_prompt_stands_around_the_state():
    net, process = stirred(), tt.Masking(11)
    score = tt.prompted(tt.TextScore(net, process), 4, prefix=(3, 7), suffix=(1,))
    x = torch.tensor([[11, 5, 11, 11], [11, 11, 0, 11]])
    whole = torch.tensor([[3, 7, 11, 5, 11, 11, 1], [3, 7, 11, 11, 0, 11, 1]])
    assert torch.equal(score.whole(x), whole)
    expected = net(whole, process.schedule(0.5).value.float().expand(2))[:, 2:6, :11]
    got = score(x, 0.5)
    assert isinstance(got.store, LazyRows)
    torch.testing.assert_close(got.dense()[x == 11], expected[x == 11], atol=1e-5, rtol=1e-5)


def test_a_prompt_makes_a_model_to_sample_from():
    text = tt.Text(stirred(), tt.Masking(11))
    model = text.model([3, 7], length=5)
    assert (model.length, model.conditional.given) == (5, (3, 7, None, None, None, None, None))
    assert text.model([3, 7]).length == 7  # what the context leaves
    result = tt.reveal(model, 1.5, particles=6)
    assert result.particles.shape == (1, 6, 5)
    assert text.model().conditional is None


SCORE = tt.TextScore(stirred(), tt.Masking(11))


def without_sizes():
    """A net with all that a text net does, whose config says its tokens alone."""
    net = stirred()
    net.config = SimpleNamespace(vocabulary=11)
    return net


class Forwarding(torch.nn.Module):
    """A net behind another, which it asks for all that it has not, as a compiled one does."""

    def __init__(self, net):
        super().__init__()
        self.inner = net

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def test_what_a_net_says_of_itself_is_read_through_another_and_may_be_left_out():
    net = stirred(LABELS)
    assert facts_of(net) == facts_of(Forwarding(net)) == NetFacts(11, 9, 2, None)
    assert facts_of(torch.nn.Identity()) == NetFacts()
    assert tt.TextScore(Forwarding(net), tt.Masking(11), 1).needs == tt.TextScore(net, tt.Masking(11)).needs
    with pytest.raises(tt.InvalidInput, match="classes 0 to 1"):
        NetScore(Forwarding(net), tt.Masking(11), 2)


def test_scores_say_their_process_and_their_longest_state():
    """Whatever wraps them: what fills in a text asks for both."""
    text, net = tt.Text(stirred(LABELS), tt.Masking(11)), NetScore(stirred(LABELS), tt.Masking(11))
    guided = DeftScore(net, stirred(LABELS), 1)
    of_two = per_condition([text.model(0), text.model(1)]).conditional
    for score in (text.score(), tt.Distinct(text.score()), net, guided, Once(guided), of_two, Ended(of_two, 3)):
        assert process_of(score) == Retimed(score, 9, 4).process == tt.Masking(11)
        assert needs_of(score).longest == needs_of(Retimed(score, 9, 4)).longest == 9
    assert (process_of(lambda x, t: x), needs_of(lambda x, t: x).longest) == (None, None)


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: tt.prompted(SCORE, 4), "prompt is empty"),
        (lambda: tt.prompted(SCORE, 8, (1, 2)), "10 tokens with its prompt and the net reads 9.*shorten"),
        (lambda: tt.prompted(SCORE, 4, (1, 11)), r"token 11 is not one of the net's 0 to 10 .*tokenizer"),
        (lambda: tt.prompted(SCORE, 4, (1, -1)), "token -1"),
        (lambda: tt.prompted(SCORE, 4, (1, 2.0)), "token 2.0"),
        (lambda: tt.Infill(SCORE, (1, 2)), "none is open"),
        (lambda: tt.Infill(SCORE, ()), "has 0 tokens"),
        (lambda: tt.Infill(SCORE, (1, None))(torch.full((2, 3), 11), 0.5), "states of 3 sites .* 1 open"),
        (lambda: tt.TextScore(stirred(), tt.Masking(12)), "11 tokens and the process 12"),
        (lambda: tt.TextScore(stirred(), tt.Uniform(11)), "a mask and the process is Uniform"),
        (lambda: tt.TextScore(torch.nn.Identity(), tt.Masking(11)), "no trunk.*MaskedLM"),
        (lambda: tt.TextScore(without_sizes(), tt.Masking(11)), "no config.masked and no config.length.*MaskedLM"),
        (lambda: tt.prompted(tt.Distinct(SCORE), 8, (1, 2)), "10 tokens with its prompt and the net reads 9.*shorten"),
        (lambda: tt.TextScore(stirred(), tt.Masking(11), 0), "no classes"),
        (lambda: tt.TextScore(stirred(LABELS), tt.Masking(11), 2), "classes 0 to 1"),
        (lambda: tt.TextScore(stirred(), tt.Masking(11), batch=0), "batch is 0"),
        (lambda: tt.Text(stirred(), tt.Masking(11)).model("good film"), "encode it"),
        (lambda: tt.Text(stirred(), tt.Masking(11)).model([]), "prompt is empty"),
        (lambda: tt.Text(stirred(), tt.Masking(11)).model(list(range(9))), "10 tokens with its prompt"),
        (lambda: tt.Text(stirred(), tt.Masking(11)).model(length=10), "length is 10.*reads 9"),
        (lambda: tt.Text(stirred(), tt.Masking(11)).model(length=0), "length is 0"),
    ],
)  # fmt: skip
def test_bad_input_is_named(build, word):
    with pytest.raises(tt.InvalidInput, match=word):
        build()


def test_gaps_of_two_scores_read_each_its_own_rows():
    """Answers whose index lives no longer than the question: another may take its place in memory, and its id."""

    def shuffled(seed):
        rows = torch.arange(40, dtype=torch.float64).reshape(10, 4) + 100 * seed

        def score(x, t):
            generator = torch.Generator().manual_seed(seed)
            return tt.SiteLogits(rows, torch.randint(0, 10, x.shape, generator=generator))

        return score

    given = (1, None, 2, None)
    sides = {f"number {seed}": tt.Infill(shuffled(seed), given) for seed in range(8)}
    model = tt.Model(tt.Masking(4), 2, sides["number 0"])
    x = torch.full((3, 5, 2), 4)
    together = evaluate_all(model, x, 0.5, **sides)
    for got, score in zip(together, sides.values(), strict=True):
        assert torch.equal(got.dense(), score(x, 0.5).dense())

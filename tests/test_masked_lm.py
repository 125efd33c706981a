"""Foreign networks under one Score interface: MDLM and UDLM denoisers, masked language models of transformers."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import truetilt as tt
from truetilt.core.logits import LazyRows
from truetilt.core.types import NEG_INF
from truetilt.smc.sampler import Source, run_steps

V, L = 13, 6


def seeded(build, seed=0):
    """A net built under a seed, the global generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


class Posterior(nn.Module):
    """A net of posteriors over `rows` tokens that reads the noise, as MDLM's backbone does."""

    def __init__(self, rows, outputs=None):
        super().__init__()
        self.embed, self.mix = nn.Embedding(rows, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, outputs or rows)

    def forward(self, x, sigma):
        h = self.embed(x)
        h = h + self.mix(h.mean(1, keepdim=True)) + sigma[:, None, None]
        return self.out(h.tanh())


def half_masked(mask, tokens=V):
    x = torch.randint(0, tokens, (4, L), generator=torch.Generator().manual_seed(1))
    x[:, ::2] = mask
    return x


@torch.no_grad()
def test_mdlm_gives_its_posterior_and_never_a_mask():
    net, process = seeded(lambda: Posterior(V + 1)), tt.Masking(V)
    score, x = tt.TextScore(tt.Denoiser(net, V, L), process), half_masked(V)
    log_p = process.posterior(score(x, 0.4), x, 0.4).dense()
    assert log_p.shape == (4, L, V)
    sigma = process.schedule(0.4).value.float().expand(4)
    subs = net(x, sigma)
    subs[..., V] = NEG_INF  # the published rule: nothing is restored to a mask
    torch.testing.assert_close(log_p[x == V], subs.log_softmax(-1)[..., :V][x == V], atol=1e-5, rtol=1e-5)


def test_mdlm_carries_revealed_tokens_over():
    score = tt.TextScore(tt.Denoiser(seeded(lambda: Posterior(V + 1)), V, L), tt.Masking(V))
    value = tt.Unweighted(tt.Model(tt.Masking(V), L, score), score, kernel=tt.tweedie)
    seen = [p.x for p, _ in run_steps(value, tt.uniform_grid(8), (1, 9), tt.never, Source(tt.Stream(0)))]
    for before, after in pairwise(seen):
        assert torch.equal(before[before != V], after[before != V])
    assert (seen[-1] != V).all()


@torch.no_grad()
def test_udlm_is_asked_for_uniform_noise():
    net, process = seeded(lambda: Posterior(V)), tt.Uniform(V)
    score, x = tt.TextScore(tt.Denoiser(net, V, L, masked=False), process), half_masked(0)
    sigma = process.schedule(0.4).value.float().expand(4)
    keep = torch.exp(-process.schedule(0.4).value)
    plugged = V * keep * net(x, sigma).double().softmax(-1) + 1 - keep  # the published bound has its prediction so
    expected = (plugged / plugged.gather(-1, x[..., None])).log()
    torch.testing.assert_close(score(x, 0.4).dense().double(), expected, atol=1e-4, rtol=1e-4)
    result = tt.run(tt.Unweighted(tt.Model(process, L, score), score), tt.uniform_grid(5), particles=5)
    assert (result.particles < V).all()


class GivenOthers(nn.Module):
    """The ideal prediction on a table of three sites: log p(x0 = v at a site | the other sites as they are)."""

    def __init__(self, p0, process, t):
        super().__init__()
        stay, switch = process._forward(process.schedule(t).value)
        self.p0, self.chance = p0, switch + (stay - switch) * torch.eye(len(p0), dtype=torch.float64)  # [clean, noised]

    def forward(self, x, sigma):
        a, b, c = (self.chance[:, x[:, d]].T for d in range(3))  # [B, clean]
        pairs = (("j", "k", "i", b, c), ("i", "k", "j", a, c), ("i", "j", "k", a, b))
        laws = [torch.einsum(f"ijk,n{u},n{v}->n{w}", self.p0, one, two) for u, v, w, one, two in pairs]
        return torch.stack(laws, 1).log()


@torch.no_grad()
def test_the_ideal_udlm_has_the_exact_score():
    """What the published bound trains is the law given the other sites; taken for the posterior it is another score."""
    process, t = tt.Uniform(3), 0.6
    p0 = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64).pow(3)
    table = tt.Table(process, p0 / p0.sum(), torch.ones_like(p0))
    net, x = GivenOthers(p0 / p0.sum(), process, t), torch.cartesian_prod(*[torch.arange(3)] * 3)

    def ratios(score):
        values = score.dense().double()
        return values - values.gather(-1, x[..., None])

    exact = ratios(table.model().base(x, t))
    found = ratios(tt.TextScore(tt.Denoiser(net, 3, 3, masked=False), process)(x, t))
    torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-5)
    wrong = ratios(tt.PosteriorScore(process, lambda x, t: net(x, None))(x, t))
    assert (wrong - exact).abs().max() > 0.3


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")


def bert(transformers):
    config = transformers.BertConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=20, max_position_embeddings=L)  # fmt: skip
    return seeded(lambda: transformers.BertForMaskedLM(config))


class Bidirectional(nn.Module):
    """A Llama that sees both ways, which is what LLaDA is."""

    def __init__(self, net):
        super().__init__()
        self.net, self.config = net, net.config

    def forward(self, x):
        return self.net.lm_head(self.hidden(x))

    def hidden(self, x):
        everything = torch.zeros(len(x), 1, x.shape[1], x.shape[1])
        return self.net.model(inputs_embeds=self.net.model.embed_tokens(x), attention_mask=everything).last_hidden_state


def llada(transformers):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=V, intermediate_size=20, max_position_embeddings=L, **sizes)
    return Bidirectional(seeded(lambda: transformers.LlamaForCausalLM(config)))


@torch.no_grad()
@pytest.mark.parametrize("build", [bert, llada])
def test_a_masked_language_model_fills_its_mask(transformers, build):
    net, process, mask = build(transformers), tt.Masking(V), 4
    score = tt.TextScore(tt.MaskedLM(net, mask, never=(0,)), process)
    x = half_masked(V)
    shown = torch.where(x == V, mask, x)
    answer = net(shown)
    logits = getattr(answer, "logits", answer).double()
    logits[..., [0, mask]] = NEG_INF
    log_p = process.posterior(score(x, 0.5), x, 0.5).dense()[x == V]
    torch.testing.assert_close(log_p.double(), logits.log_softmax(-1)[x == V], atol=1e-4, rtol=1e-4)
    assert (logits.log_softmax(-1)[x == V] == NEG_INF).sum() == 2 * (x == V).sum()
    result = tt.reveal(tt.Model(process, L, score, score), 2.0, particles=8)
    assert not ((result.particles == 0) | (result.particles == mask) | (result.particles == V)).any()


def test_llada_sees_both_ways(transformers):
    """The last token changes what is said of the first site: a causal net would not notice."""
    score = tt.TextScore(tt.MaskedLM(llada(transformers), 4), tt.Masking(V))
    x = torch.tensor([[V, 1, 2, 3, 5, 6], [V, 1, 2, 3, 5, 7]])
    one, two = score(x, 0.5).dense()[:, 0].exp()
    assert (one - two).abs().max() > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("shift", [False, True])
def test_dream_speaks_one_site_early_and_parts_are_lazy(transformers, shift):
    net, process = llada(transformers), tt.Masking(V)
    whole = tt.TextScore(tt.MaskedLM(net, 4, shift=shift), process)
    parted = tt.TextScore(tt.MaskedLM(net, 4, shift=shift, parts=(net.hidden, net.net.lm_head)), process)
    x = half_masked(V)
    torch.testing.assert_close(whole(x, 0.5).dense(), parted(x, 0.5).dense(), atol=1e-5, rtol=1e-5)
    assert isinstance(parted(x, 0.5).store, LazyRows)
    logits = net(torch.where(x == V, 4, x))
    logits[..., 4] = NEG_INF
    site = 2
    expected = logits[:, site - 1 if shift else site].log_softmax(-1)
    torch.testing.assert_close(
        process.posterior(whole(x, 0.5), x, 0.5).dense()[:, site], expected, atol=1e-5, rtol=1e-5
    )


def test_a_prompt_and_two_nets_are_one_model(transformers):
    base = tt.TextScore(tt.MaskedLM(bert(transformers), 4), tt.Masking(V))
    model = tt.Model(tt.Masking(V), 4, base, tt.prompted(base, 4, (1, 2)))
    value = tt.Tempered(model, 2.0, 1.5, tt.posterior_level, kernel=tt.tweedie)
    result = tt.run(value, tt.uniform_grid(6), particles=10, populations=2)
    assert result.particles.shape == (2, 10, 4)
    assert result.log_weights.isfinite().all()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_off_while_it_is_asked_and_as_it_was_after(transformers, training):
    net = bert(transformers).train(training)
    head = nn.Sequential(nn.Dropout(0.5), net.cls).train(training)
    wrapped = tt.MaskedLM(net, 4, parts=(lambda x: net.bert(x).last_hidden_state, head))
    score, x = tt.TextScore(wrapped, tt.Masking(V)), half_masked(V)
    assert torch.equal(score(x, 0.5).dense(), score(x, 0.5).dense())
    assert {net.training, net.bert.training, head.training} == {training}


class Flat(nn.Module):
    def forward(self, x, sigma=None):
        return torch.zeros(*x.shape, V - 1)


class Silent(nn.Module):
    def forward(self, x, sigma=None):
        return ("logits", 3)


def test_bad_input_is_named(transformers):
    net = bert(transformers)
    with pytest.raises(tt.InvalidInput, match=r"mask_token is 13 .* 0 to 12: was the tokenizer"):
        tt.MaskedLM(net, V)
    with pytest.raises(tt.InvalidInput, match=r"never is \(20,\)"):
        tt.MaskedLM(net, 4, never=(20,))
    with pytest.raises(tt.InvalidInput, match=r"no config\.vocab_size"):
        tt.MaskedLM(Flat(), 4)
    score = tt.TextScore(tt.MaskedLM(net, 4), tt.Masking(V))
    with pytest.raises(tt.InvalidInput, match="9 tokens for a net that reads 6"):
        score(torch.full((1, 9), V), 0.5)
    with pytest.raises(tt.InvalidInput, match="10 tokens with its prompt and the net reads 6"):
        tt.prompted(score, 8, (1, 2))
    for broken, word in (
        (Flat(), r"returned \(16, 6, 12\).*must return \(16, 6, 13\)"),
        (Silent(), "returned a tuple"),
    ):
        with pytest.raises(tt.InvalidInput, match=word):
            tt.TextScore(tt.Denoiser(broken, V, L), tt.Masking(V))(half_masked(V), 0.5).dense()
    with pytest.raises(tt.InvalidInput, match="no classes"):
        tt.TextScore(tt.MaskedLM(net, 4), tt.Masking(V), 1)


def test_a_net_without_a_config_is_told_how_many_tokens_it_knows():
    class Own(torch.nn.Module):
        def forward(self, x):
            return torch.linspace(-1, 1, 7) * x.float().mean(-1)[:, None, None].expand(*x.shape, 1)

    with pytest.raises(tt.InvalidInput, match="give vocabulary="):
        tt.MaskedLM(Own(), 6)
    net = tt.MaskedLM(Own(), 6, vocabulary=7, length=5)
    score = tt.TextScore(net, tt.Masking(7))
    result = tt.sample(tt.Model(score.process, 5, score, score), 1.0, particles=8, num_inference_steps=4)
    assert bool((result.particles < 6).all())  # its own mask is not drawn
    with pytest.raises(tt.InvalidInput, match="a net that reads 5"):
        score(torch.zeros(1, 6, dtype=torch.int64), 0.5)

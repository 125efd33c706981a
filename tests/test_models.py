"""Nets and their adapters: what a net promises, and that an exact net makes the exact Score and Potential."""

import pytest
import torch
from torch import nn

import truetilt as tt
from problems import clean, flow, table, tv
from truetilt.core.evaluation import Batch
from truetilt.models.classifier import Classifier, ClassifierConfig
from truetilt.models.layers import grey_features
from truetilt.models.net_score import DeftScore, NetPotential, NetScore, class_log_probs, digit_model
from truetilt.models.text_score import Padded
from truetilt.models.unet import UNet, UNetConfig
from truetilt.smc.sampler import Stream

SIZES = {"side": 4, "vocabulary": 4, "classes": 3, "channels": (8, 12), "blocks": 1, "embedding": 8, "condition": 16}
UNET, CLASSIFIER = UNetConfig(**SIZES), ClassifierConfig(**SIZES)


def stirred(net, seed=0):
    """A net none of whose weights is zero, so that every path counts."""
    stream = Stream(seed)
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            u = stream.uniforms(number, 1, 1, parameter.numel()).reshape(parameter.shape)
            parameter.add_(0.3 * (2 * u - 1))
    return net


def tokens(n, states=5, length=16, seed=0):
    return torch.randint(states, (n, length), generator=torch.Generator().manual_seed(seed))


def nets():
    parts = {"unet": UNet(UNET), "deft": UNet(UNET, 1), "potential": Classifier(CLASSIFIER)}
    return {name: stirred(net, seed) for seed, (name, net) in enumerate(parts.items())}


@pytest.mark.parametrize("side", [1, 4, 5, 7])
@pytest.mark.parametrize("channels", [(6,), (8, 12), (8, 8, 16)])
def test_any_grid_goes_in_and_logits_come_out(side, channels):
    config = {**SIZES, "side": side, "channels": channels}
    x, t = tokens(3, length=side**2), torch.tensor([0.1, 0.5, 1.0])
    logits = stirred(UNet(UNetConfig(**config)))(x, t, torch.tensor([0, 2, 3]))
    odds = stirred(Classifier(ClassifierConfig(**config)))(x, t)
    assert logits.shape == (3, side**2, 4)
    assert odds.shape == (3, 3)
    assert logits.dtype == odds.dtype == torch.float32
    assert bool(logits.isfinite().all() and odds.isfinite().all())


def test_the_default_nets_have_the_size_they_were_chosen_for():
    counts = [sum(p.numel() for p in net.parameters()) for net in (UNet(seed=None), Classifier(seed=None))]
    assert 4e6 < counts[0] < 7e6
    assert 0.7e6 < counts[1] < 1.3e6


def test_a_net_is_a_function_of_its_config_and_seed_and_moves_no_global_generator():
    before = torch.random.get_rng_state()
    one, same, other = (UNet(UNET, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["stem.weight"], other["stem.weight"])


def test_a_fresh_net_knows_nothing():
    x, t = tokens(2), torch.ones(2)
    assert not UNet(UNET)(x, t).any()
    assert not Classifier(CLASSIFIER)(x, t).any()


def test_weights_start_at_the_scale_of_their_inputs():
    weight = UNet(UNetConfig()).down[0][0].conv_in.weight
    assert float(weight.detach().var()) * weight[0].numel() == pytest.approx(1.0, rel=0.05)


def test_no_label_is_the_last_label():
    net, x, t = stirred(UNet(UNET)), tokens(3), torch.full((3,), 0.5)
    assert torch.equal(net(x, t), net(x, t, torch.full((3,), 3)))


def test_every_input_counts_at_every_block():
    net, x = stirred(UNet(UNET)), tokens(2)
    label = torch.tensor([0, 1])
    out = net(x, torch.tensor([0.3, 0.3]), label)
    assert not torch.allclose(out, net(x, torch.tensor([0.3, 0.9]), label), atol=1e-3)
    assert not torch.allclose(out, net(x, torch.tensor([0.3, 0.3]), label.flip(0)), atol=1e-3)
    out.sum().backward()
    films = [parameter for name, parameter in net.named_parameters() if "film.weight" in name]
    assert len(films) == 2 * 2 + 2
    assert all(bool(film.grad.any()) for film in films)


def test_the_mask_is_told_apart_and_grey_levels_are_numbers():
    features = grey_features(4, torch.device("cpu"))
    assert features[:, 0].tolist() == pytest.approx([-1, -1 / 3, 1 / 3, 1, 0])
    assert features[:, 1].tolist() == [0, 0, 0, 0, 1]


def test_nothing_flows_between_states_of_a_batch():
    net, x, t = stirred(UNet(UNET)), tokens(4), torch.full((4,), 0.5)
    alone = torch.cat([net(x[i : i + 1], t[:1]) for i in range(4)])
    torch.testing.assert_close(net(x, t), alone)


def test_half_precision_inside_is_float32_outside():
    x, t = tokens(2), torch.full((2,), 0.5)
    for net in (stirred(UNet(UNET)), stirred(Classifier(CLASSIFIER))):
        with torch.autocast("cpu", torch.bfloat16):
            half = net(x, t)
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, net(x, t), atol=0.3, rtol=0.1)


@pytest.mark.parametrize("kind", [UNet, Classifier])
def test_a_net_compiles_as_one_graph(kind):
    net, x, t = stirred(kind(kind.config_type(**SIZES))), tokens(2), torch.full((2,), 0.5)
    torch.testing.assert_close(torch.compile(net, backend="eager", fullgraph=True)(x, t), net(x, t))


def test_convolutions_stay_channels_last():
    assert UNet(UNET).down[0][0].conv_in.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_unet_learns_two_digits_from_their_labels():
    digits = tokens(2, 4)
    net, label = UNet(UNET), torch.arange(64) % 2
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(60):
        x0, t = digits[label], torch.rand(64, generator=generator)
        hidden = torch.rand(x0.shape, generator=generator) < t[:, None]
        logits = net(torch.where(hidden, 4, x0), t, label)
        loss = nn.functional.cross_entropy(logits[hidden], x0[hidden])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(1.386, abs=1e-3)  # log 4: it knows nothing
    assert losses[-1] < 0.1


@pytest.mark.parametrize(
    "change",
    [
        {"side": 0},
        {"vocabulary": 1},
        {"classes": -1},
        {"channels": ()},
        {"channels": (8, 0)},
        {"channels": [8]},
        {"blocks": 1.5},
        {"embedding": True},
        {"attention": 1},
    ],
)
def test_sizes_that_make_no_net_are_refused(change):
    with pytest.raises(tt.InvalidInput, match=next(iter(change))):
        UNetConfig(**{**SIZES, **change})


def test_a_classifier_needs_two_classes_and_a_net_its_grid():
    with pytest.raises(tt.InvalidInput, match="at least two"):
        ClassifierConfig(**{**SIZES, "classes": 1})
    with pytest.raises(tt.InvalidInput, match=r"\[batch, 16\]"):
        UNet(UNET)(tokens(2, length=9), torch.ones(2))


class Exact(nn.Module):
    """The posterior logits of a table, or its class log-odds, spoken as a net speaks."""

    def __init__(self, problem, classify=False):
        super().__init__()
        self.problem, self.classify = problem, classify

    def forward(self, x, t, label=None):
        model, now = self.problem.model(), float(t[0])
        if self.classify:
            log_p = model.potential(x, now)
            return torch.stack([log_p, torch.log1p(-log_p.exp())], -1)
        score = model.base if label is None else model.conditional
        return self.problem.process.posterior(score(x, now), x, now).dense() + 7.0  # up to a constant a site


@pytest.mark.parametrize("process", [tt.Masking, tt.Uniform])
@pytest.mark.parametrize("label", [None, 0])
def test_an_exact_net_makes_the_exact_score(process, label):
    problem = table(process, 3, 2)
    truth = problem.model().base if label is None else problem.model().conditional
    x, t = problem.states, 0.6
    got, want = NetScore(Exact(problem), problem.process, label, 4)(x, t).dense(), truth(x, t).dense()
    if process is tt.Uniform:
        got, want = (s - s.gather(-1, x[..., None]) for s in (got, want))
    else:
        got, want = got[x == 3], want[x == 3]
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


def misses(form, posterior_as_score=False):
    """TV from the exact limit of a sampler run through the adapters to pi_2."""
    problem = table(tt.Masking, 3, 2)
    net = Exact(problem)
    base, conditional = NetScore(net, problem.process), NetScore(net, problem.process, 0)
    if posterior_as_score:
        right = conditional

        def conditional(x, t):
            return right.logits(Batch(x), t)

    model = tt.Model(problem.process, 2, base, conditional, NetPotential(Exact(problem, True), 0))
    fk = tt.Tilted(model, 2.0) if form == "potential" else tt.Tempered(model, 2.0)
    return tv(clean(flow(fk, problem, 30).law, problem), problem.target(2.0))


@pytest.mark.parametrize("form", ["potential", "edges"])
def test_samplers_hit_the_target_through_the_adapters(form):
    assert misses(form) < 0.03


def test_wrong_logits_for_a_score_miss_the_target():
    assert misses("edges", posterior_as_score=True) > 0.1


@pytest.mark.parametrize("process", [tt.Masking(4), tt.Uniform(4)])
def test_a_score_is_the_processes_reading_of_the_net(process):
    net, x = nets()["unet"], tokens(6, process.states)
    got = NetScore(net, process, 1, batch=4)(x.reshape(2, 3, 16), 0.4)
    logits = net(x, torch.full((6,), 0.4), torch.full((6,), 1)).log_softmax(-1)
    want = process.score(tt.SiteLogits.of(logits), x, 0.4).dense()
    read = x == 4 if process.states == 5 else torch.ones_like(x, dtype=torch.bool)
    assert got.index.shape == (2, 3, 16)
    torch.testing.assert_close(got.dense().reshape(6, 16, 4)[read], want[read])
    assert bool(got.rows.isfinite().all())
    assert not got.rows.requires_grad


def test_a_states_answer_does_not_depend_on_its_company():
    parts, x = nets(), torch.where(tokens(11, 2) == 1, 4, tokens(11, 4, seed=1))
    score, potential = NetScore(parts["unet"], tt.Masking(4), 0, 8), NetPotential(parts["potential"], 0, 8)
    for few in (1, 3, 8):
        assert torch.equal(score(x[:few], 0.5).dense(), score(x, 0.5).dense()[:few])
        assert torch.equal(potential(x[:few], 0.5), potential(x, 0.5)[:few])


class CountsItsBatch(nn.Module):
    def forward(self, x, t, label=None):
        return torch.full((len(x), x.shape[-1], 4), float(len(x))).cumsum(-1)


def test_wrong_unpadded_batches_would_show():
    net, x = CountsItsBatch(), torch.full((5, 16), 4)
    padded = NetScore(net, tt.Masking(4), batch=4)
    assert torch.equal(padded(x[:1], 0.5).dense(), padded(x, 0.5).dense()[:1])
    assert not torch.equal(net(x[:1], None), net(x, None)[:1])


def test_asking_leaves_the_net_as_it_was():
    net = nets()["unet"].train()
    NetScore(net, tt.Masking(4))(tokens(2), 0.5)
    assert net.training


def test_a_fully_revealed_state_can_be_asked():
    assert NetScore(nets()["unet"], tt.Masking(4))(tokens(2, 4), 0.5).dense().shape == (2, 16, 4)


@pytest.mark.parametrize("process", [tt.Masking(4), tt.Uniform(4)])
def test_deft_adds_the_guide_to_the_base(process):
    parts, x = nets(), tokens(5, process.states)
    base = NetScore(parts["unet"], process, batch=4)
    log_g = parts["deft"](x, torch.full((5,), 0.5), torch.full((5,), 2))
    read = x == 4 if process.states == 5 else torch.ones_like(x, dtype=torch.bool)
    got = DeftScore(base, parts["deft"], 2)(x, 0.5).dense()
    torch.testing.assert_close(got[read], (base(x, 0.5).dense() + log_g)[read], atol=1e-5, rtol=1e-5)


def test_a_fresh_guide_guides_nowhere():
    base, x = NetScore(nets()["unet"], tt.Masking(4)), tokens(3)
    assert torch.equal(DeftScore(base, UNet(UNET), 0)(x, 0.5).dense(), base(x, 0.5).dense())


def test_a_potential_is_a_bounded_log_probability():
    net, x = nets()["potential"], tokens(6).reshape(2, 3, 16)
    every = torch.stack([NetPotential(net, label, batch=4)(x, 0.5) for label in range(3)], -1)
    assert every.dtype == torch.float64
    assert every.shape == (2, 3, 3)
    assert bool((every <= 0).all())
    torch.testing.assert_close(every.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))


def test_a_clean_state_is_asked_at_time_zero():
    net, x = nets()["potential"], tokens(2, 4)
    now = net(x, torch.zeros(2)).double().log_softmax(-1)
    torch.testing.assert_close(class_log_probs(Padded(net, 4), x), now)
    torch.testing.assert_close(NetPotential(net, 1, 4)(x, 0.0), now[:, 1])
    assert not torch.allclose(NetPotential(net, 1, 4)(x, 0.9), now[:, 1])


def test_autocast_is_an_option_of_the_adapter():
    parts, x = nets(), torch.full((2, 16), 4)
    score = NetScore(parts["unet"], tt.Masking(4), 0, 4, torch.bfloat16)(x, 0.5)
    assert score.rows.dtype == torch.float32
    assert NetPotential(parts["potential"], 0, 4, torch.bfloat16)(x, 0.5).dtype == torch.float64


def test_the_tilted_weight_telescopes_to_the_clean_potential():
    model = digit_model(nets(), 1, batch=8)
    result = tt.run(tt.Tilted(model, 3.0), tt.uniform_grid(6), particles=8, resample=tt.never)
    torch.testing.assert_close(result.log_weights, 2 * model.potential(result.particles, 0.0))
    assert bool((result.particles < 4).all())


@pytest.mark.parametrize("form", ["potential", "deft", "cfg"])
def test_each_form_samples(form):
    model = digit_model(nets(), 1, form, batch=8)
    assert (model.potential is not None) == (form == "potential")
    assert isinstance(model.conditional, DeftScore) == (form == "deft")
    assert bool(tt.sample(model, 2.0, particles=4, num_inference_steps=4).log_weights.isfinite().all())


@pytest.mark.parametrize("label", [-1, 3, 1.0, True, "4", None])
@pytest.mark.parametrize("form", ["potential", "deft", "cfg"])
def test_a_class_the_net_does_not_know_is_refused(label, form):
    with pytest.raises(tt.InvalidInput, match="classes 0 to 2"):
        digit_model(nets(), label, form)


def test_what_does_not_fit_is_refused_where_it_is_built():
    parts = nets()
    with pytest.raises(tt.InvalidInput, match="potential, deft, cfg"):
        digit_model(parts, 0, "edge")
    with pytest.raises(tt.InvalidInput, match="'deft'"):
        digit_model({"unet": parts["unet"]}, 0, "deft")
    with pytest.raises(tt.InvalidInput, match="4 tokens and the process 5"):
        NetScore(parts["unet"], tt.Masking(5))
    with pytest.raises(tt.InvalidInput, match="batch is 0"):
        NetPotential(parts["potential"], 0, 0)

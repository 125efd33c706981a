"""The SEDD transformer against a second implementation, written from the published architecture alone."""

import json
import math

import pytest
import torch

import truetilt as tt
from truetilt.models.transformer import SEDD, SEDDConfig

TINY = SEDDConfig(vocabulary=11, length=9, hidden=24, blocks=3, heads=3, condition=10)


def stirred(config=TINY, seed=0):
    """A net whose every weight is random, so that nothing is hidden behind a zero."""
    net, generator = SEDD(config, seed=None), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            z = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * z if "norm" in name else z / parameter.shape[-1] ** 0.5)
    return net.eval()


def inputs(config=TINY, batch=4, length=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, config.rows, (batch, length or config.length), generator=generator)
    return x, torch.rand(batch, generator=generator) * 3 + 0.01


def by_hand(w, x, sigma, heads, wrong=""):
    """The published forward pass, one sum at a time, in float64; `wrong` breaks one detail of it."""
    w = {name: tensor.double() for name, tensor in w.items()}
    sigma = sigma.double()
    h = torch.einsum("blv,vc->blc", torch.nn.functional.one_hot(x, len(w["vocab_embed.embedding"])).double(),
                     w["vocab_embed.embedding"])  # fmt: skip
    width, (b, length) = h.shape[-1], x.shape
    half = torch.arange(128).double()
    args = sigma[:, None] * torch.exp(-math.log(10000) * half / 128)
    waves = [args.sin(), args.cos()] if wrong == "waves" else [args.cos(), args.sin()]
    silu = lambda z: z / (1 + (-z).exp())  # noqa: E731
    lin = lambda z, name: torch.einsum("...c,dc->...d", z, w[name + ".weight"]) + w.get(name + ".bias", 0)  # noqa: E731
    c = lin(silu(lin(torch.cat(waves, -1), "sigma_map.mlp.0")), "sigma_map.mlp.2")
    c = c if wrong == "condition" else silu(c)

    def norm(z, name):
        mean = z.mean(-1, keepdim=True)
        variance = ((z - mean) ** 2).mean(-1, keepdim=True)
        return (z - mean) / (variance + 1e-5).sqrt() * w[name + ".weight"]

    def gelu(z):
        if wrong == "gelu":
            return z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))
        return 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))

    def rotate(z):  # [b, l, heads, d]
        d = z.shape[-1]
        out = torch.empty_like(z)
        for i in range(d // 2):
            one, two = (2 * i, 2 * i + 1) if wrong == "rotary" else (i, i + d // 2)
            angle = torch.arange(length).double()[None, :, None] / 10000 ** (2 * i / d)
            out[..., one] = z[..., one] * angle.cos() - z[..., two] * angle.sin()
            out[..., two] = z[..., two] * angle.cos() + z[..., one] * angle.sin()
        return out

    for k in range(sum(name.endswith("norm1.weight") for name in w)):
        p = f"blocks.{k}."
        parts = lin(c, p + "adaLN_modulation")[:, None].split(width, -1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = parts
        z = norm(h, p + "norm1") * (1 + scale_a) + shift_a
        qkv = lin(z, p + "attn_qkv").reshape(b, length, 3, heads, width // heads)
        q, key, v = rotate(qkv[:, :, 0]), rotate(qkv[:, :, 1]), qkv[:, :, 2]
        logits = torch.einsum("bihd,bjhd->bhij", q, key) / math.sqrt(width // heads)
        weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
        mixed = torch.einsum("bhij,bjhd->bihd", weights, v).reshape(b, length, width)
        h = h + gate_a * lin(mixed, p + "attn_out")
        z = norm(h, p + "norm2") * (1 + scale_m) + shift_m
        h = h + gate_m * lin(gelu(lin(z, p + "mlp.0")), p + "mlp.2")
    shift, scale = lin(c, "output_layer.adaLN_modulation")[:, None].split(width, -1)
    out = lin(norm(h, "output_layer.norm_final") * (1 + scale) + shift, "output_layer.linear")
    if wrong != "sigma":
        rows = out.shape[-1] if wrong == "rows" else out.shape[-1] - 1
        out = out - (sigma.exp() - 1).log()[:, None, None] - math.log(rows)
    return torch.where(torch.nn.functional.one_hot(x, out.shape[-1]).bool(), 0.0, out)


@torch.no_grad()
def test_the_forward_pass_is_the_published_one():
    net, (x, sigma) = stirred(), inputs()
    expected = by_hand(net.state_dict(), x, sigma, TINY.heads)
    torch.testing.assert_close(net(x, sigma).double(), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.5  # nothing is compared with nothing


@torch.no_grad()
@pytest.mark.parametrize("wrong", ["waves", "condition", "gelu", "rotary", "sigma", "rows"])
def test_every_detail_of_it_is_seen(wrong):
    net, (x, sigma) = stirred(), inputs()
    off = (net(x, sigma).double() - by_hand(net.state_dict(), x, sigma, TINY.heads, wrong)).abs().max()
    assert off > 1e-4


@torch.no_grad()
def test_uniform_noise_has_no_mask_and_no_scaling():
    config = SEDDConfig(11, 9, 24, 2, 3, 10, masked=False, scale_by_sigma=False)
    net, (x, sigma) = stirred(config), inputs(config)
    assert net(x, sigma).shape == (4, 9, 11)
    expected = by_hand(net.state_dict(), x, sigma, 3, wrong="sigma")
    torch.testing.assert_close(net(x, sigma).double(), expected, atol=1e-5, rtol=1e-5)


def test_the_names_and_shapes_are_the_published_ones():
    """sedd-small: its size, and every parameter of its first block."""
    with torch.device("meta"):
        small, medium = SEDD.__new__(SEDD), SEDD.__new__(SEDD)
        for net, config in ((small, SEDDConfig()), (medium, SEDDConfig(hidden=1024, blocks=24, heads=16))):
            torch.nn.Module.__init__(net)
            net._build(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in small.state_dict().items()}
    block = {
        "norm1.weight": (768,),
        "attn_qkv.weight": (2304, 768),
        "attn_out.weight": (768, 768),
        "norm2.weight": (768,),
        "mlp.0.weight": (3072, 768),
        "mlp.0.bias": (3072,),
        "mlp.2.weight": (768, 3072),
        "mlp.2.bias": (768,),
        "adaLN_modulation.weight": (4608, 128),
        "adaLN_modulation.bias": (4608,),
    }
    outside = {
        "vocab_embed.embedding": (50258, 768),
        "sigma_map.mlp.0.weight": (128, 256),
        "sigma_map.mlp.0.bias": (128,),
        "sigma_map.mlp.2.weight": (128, 128),
        "sigma_map.mlp.2.bias": (128,),
        "rotary_emb.inv_freq": (32,),
        "output_layer.norm_final.weight": (768,),
        "output_layer.linear.weight": (50258, 768),
        "output_layer.linear.bias": (50258,),
        "output_layer.adaLN_modulation.weight": (1536, 128),
        "output_layer.adaLN_modulation.bias": (1536,),
    }
    assert shapes == outside | {f"blocks.{k}.{name}": shape for k in range(12) for name, shape in block.items()}
    assert 169e6 < sum(p.numel() for p in small.parameters()) < 171e6  # 170 million, as the model card counts it
    assert 423e6 < sum(p.numel() for p in medium.parameters()) < 425e6


@torch.no_grad()
def test_the_head_at_chosen_sites_is_the_whole_answer_there():
    net, (x, sigma) = stirred(), inputs()
    hidden = net.trunk(x, sigma)
    whole = net.head(hidden, sigma[:, None])
    where = (torch.tensor([0, 2, 2]), torch.tensor([8, 0, 3]))
    torch.testing.assert_close(net.head(hidden[where], sigma[where[0]]), whole[where], atol=1e-6, rtol=1e-6)
    masked = x == TINY.vocabulary
    other = net(x, sigma)
    torch.testing.assert_close(other[masked][:, :-1], whole[masked][:, :-1])
    assert (other.gather(-1, x[..., None]) == 0).all()


@torch.no_grad()
def test_half_precision_rounds_the_factors_and_answers_in_float32():
    net, (x, sigma) = stirred(), inputs()
    whole = net(x, sigma)
    with torch.autocast("cpu", torch.bfloat16):
        cast = net(x, sigma)
    half = stirred().bfloat16()(x, sigma)
    for answer in (cast, half):
        assert answer.dtype == torch.float32
        assert 1e-6 < float((answer - whole).abs().max()) < 0.3
    assert len(half.unique()) > 0.5 * len(whole.unique())  # not rounded to bfloat16 on the way out


def test_it_learns_in_half_precision():
    """The head's wide product has no gradient, so training takes the plain one; every parameter hears of it."""
    net, (x, sigma) = stirred(), inputs()
    with torch.autocast("cpu", torch.bfloat16):
        net(x, sigma).logsumexp(-1).sum().backward()
    half = {name: parameter.grad for name, parameter in net.named_parameters()}
    net = stirred()
    net(x, sigma).logsumexp(-1).sum().backward()
    for name, parameter in net.named_parameters():
        assert half[name].dtype == torch.float32
        assert (half[name] - parameter.grad).norm() < 0.2 * parameter.grad.norm(), name


@torch.no_grad()
def test_labels_are_read_and_none_is_one_of_them():
    config = SEDDConfig(11, 9, 24, 2, 3, 10, classes=2)
    net, (x, sigma) = stirred(config), inputs(config)
    one, two, none = (net(x, sigma, torch.full((4,), label)) for label in (0, 1, 2))
    assert (one - two).abs().max() > 0.01
    assert (one - none).abs().max() > 0.01
    assert torch.equal(net(x, sigma), none)
    with pytest.raises(tt.InvalidInput, match="without classes"):
        stirred()(x, sigma, torch.zeros(4, dtype=torch.int64))


@torch.no_grad()
def test_a_fresh_net_knows_nothing_and_moves_no_generator():
    before = torch.get_rng_state()
    net, (x, sigma) = SEDD(TINY), inputs()
    assert torch.equal(before, torch.get_rng_state())
    scores = net(x, sigma)
    flat = (-sigma.expm1().log() - math.log(TINY.vocabulary))[:, None, None].expand(scores.shape)
    torch.testing.assert_close(scores, flat.scatter(-1, x[..., None], 0.0))
    again, other = SEDD(TINY), SEDD(TINY, seed=1)
    assert torch.equal(net.blocks[1].mlp[0].weight, again.blocks[1].mlp[0].weight)
    assert not torch.equal(net.blocks[1].mlp[0].weight, other.blocks[1].mlp[0].weight)
    spread = net.blocks[0].attn_qkv.weight * TINY.hidden**0.5
    assert -1 <= spread.min() < -0.9 < 0.9 < spread.max() <= 1


def test_it_is_saved_and_comes_back(tmp_path):
    net, (x, sigma) = stirred(), inputs()
    net.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architecture"] == "sedd"
    back = tt.from_pretrained(tmp_path)
    assert isinstance(back, SEDD)
    assert torch.equal(net(x, sigma), back(x, sigma))


@torch.no_grad()
def test_it_compiles_into_one_graph():
    net, (x, sigma) = stirred(), inputs()
    trunk = torch.compile(net.trunk, fullgraph=True, backend="eager")
    torch.testing.assert_close(trunk(x, sigma), net.trunk(x, sigma))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(x, sigma), net(x, sigma))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hidden": 25}, "each head needs"),
        ({"vocabulary": 1}, "vocabulary is 1"),
        ({"classes": -1}, "classes is -1"),
        ({"blocks": 2.0}, "blocks is 2.0"),
        ({"masked": False}, "scale_by_sigma is for masked"),
    ],
)
def test_sizes_that_make_no_net_are_refused(change, word):
    with pytest.raises(tt.InvalidInput, match=word):
        SEDDConfig(**{**TINY.__dict__, **change})


def test_a_text_longer_than_the_context_is_refused():
    net, (x, sigma) = stirred(), inputs(length=10)
    with pytest.raises(tt.InvalidInput, match=r"10 tokens for a net that reads 9.*shorten"):
        net(x, sigma)

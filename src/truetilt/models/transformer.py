"""The SEDD transformer: from noised tokens and their total noise to log-scores, in a trunk and a head.

Parameters have the names and shapes of the published checkpoints (Lou, Meng & Ermon 2024), so these load unchanged. The
trunk reads whole states and ends in features of each site; the head turns features into log p_t(y)/p_t(x) for every
token, and can be run at chosen sites only. There is no dropout: it would draw from the global generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..core.logits import SiteLogits
from ..core.types import Process, Tokens
from ..diffusion.processes import Masking
from ..smc.sampler import DRAW, Stream
from .pretrained import Pretrained, check_whole_sizes
from .text_score import too_long

_WAVES = 128  # frequencies of the noise embedding, each as cosine and sine
_SLOWEST = 10_000.0  # longest period of these, and of the rotary positions
_WIDER = 4  # hidden over outer width of the MLPs


@dataclass(frozen=True)
class SEDDConfig:
    """Sizes of a `SEDD`.

    Args:
        vocabulary: Number of tokens, without the mask; 50,257 by default.
        length: The most sites that it reads; 1024 by default.
        hidden: Width of the network; 768 by default.
        blocks: Number of transformer blocks; 12 by default.
        heads: Number of attention heads; `hidden` is a multiple of twice that; 12 by default.
        condition: Width of the embedding of noise and label; 128 by default.
        classes: Number of labels; 0, the default, is none, as published. Label `classes` itself means "no condition".
        masked: Whether it is for masking, with the mask as token `vocabulary`; True by default.
        scale_by_sigma: Whether scores are scaled by the noise level, for masked networks only; True by default.
        positions: Whether each site has a learned vector besides its rotary angle; False by default: all masked sites
            look alike.
        timeless: Whether the noise level is left out, for masked networks only: the law of a site given the others has
            no time; False by default.
    """

    vocabulary: int = 50257
    length: int = 1024  # the most sites it reads
    hidden: int = 768
    blocks: int = 12
    heads: int = 12
    condition: int = 128  # width of the noise and label embedding
    classes: int = 0  # 0: no labels, as published
    masked: bool = True
    scale_by_sigma: bool = True
    positions: bool = False  # a learned vector per site, besides rotary angles; without, all masked sites look alike
    timeless: bool = False  # without the noise level: for masking, the law of a site given the others has no time

    def __post_init__(self) -> None:
        check_transformer_sizes(self, classes=0)
        for name in ("masked", "scale_by_sigma", "positions", "timeless"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; give true or false")
        if self.scale_by_sigma and not self.masked:
            raise InvalidInput("scale_by_sigma is for masked models; set it to false for uniform noise")
        if self.timeless and not self.masked:
            raise InvalidInput("timeless is for masked models; under uniform noise the law of a site depends on time")

    @property
    def rows(self) -> int:
        """Tokens that are embedded and predicted, the mask included."""
        return self.vocabulary + self.masked


class SEDD(Pretrained[SEDDConfig]):
    """A transformer of the log-scores of every token at every site; a fresh one gives equal scores.

    Args:
        config: Its sizes, a `tt.SEDDConfig`. None (the default): those of `tt.SEDDConfig()`.
        seed: Seed of its first weights, 0 by default; None: all weights are zero, to be loaded.
    """

    architecture: ClassVar[str] = "sedd"
    config_type: ClassVar[Any] = SEDDConfig

    @staticmethod
    def _least_parameters(config: SEDDConfig) -> int:
        tables = 2 * config.rows * config.hidden + config.condition * (config.classes + config.condition)
        return block_parameters(config) + tables + config.length * config.hidden * config.positions

    def _build(self, config: SEDDConfig) -> None:
        self.vocab_embed = TokenTable(config.rows, config.hidden)
        self.sigma_map = NoiseMap(config.condition)
        self.rotary_emb = Rotary(config.hidden // config.heads)
        self.blocks = nn.ModuleList(
            TransformerBlock(config.hidden, config.heads, config.condition) for _ in range(config.blocks)
        )
        self.output_layer = Output(config.hidden, config.rows, config.condition)
        self.label = nn.Embedding(config.classes + 1, config.condition) if config.classes else None
        self.position = nn.Parameter(torch.empty(config.length, config.hidden)) if config.positions else None

    def _start(self, seed: int | None) -> None:
        start_transformer(self.to_empty(device="cpu"), seed, zero=("output_layer.linear.weight",))

    def forward(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """int64 [B, D], total noise [B], int64 [B] to float32 log-scores [B, D, rows], 0 at the token itself."""
        scores = self.head(self.trunk(x, sigma, label), sigma[:, None])
        return scores.scatter(-1, x[..., None], 0.0)

    def trunk(self, x: Tokens, sigma: Tensor, label: Tensor | None = None) -> Tensor:
        """Features of each site [B, D, hidden], which the head reads; label None is "no condition"."""
        if x.shape[-1] > self.config.length:
            raise too_long(x, self.config.length)
        condition = self._condition(sigma, label)
        h, turn = self.vocab_embed(x), self.rotary_emb(x.shape[-1], x.device)
        h = h if self.position is None else h + self.position[: x.shape[-1]]
        for block in self.blocks:
            h = block(h, turn, condition)
        return self.output_layer.features(h, condition)

    def head(self, hidden: Tensor, sigma: Tensor) -> Tensor:
        """float32 log-scores [..., rows] of features [..., hidden] at total noise [...] or [1]; own tokens not yet set
        to 0."""
        linear = self.output_layer.linear
        return wide_product(hidden, linear.weight).add_(linear.bias.float() - self.scaling(sigma)[..., None])

    def scaling(self, sigma: Tensor) -> Tensor:
        """What the head subtracts from every logit at total noise [...], float32."""
        if not self.config.scale_by_sigma:
            return torch.zeros_like(sigma, dtype=torch.float32)
        return sigma.float().expm1().log() + math.log(self.config.rows - 1)

    def log_score(self, process: Process, logits: SiteLogits, x: Tokens, t: float) -> SiteLogits:
        """The head's outputs, which are log-scores already, set to 0 at the token that a site has."""
        if isinstance(process, Masking):
            return logits
        return SiteLogits.of(logits.dense().scatter(-1, x[..., None], 0.0))

    def _condition(self, sigma: Tensor, label: Tensor | None) -> Tensor:
        condition = self.sigma_map(torch.zeros_like(sigma) if self.config.timeless else sigma)
        if self.label is not None:
            none = torch.full(sigma.shape, self.config.classes, device=sigma.device)
            condition = condition + self.label(none if label is None else label)
        elif label is not None:
            raise InvalidInput("this net was built without classes and cannot read a label; leave it out")
        return functional.silu(condition)


def check_transformer_sizes(config: Any, **more: int) -> None:
    """Validate the sizes that every transformer has in its config."""
    check_whole_sizes(config, vocabulary=2, length=1, hidden=2, blocks=1, heads=1, condition=1, **more)
    if config.hidden % (2 * config.heads):
        raise InvalidInput(f"hidden is {config.hidden} for {config.heads} heads; each head needs an even, equal share")


def block_parameters(config: Any) -> int:
    """The number of weights in the blocks of a transformer."""
    return config.blocks * (12 * config.hidden**2 + 6 * config.hidden * config.condition)


class TokenTable(nn.Module):
    """A token embedding."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(rows, width))

    def forward(self, x: Tokens) -> Tensor:
        return functional.embedding(x, self.embedding)


class NoiseMap(nn.Module):
    """Total noise to a vector: cosines and sines, then two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * _WAVES, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, sigma: Tensor) -> Tensor:
        """float [B] to [B, width]."""
        speed = _SLOWEST ** (-torch.arange(_WAVES, device=sigma.device) / _WAVES)
        angle = sigma.float()[:, None] * speed
        return self.mlp(torch.cat([angle.cos(), angle.sin()], -1).to(next(self.mlp.parameters()).dtype))


class Rotary(nn.Module):
    """Rotary embedding of positions. The buffer in checkpoints is recomputed: half precision rounds it."""

    inv_freq: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("inv_freq", torch.empty(width // 2))

    def speeds(self, device: torch.device | str) -> Tensor:
        return _SLOWEST ** (-torch.arange(0, self.width, 2, device=device).float() / self.width)

    def forward(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each position and speed, float32 [length, width / 2]."""
        angle = torch.arange(length, device=device).float()[:, None] * self.speeds(device)
        return angle.cos(), angle.sin()


def turned(q: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair (i, i + width / 2) of [B, D, heads, width] by the angle of its position."""
    (cos, sin), (a, b) = (part.to(q.dtype)[:, None] for part in turn), q.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Norm(nn.Module):
    """Layer norm with a scale and no shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, h: Tensor) -> Tensor:
        return functional.layer_norm(h, self.weight.shape, self.weight)


class TransformerBlock(nn.Module):
    """Attention, then an MLP; noise and label shift, scale and gate both."""

    def __init__(self, width: int, heads: int, condition: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, _WIDER * width), nn.GELU(approximate="tanh"), nn.Linear(_WIDER * width, width)
        )
        self.adaLN_modulation = nn.Linear(condition, 6 * width)

    def forward(self, h: Tensor, turn: tuple[Tensor, Tensor], condition: Tensor) -> Tensor:
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.adaLN_modulation(condition)[:, None].chunk(6, -1)
        h = h + gate * self.attend(self.norm1(h) * (1 + scale) + shift, turn)
        return h + gate_mlp * self.mlp[2](raised(self.norm2(h) * (1 + scale_mlp) + shift_mlp, self.mlp[0]))

    def attend(self, h: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = self.attn_qkv(h).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (turned(q, turn), turned(k, turn), v))  # heads first, as views
        mixed = functional.scaled_dot_product_attention(q, k, v)  # has the memory layout of q, so no copy follows
        return self.attn_out(mixed.transpose(1, 2).flatten(2))


class Output(nn.Module):
    """The last norm, which belongs to the trunk, and the projection to the vocabulary, which is the head."""

    def __init__(self, width: int, rows: int, condition: int) -> None:
        super().__init__()
        self.norm_final, self.linear = Norm(width), nn.Linear(width, rows)
        self.adaLN_modulation = nn.Linear(condition, 2 * width)

    def features(self, h: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(condition)[:, None].chunk(2, -1)
        return self.norm_final(h) * (1 + scale) + shift


def raised(h: Tensor, linear: nn.Module) -> Tensor:
    """gelu(h W' + b), tanh form.

    In bf16 on a GPU it is one fused kernel without a gradient, so the wide activations are written once.
    """
    plain = type(linear) is nn.Linear and not torch.is_grad_enabled()  # LoRA adapters need the module's own forward
    if plain and h.is_cuda and h.dtype == torch.bfloat16 and not torch.is_autocast_enabled("cuda"):
        return _raised(h, linear.weight, linear.bias)
    return functional.gelu(linear(h), approximate="tanh")


@torch.library.custom_op("truetilt::raised", mutates_args=())
def _raised(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(h W' + b) as a custom operator, which torch.compile does not split into separate kernels."""
    return torch._addmm_activation(bias, h.flatten(0, -2), weight.T, use_gelu=True).unflatten(0, h.shape[:-1])


@_raised.register_fake
def _(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return h.new_empty(*h.shape[:-1], len(weight))


def wide_product(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden W' in float32, with factors in autocast's precision: half-precision logits would round every log-weight.

    While gradients are recorded the product is rounded to the factors' precision, because the float32 product has no
    gradient.
    """
    kind = hidden.device.type
    hidden = hidden.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden
    weight, flat = weight.to(hidden.dtype), hidden.flatten(0, -2)
    with torch.autocast(kind, enabled=False):
        if torch.is_grad_enabled():
            out = (flat @ weight.T).float()
        elif hidden.is_cuda and hidden.dtype != torch.float32 and hasattr(torch.ops.aten.mm, "dtype"):
            out = torch.mm(flat, weight.T, out_dtype=torch.float32)
        else:
            out = flat.float() @ weight.float().T
    return out.unflatten(0, hidden.shape[:-1])


@torch.no_grad()
def start_transformer(net: Any, seed: int | None, zero: tuple[str, ...]) -> None:
    """Initial weights: uniform with variance 1 / (3 fan-in), norms 1; biases, modulation and names in `zero` 0.

    Without a seed all weights but the norms are 0.
    """
    net.rotary_emb.inv_freq.copy_(net.rotary_emb.speeds("cpu"))
    for number, (name, parameter) in enumerate(net.named_parameters()):
        if "norm" in name:
            parameter.fill_(1.0)
        elif seed is None or name.endswith("bias") or "adaLN" in name or name.startswith(zero):
            parameter.fill_(0.0)
        else:
            u = Stream(seed).uniforms(number, DRAW, 1, parameter.numel()).reshape(parameter.shape)
            parameter.copy_((2 * u - 1) / math.sqrt(parameter.shape[-1]))

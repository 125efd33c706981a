"""Building blocks of the convolutional networks: embeddings, residual blocks, attention, and initialisation.

Weights are initialised from the counter-based stream, so a network is a function of its config and a seed, and no
global generator is used. Tensors are [B, C, H, W], channels last in memory, the layout that an embedded grid of tokens
has.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..core.types import Tokens
from ..smc.sampler import DRAW, Stream
from .pretrained import Config, Pretrained

_OCTAVES = 4  # waves of the grey value: 1/2, 1, 2 and 4 periods over the vocabulary
_TIME_WAVES = 32
_FASTEST = 1000.0  # radians over the unit of time


class ZeroConv(nn.Conv2d):
    """A convolution initialised to zero, so that its residual block starts as the identity."""


class ZeroLinear(nn.Linear):
    """A linear layer initialised to zero, so that the network's first output is the same for every input."""


class TokenGrid(nn.Module):
    """Tokens to features: a learned vector for each, plus its grey value as numbers and a flag for the mask."""

    def __init__(self, side: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.side, self.vocabulary = side, vocabulary
        self.free = nn.Embedding(vocabulary + 1, width)
        self.grey = nn.Linear(2 + 2 * _OCTAVES, width)

    def forward(self, x: Tokens) -> Tensor:
        """int64 [B, D] to [B, width, side, side]; token `vocabulary` is the mask."""
        if x.shape[1:] != (self.side**2,):
            raise InvalidInput(
                f"tokens of shape {tuple(x.shape)} for a net of {self.side} x {self.side} grids; "
                f"give [batch, {self.side**2}]"
            )
        table = self.free.weight + self.grey(grey_features(self.vocabulary, x.device))
        return functional.embedding(x, table).unflatten(1, (self.side, self.side)).permute(0, 3, 1, 2)


def grey_features(vocabulary: int, device: torch.device) -> Tensor:
    """Fixed features of each token [V + 1, 2 + 2 octaves]: its grey value, sinusoids of it, and a flag for the mask."""
    value = torch.linspace(-1, 1, vocabulary, device=device)
    angle = value[:, None] * (math.pi / 2) * 2.0 ** torch.arange(_OCTAVES, device=device)
    tokens = torch.cat([value[:, None], torch.zeros_like(value)[:, None], angle.sin(), angle.cos()], 1)
    mask = torch.zeros_like(tokens[:1])
    mask[:, 1] = 1.0
    return torch.cat([tokens, mask])


class TimeEmbedding(nn.Module):
    """Time to a vector: sinusoids, then two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * _TIME_WAVES, width), nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        """float [B] to [B, width]."""
        exponent = torch.arange(_TIME_WAVES, device=t.device) / (_TIME_WAVES - 1)
        angle = t.float()[:, None] * _FASTEST**exponent
        return self.second(functional.silu(self.first(torch.cat([angle.sin(), angle.cos()], 1))))


def group_norm(channels: int) -> nn.GroupNorm:
    """At most 16 groups of at least 4 channels: a group of one value would be erased at a 1 x 1 grid."""
    groups = math.gcd(channels, 16)
    while groups > 1 and channels // groups < 4:
        groups //= 2
    return nn.GroupNorm(groups, channels)


class Residual(nn.Module):
    """x + conv(FiLM(conv(x))): the condition scales and shifts the features between the two convolutions."""

    def __init__(self, channels_in: int, channels: int, condition: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = group_norm(channels_in), group_norm(channels)
        self.conv_in = nn.Conv2d(channels_in, channels, 3, padding=1)
        self.conv_out = ZeroConv(channels, channels, 3, padding=1)
        self.film = nn.Linear(condition, 2 * channels)
        self.skip = nn.Conv2d(channels_in, channels, 1) if channels_in != channels else nn.Identity()

    def forward(self, h: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, 1)
        inner = self.conv_in(functional.silu(self.norm_in(h)))
        inner = self.norm_out(inner) * (1 + scale) + shift
        return self.skip(h) + self.conv_out(functional.silu(inner))


class Level(nn.ModuleList):
    """The residual blocks of one resolution on the way down; the output of each is kept for the skip connections."""

    def __init__(self, channels_in: int, channels: int, condition: int, blocks: int) -> None:
        super().__init__(Residual(channels if i else channels_in, channels, condition) for i in range(blocks))

    def forward(self, h: Tensor, condition: Tensor) -> list[Tensor]:
        out = []
        for block in self:
            h = block(h, condition)
            out.append(h)
        return out


class Rise(nn.ModuleList):
    """The residual blocks of one resolution on the way up, each reading a skip connection."""

    def __init__(self, channels_in: int, channels: int, condition: int, blocks: int) -> None:
        sizes = [channels_in, *[channels] * (blocks - 1)]
        super().__init__(Residual(size + channels, channels, condition) for size in sizes)

    def forward(self, h: Tensor, kept: list[Tensor], condition: Tensor) -> Tensor:
        for block, skip in zip(self, reversed(kept), strict=True):
            h = block(torch.cat([h, skip], 1), condition)
        return h


class Attention(nn.Module):
    """Self-attention over the sites of a coarse grid, heads of about 64 channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // 64) if channels % 64 == 0 else 1
        self.norm = group_norm(channels)
        self.read, self.write = nn.Linear(channels, 3 * channels), ZeroLinear(channels, channels)

    def forward(self, h: Tensor) -> Tensor:
        sites = self.norm(h).flatten(2).transpose(1, 2)  # [B, D, C]
        q, k, v = self.read(sites).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return h + self.write(mixed).transpose(1, 2).unflatten(2, h.shape[2:])


def halve(channels: int) -> nn.Conv2d:
    """Half the side, rounded up: 28 -> 14 -> 7 -> 4."""
    return nn.Conv2d(channels, channels, 3, stride=2, padding=1)


class GridNet(Pretrained[Config]):
    """A network over a square grid of tokens, made of convolutions."""

    @staticmethod
    def _least_parameters(config: Any) -> int:
        """The weights of its convolutions and of its tables of tokens and labels."""
        grids = sum(18 * config.blocks * width * width for width in config.channels)
        tables = config.embedding * (config.vocabulary + 1) + config.condition * (config.classes + 1)
        return grids + tables + config.condition**2

    @torch.no_grad()
    def _start(self, seed: int | None) -> None:
        """Weights of variance 1 / fan-in, in channels-last layout, which is three times faster on a CPU."""
        cast("Any", self.to_empty(device="cpu")).to(memory_format=torch.channels_last)
        for parameter in self.parameters():
            parameter.fill_(0.0)
        if seed is not None:
            _draw(self, Stream(seed))


def _draw(net: nn.Module, stream: Stream) -> None:
    """Initial weights from the stream; biases are zero, norm scales one."""
    for number, module in enumerate(net.modules()):
        if isinstance(module, nn.GroupNorm):
            module.weight.fill_(1.0)
        elif isinstance(module, nn.Conv2d | nn.Linear | nn.Embedding) and _reach(module) > 0:
            u = stream.uniforms(number, DRAW, 1, module.weight.numel()).reshape(module.weight.shape)
            module.weight.copy_((2 * u - 1) * _reach(module))


def _reach(module: nn.Conv2d | nn.Linear | nn.Embedding) -> float:
    """Half-width of the uniform distribution that a module's weights are initialised from."""
    if isinstance(module, ZeroConv | ZeroLinear):
        return 0.0
    if isinstance(module, nn.Embedding):
        return 0.5  # comparable to the other features, which are of size one
    return math.sqrt(3 / module.weight[0].numel())


def placed(net: Any, device: torch.device | str) -> Any:
    """The network on the device, in channels-last layout, which is fast for convolutions."""
    return net.to(device=device, memory_format=torch.channels_last)


def compiled(net: nn.Module, wanted: bool, mode: str = "default") -> nn.Module:
    """The network through torch.compile; the weights stay its own."""
    return cast("nn.Module", torch.compile(net, mode=mode)) if wanted else net

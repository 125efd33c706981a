"""One SMC step of a masked language model of LLaDA-8B's size, alpha = 2 by prompt, against the trunk passes in it.

PYTHONPATH=src python benchmarks/llada.py [--full] [--device cuda] [--rounds N] [--out FILE]

A tiny size runs on any CPU; --full is LLaDA-8B's (32 layers, width 4096, 32 heads, MLP 12288, 126,464 tokens) with
random weights in bfloat16, built on the GPU: no figure hangs on what they say. The net is a plain bidirectional
transformer, seen through `tt.from_transformers` as any user's. 16 particles of 512 tokens follow a prompt of 64: base
and condition are 32 rows of one batch. Then 64 particles in chunks. The trunk passes are the net's own layers on as
many rows, without a head.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from machine import named
from text_step import measured
from torch import Tensor, nn
from torch.nn import functional

import truetilt as tt
from truetilt.core.storage import write_json
from truetilt.core.types import Particles
from truetilt.runtime.memory import fitting_chunk, free_bytes
from truetilt.smc.sampler import Begun, Source, run_steps
from truetilt.targets.stage import nothing_known

ALPHA, STEPS = 2.0, 4


@dataclass(frozen=True)
class Size:
    """A net and a run of it."""

    layers: int
    width: int
    heads: int
    inner: int
    tokens: int
    prompt: int
    open: int
    particles: int
    many: int


FULL = Size(32, 4096, 32, 12288, 126_464, 64, 512, 16, 64)
TINY = Size(2, 32, 2, 48, 300, 6, 24, 4, 10)


class Block(nn.Module):
    """Attention both ways with rotary positions, then a gated MLP; both after an RMS norm."""

    def __init__(self, size: Size, **where: Any) -> None:
        super().__init__()
        self.heads = size.heads
        self.before, self.between = (nn.RMSNorm(size.width, **where) for _ in range(2))
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False, **where)
        self.out = nn.Linear(size.width, size.width, bias=False, **where)
        self.gate, self.up = (nn.Linear(size.width, size.inner, bias=False, **where) for _ in range(2))
        self.down = nn.Linear(size.inner, size.width, bias=False, **where)

    def forward(self, h: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = self.qkv(self.before(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(turned(q, turns), turned(k, turns), v)
        h = h + self.out(mixed.transpose(1, 2).flatten(-2))
        x = self.between(h)
        return h + self.down(functional.silu(self.gate(x)) * self.up(x))


def turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions."""
    one, two = x.chunk(2, -1)
    cos, sin = turns
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class LLaDAModelLM(nn.Module):
    """LLaDA's signature and size: token ids in, an output with logits of every token at every site."""

    def __init__(self, size: Size, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        longest, half = size.prompt + size.open, size.width // size.heads // 2
        self.config = SimpleNamespace(
            model_type="llada", vocab_size=size.tokens, d_model=size.width, mlp_hidden_size=size.inner,
            max_sequence_length=longest,
        )  # fmt: skip
        self.wte = nn.Embedding(size.tokens, size.width, **where)
        self.blocks = nn.ModuleList(Block(size, **where) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, **where)
        self.ff_out = nn.Linear(size.width, size.tokens, bias=False, **where)
        speed = 500_000.0 ** -(torch.arange(half, device=device) / half)
        angle = torch.arange(longest, device=device)[:, None] * speed
        self.turns = angle.cos().to(dtype), angle.sin().to(dtype)

    def features(self, ids: Tensor) -> Tensor:
        """What the head is given: the trunk."""
        h = self.wte(ids)
        turns = tuple(turn[: ids.shape[1]] for turn in self.turns)
        for block in self.blocks:
            h = block(h, turns)
        return self.norm(h)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
        return SimpleNamespace(logits=self.ff_out(self.features(input_ids)))


class Numbered:
    """A tokenizer whose tokens are their numbers; the last few are special, and the very last is the mask."""

    def __init__(self, size: int) -> None:
        self.size, self.mask_token_id, self.all_special_ids = size, size - 1, list(range(size - 100, size))

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def get_vocab(self) -> dict[str, int]:
        return {str(k): k for k in range(self.size)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(k) for k in ids]

    def decode(self, ids: list[int], **how: Any) -> str:
        return " ".join(map(str, ids))


@dataclass(frozen=True)
class Bench:
    """A network as a user has it, and what a run of it is made of."""

    net: LLaDAModelLM
    size: Size
    row: int = STEPS  # steps that are made in a row

    @property
    def device(self) -> torch.device:
        return self.net.wte.weight.device

    def bundle(self, batch: int | None = None) -> tt.Sequences:
        return tt.from_transformers(self.net, Numbered(self.size.tokens), batch=batch)

    def model(self, batch: int) -> tt.Model:
        prompt = " ".join(str(7 * k % 90) for k in range(1, self.size.prompt + 1))
        return self.bundle(batch).model(prompt, length=self.size.open)

    def states(self, model: tt.Model, particles: int) -> Tensor:
        """Half the sites of each state masked."""
        generator = torch.Generator().manual_seed(0)
        shape = particles, model.length
        x = torch.randint(0, model.process.vocabulary, shape, generator=generator)
        hidden = torch.rand(shape, generator=generator).argsort(-1) < model.length // 2
        return x.masked_fill(hidden, model.process.vocabulary).to(self.device)

    def steps(self, particles: int, batch: int, chunk: int | None = None) -> Callable[[], Tensor]:
        """Steps of the any-order sampler as a run makes them, one site of each particle a step."""
        model = self.model(batch)
        value, x = tt.AnyOrder(model, ALPHA), self.states(model, particles)[None]
        zeros = torch.zeros(1, particles, dtype=torch.float64, device=self.device)
        begin = Begun(0, Particles(x, zeros, {"log_tilt": zeros} | nothing_known(x, 1)))
        source, resample = Source(tt.Stream(0, device=self.device), chunk=chunk), tt.adaptive(tt.systematic, 0.5)
        grid = tuple(0.5 - k / model.length for k in range(self.row + 1))
        return lambda: [p.x for p, _ in run_steps(value, grid, (1, particles), resample, source, begin=begin)][-1]

    def ids(self, rows: int) -> Tensor:
        shape = rows, self.size.prompt + self.size.open
        return torch.randint(0, self.size.tokens, shape, generator=torch.Generator().manual_seed(1)).to(self.device)

    def trunks(self, particles: int, batch: int) -> Callable[[], None]:
        """The passes that a step cannot do without, of as many steps: rows of base and condition, no head."""
        rows = self.ids(2 * particles)

        def work() -> None:
            for _ in range(self.row):
                for part in rows.split(batch):
                    self.net.features(part)

        return work

    def whole(self, particles: int, batch: int) -> Callable[[], None]:
        """The same with the head at every site, as the released sampler asks the net."""
        rows = self.ids(2 * particles)

        def work() -> None:
            for _ in range(self.row):
                for part in rows.split(batch):
                    self.net(part)

        return work


@torch.no_grad()
def built(size: Size, device: str, dtype: torch.dtype) -> LLaDAModelLM:
    """Random weights of a sensible size, made where they stay."""
    net = LLaDAModelLM(size, device, dtype).eval()
    generator = torch.Generator(device).manual_seed(0)
    for name, weights in net.named_parameters():
        if "norm" not in name and weights.dim() > 1:
            weights.normal_(generator=generator).mul_(weights.shape[-1] ** -0.5)
    return net


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the size of LLaDA-8B, on a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="of the weights; bfloat16 on a GPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    wish = parser.parse_args()
    dtype = getattr(torch, wish.dtype or ("bfloat16" if wish.device.startswith("cuda") else "float32"))
    size = FULL if wish.full else TINY
    net = built(size, wish.device, dtype)
    facts = figures(Bench(net, size), wish.rounds)
    for name, row in facts["rows"].items():
        took = "out of memory" if row.get("out_of_memory") else f"{1e3 * row['seconds']:10.2f} ms"
        peak = "" if row.get("peak_gib") is None else f"  peak {row['peak_gib']:7.2f} GiB"
        print(f"{name:40s}{took:>16s}{peak}")
    for name, ratio in facts["ratios"].items():
        print(f"{name:40s}{ratio:13.3f}")
    if wish.out:
        write_json(wish.out, {"machine": named(wish.device), "full": wish.full, "dtype": str(dtype)} | facts)


def figures(bench: Bench, rounds: int) -> dict[str, Any]:
    """Seconds a step and peak memory of every piece; what a step costs over the trunk passes in it; the plan."""
    size, net = bench.size, bench.net
    few, many = size.particles, size.many
    pieces = {
        "trunk passes": bench.trunks(few, 2 * few),
        "step, one batch": bench.steps(few, 2 * few),
        "step, two batches": bench.steps(few, few),
        "whole net, head at every site": bench.whole(few, few),
    }
    crowd = {
        f"trunk passes, {many} particles": bench.trunks(many, 2 * few),
        f"step, {many} particles in chunks of {few}": bench.steps(many, 2 * few, few),
    }
    rows = measured(pieces, bench, rounds) | measured(crowd, Bench(net, size, 1), max(1, rounds // 2))
    took = {name: row["seconds"] for name, row in rows.items()}
    trunks, ours, two, whole, others, crowded = (took[name] for name in rows)
    bundle = bench.bundle()
    value = tt.AnyOrder(bench.model(2 * few), ALPHA)
    plan = {
        "weights_gib": sum(p.numel() * p.element_size() for p in net.parameters()) / 2**30,
        "parameters": sum(p.numel() for p in net.parameters()),
        "free_gib": free_bytes(bench.device) / 2**30,
        "batch chosen": bundle.batch,
        "chunk chosen for 1,000 particles": fitting_chunk(value, (1, 1000), bench.device),
        "head": type(bundle.public.head.module).__name__ if bundle.public.head else None,
    }
    ratios = {"step over trunk passes": ours / trunks, "step, two batches, over trunk passes": two / trunks}
    ratios[f"step of {many} over trunk passes"] = crowded / others
    if whole is not None:
        ratios["whole net over trunk passes"] = whole / trunks
    return {"size": vars(size), "plan": plan, "rows": rows, "ratios": ratios}


if __name__ == "__main__":
    main()

"""What `fuzz_calls` gives: tiny problems with exact answers, and a pool of junk."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import truetilt as tt
from truetilt import continuous as c


class JunkError(Exception):
    """What a function of the caller's raises itself: it must come through."""


class _Strange:
    """An object that is nothing, and cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def _raises(*_: object) -> None:
    raise JunkError


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_: value


GRID = tt.uniform_grid(3)
_dice = torch.Generator().manual_seed(0)
P0, LIKELIHOOD = (0.1 + torch.rand(3, 3, generator=_dice, dtype=torch.float64) for _ in range(2))
MASKED, UNIFORM = tt.Table(tt.Masking(3), P0, LIKELIHOOD), tt.Table(tt.Uniform(3), P0, LIKELIHOOD)
MODEL, UMODEL = MASKED.model(), UNIFORM.model()
ANY, TILTED = tt.AnyOrder(MODEL, 2.0), tt.Tilted(MODEL, 2.0)
CHAIN = tt.Chain(tt.Masking(3), P0[0], P0, LIKELIHOOD)
REVEALS = tt.masked_fraction_grid(tt.LogLinear(), 2)
RESULT = tt.run(TILTED, GRID, particles=8, populations=3, snapshots=2)
OTHER = tt.run(TILTED, GRID, particles=8, populations=2, seed=5)
MIXTURE = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
SEEN = c.Observation([0.8], (0,), 1.0)
OBSERVED = c.Observed(c.VP(1.0, 20.0), MIXTURE, SEEN)
REAL = OBSERVED.model()
SEDD = tt.SEDD(tt.SEDDConfig(11, 6, 16, 1, 2, 16, classes=2), seed=0).eval()
TEXT = tt.Text(SEDD, tt.Masking(11), batch=4)
X = torch.tensor([[3, 3], [0, 3], [2, 1]])
LOG_W, U = torch.zeros(2, 4, dtype=torch.float64), torch.full((2, 4), 0.3, dtype=torch.float64)
STREAM = tt.Stream(0)
CANDIDATES = tt.poisson_times(tt.Uniform(3), 30.0, 0)
COMPOSED = tt.Composed(MODEL, reward=MODEL.potential, twist=MODEL.potential)
FIGURES = tt.HeldOut("linear", 0.1, 1.0, (0.1, 0.2), 0.9)
DIGITS, REVIEWS, MOLECULES = tt.load("mnist"), tt.load("tiny-reviews"), tt.load("molecules")
PATH = tt.particle_gibbs(TILTED, GRID, particles=4, chains=2, sweeps=1).last


def ones(x: torch.Tensor) -> torch.Tensor:
    """A reward: how often token 1 occurs."""
    return (x == 1).sum(-1).double()


LEARNED = tt.learn_twist(MODEL, ones, calls=60, draws=30, refits=0)


class Logits(nn.Module):
    """A network of posteriors that knows nothing."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens + 1, tokens)

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        return self.table(x)


LETTERS = tt.from_transformers(Logits(4), "ACGT", mask=3, draw=[0, 1, 2], length=6, vocabulary=4, batch=2)


def _tensors(*sizes: int) -> dict[str, Callable[[], Any]]:
    return {f"ones{size}": lambda size=size: torch.ones((3,) * size) for size in sizes}


JUNK: dict[str, Callable[[], Any]] = {
    **{
        repr(value): lambda value=value: value
        for value in (
            *(0, 1, -1, 2, 3, 64, True, False, None, 0.5, -0.5, 2.0, math.nan, math.inf, -math.inf, 1e308, 1e-308),
            *(1e12, 1e16, "1.2", "nonsense", "left to right"),
            *(10**12, 2**63 - 1, 2**63, -(2**63), 10**400, 1j, "4", "", "x", "cuda", "auto", "nowhere/at/all", b"x"),
            *((), (1,), (1.0, 0.0), (1.0, 0.0, 0.5), (0, 1), (1.0, math.nan, 0.0), ("a", "b"), (None, 1), ..., {}),
        )
    },
    "[]": list,
    "[[1, 2], [3]]": lambda: [[1, 2], [3]],
    "[[.1, .2, .3]] * 3": lambda: [[0.1, 0.2, 0.3]] * 3,
    "{'a': 1}": lambda: {"a": 1},
    "{1, 2}": lambda: {1, 2},
    "range(10**9)": lambda: range(10**9),
    "count()": count,
    "generator": lambda: (i / 3 for i in (3, 2, 1, 0)),
    "empty generator": lambda: (i for i in ()),
    "object()": object,
    "strange": _Strange,
    "date": lambda: date(2020, 1, 1),
    "slice": lambda: slice(None),
    "Path": lambda: Path("nowhere"),
    "Path of a file": lambda: Path(tempfile.mkstemp()[1]),
    "Fraction": lambda: Fraction(3, 2),
    "Decimal": lambda: Decimal("1.5"),
    "np.float32(2)": lambda: np.float32(2),
    "np.float64(nan)": lambda: np.float64("nan"),
    "np.int64(2)": lambda: np.int64(2),
    "np.int8(3)": lambda: np.int8(3),
    "np.bool_": lambda: np.bool_(True),
    "np.array(2.0)": lambda: np.array(2.0),
    "np.array([1, 0])": lambda: np.array([1.0, 0.0]),
    "np.ones((3, 3))": lambda: np.ones((3, 3)),
    "np object": lambda: np.array([object()]),
    "np strings": lambda: np.array(["a", "b"]),
    "tensor(2.0)": lambda: torch.tensor(2.0),
    "tensor(2)": lambda: torch.tensor(2),
    "tensor([2.0])": lambda: torch.tensor([2.0]),
    "tensor(True)": lambda: torch.tensor(True),
    "tensor(nan)": lambda: torch.tensor(math.nan),
    "tensor(1j)": lambda: torch.tensor(1j),
    "zeros(0)": lambda: torch.zeros(0),
    "tensor of grad": lambda: torch.ones(3, 3, requires_grad=True),
    "bool tensor": lambda: torch.ones(3, 3, dtype=torch.bool),
    "int tensor": lambda: torch.ones(3, 3, dtype=torch.int64),
    "complex tensor": lambda: torch.ones(3, 3, dtype=torch.complex64),
    "half tensor": lambda: torch.ones(3, 3, dtype=torch.float16),
    "nan tensor": lambda: torch.full((3, 3), math.nan),
    "negative tensor": lambda: -torch.ones(3, 3),
    "zero tensor": lambda: torch.zeros(3, 3),
    "sparse tensor": lambda: torch.ones(3, 3).to_sparse(),
    "meta tensor": lambda: torch.ones(3, 3, device="meta"),
    "ones(4, 4)": lambda: torch.ones(4, 4),
    **_tensors(1, 3),
    "torch.float16": lambda: torch.float16,
    "torch.int64": lambda: torch.int64,
    "int": lambda: int,
    "tt.Model": lambda: tt.Model,
    "tt.Masking": lambda: tt.Masking,
    "math": lambda: math,
    "len": lambda: len,
    "print": lambda: print,
    "torch.sin": lambda: torch.sin,
    "Masking(5)": lambda: tt.Masking(5),
    "Uniform(3)": lambda: tt.Uniform(3),
    "VP()": c.VP,
    "a model": lambda: MODEL,
    "a uniform model": lambda: UMODEL,
    "a model of 3 sites": lambda: tt.Model(MODEL.process, 3, MODEL.base, MODEL.conditional, MODEL.potential),
    "a bare model": lambda: tt.Model(MODEL.process, 2, MODEL.base),
    "a diffusion": lambda: REAL,
    "any order": lambda: ANY,
    "tilted": lambda: TILTED,
    "a diffusion tilted": lambda: c.Tilted(REAL, 2.0),
    "a score": lambda: MODEL.base,
    "a potential": lambda: MODEL.potential,
    "a result": lambda: RESULT,
    "a table": lambda: MASKED,
    "a linear": lambda: nn.Linear(2, 2),
    "an embedding": lambda: nn.Embedding(4, 3),
    "a composed target": lambda: COMPOSED,
    "a learned twist": lambda: LEARNED,
    "a reward of letters": lambda: tt.Reward(len, tokenizer="AC"),
    "figures": lambda: FIGURES,
    "what was spent": lambda: tt.Spent(1, 2, 3, 4),
    "a ladder": lambda: tt.Ladder((0.5, 1.0), 2),
    "nets": lambda: {"unet": SEDD},
    "a family": lambda: tt.PairTables(1),
    "a path": lambda: PATH,
    "moves": lambda: tt.Rejuvenation(tt.Gibbs(ANY), at_end=1),
    "raises": lambda: _raises,
    "f()": lambda: lambda: 0,
    "f(x)": lambda: lambda x: x,
    "f(x, t)": lambda: lambda x, t: x,
    "f(x, t, s)": lambda: lambda x, t, s: x,
    "f(x, t) of reals": lambda: lambda x, t: torch.zeros(x.shape[:-1]),
    "f(x, t) of ints": lambda: lambda x, t: torch.zeros(x.shape[:-1], dtype=torch.int64),
    "f(x, t) of bools": lambda: lambda x, t: torch.zeros(x.shape[:-1], dtype=torch.bool),
    "f(x, t) of complex": lambda: lambda x, t: torch.zeros(x.shape[:-1], dtype=torch.complex64),
    "f(x, t) of an array": lambda: lambda x, t: np.zeros(x.shape[:-1]),
    "f(x, t) of lists": lambda: lambda x, t: torch.zeros(x.shape[:-1]).tolist(),
    "f(x, t) of grad": lambda: lambda x, t: torch.zeros(x.shape[:-1], requires_grad=True),
    "f(x, t) of nan": lambda: lambda x, t: torch.full(x.shape[:-1], math.nan),
    "f(x, t) of inf": lambda: lambda x, t: torch.full(x.shape[:-1], math.inf),
    "f(x, t) of logits": lambda: lambda x, t: tt.SiteLogits.of(torch.zeros(*x.shape, 3)),
    "f(x, t) of nan logits": lambda: lambda x, t: tt.SiteLogits.of(torch.full((*x.shape, 3), math.nan)),
    "f(x, t) of wide logits": lambda: lambda x, t: tt.SiteLogits.of(torch.zeros(*x.shape, 4)),
    "f(x, t) of a few": lambda: lambda x, t: tt.SiteLogits.of(torch.zeros(1, 2, 3)),
    "f(*) of None": lambda: _returns(None),
    "f(*) of text": lambda: _returns("junk"),
    "f(*) of nan": lambda: _returns(math.nan),
    "f(*) of -1": lambda: _returns(-1.0),
    "f(*) of 1": lambda: _returns(1.0),
    "f(*) of a pair": lambda: _returns((torch.zeros(2), torch.zeros(2))),
    "f(*) of a meta tensor": lambda: _returns(torch.ones(3, device="meta")),
    "f(t) of text": lambda: lambda t: "x",
    "f(u) that falls": lambda: lambda u: 1.0 if u == 1 else -u,
}
MISNAMED = ("steps", "n", "n_particles", "num_steps", "partciles", "resampling", "random_state", "junk")

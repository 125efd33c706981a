"""Checks of a score or a potential: shape, independence of the rest of the batch, eval mode, no NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import number, truth, whole_number
from ..core.eval_mode import hidden_in_training
from ..core.types import Model, Potential, Process, Score, Tokens, check_process
from ..targets.on_clock import Tilt, evaluate
from ..targets.potentials import as_potential
from .tables import uniforms
from .verdicts import require, used

BATCH = 7
_LONGEST = 100_000  # sites of a state to check with
TIMES = (1.0, 0.5, 0.05)


@torch.no_grad()
def check_score(score: Score, process: Process, length: int, tolerance: float = 1e-6) -> None:
    """Reject a score that a sampler cannot use: evaluated on pure noise and on half-noised states.

    It returns `SiteLogits` with a value for each token at each site of a batch [B, D]. Where a sampler reads them
    (masked sites, or all sites of the uniform process) they are neither NaN nor +inf, and some token is possible. The
    output for a state does not depend on the rest of the batch or its order, and is the same when computed again (in
    train mode it is not).

    Parameters:
        score: maps states [B, D] and a time to `tt.SiteLogits`.
        process: the noising process it is for.
        length: the number of sites D.
        tolerance: allowed difference between batches, relative to the output or to 1, whichever is larger.
    """
    model = Model(process, length, score)
    _check_mode("score", score)

    def asked(x: Tokens, t: float) -> Tensor:
        read = x == process.states - 1 if process.states > process.vocabulary else torch.ones_like(x, dtype=torch.bool)
        with used("the score"):
            rows = evaluate(model, "given", score, x, t).dense().masked_fill(~read[..., None], 0.0)
        bad = rows.isnan() | (rows == torch.inf)
        require(not bad.any(), f"t = {t:g}: the score answers NaN or +inf at {int(bad.any(-1).sum())} sites")
        none = (rows == -torch.inf).all(-1)
        require(not none.any(), f"t = {t:g}: no token is possible at {int(none.sum())} sites")
        return rows

    for t in TIMES:
        _check_batches("score", asked, states_at(process, length, t), t, tolerance)


@torch.no_grad()
def check_potential(
    potential: Potential | Callable[[Tokens], Any],
    process: Process,
    length: int,
    tolerance: float = 1e-6,
    *,
    clean_only: bool = False,
) -> None:
    """Reject a potential or reward that a sampler cannot use: evaluated on noise, half-noised and clean states.

    It returns one number for each state of a batch [B, D], neither NaN nor +inf, and not -inf for pure noise, which
    would kill every particle. The output for a state does not depend on the rest of the batch or its order, and is the
    same when computed again (in train mode it is not).

    Parameters:
        potential: maps states [B, D] and a time, or states alone, to log-values [B].
        process: the noising process it is for.
        length: the number of sites D.
        tolerance: allowed difference between batches, relative to the output or to 1, whichever is larger.
        clean_only: evaluate it on clean states only, as a reward with `ramp=tt.at_end` or a twist is.
    """
    check_process(process)
    whole_number("length", length, 1, _LONGEST)
    _check_mode("potential", potential)
    tilt = Tilt(as_potential("the potential", potential), lambda t: 1.0)

    def asked(x: Tokens, t: float) -> Tensor:
        with used("the potential"):
            value = tilt(x, t)
        require(
            (value < torch.inf).all(), f"t = {t:g}: the potential is +inf for {int((value == torch.inf).sum())} states"
        )
        dead = t == 1 and bool((value == -torch.inf).all())
        require(not dead, "t = 1: the potential is -inf for noise alone, and no particle survives the first draw")
        return value

    for t in (0.0,) if truth("clean_only", clean_only) else (*TIMES, 0.0):
        _check_batches("potential", asked, states_at(process, length, t), t, tolerance)


def states_at(process: Process, length: int, t: float) -> Tokens:
    """A batch of states noised to time t, the first of pure noise unless t = 0."""
    u = uniforms(7, 2, BATCH, length)
    clean = (u[0] * process.vocabulary).long()
    if process.states == process.vocabulary:
        return clean
    noise = (u[1] < t) | ((torch.arange(BATCH) == 0)[:, None] & torch.tensor(t > 0))
    return clean.masked_fill(noise, process.states - 1)


def _check_mode(name: str, asked: Any) -> None:
    nets = hidden_in_training(asked)
    require(not nets, f"the {name} calls a {type(nets[0]).__name__} in train mode; call .eval()" if nets else "")


def _check_batches(name: str, asked: Callable[[Tokens, float], Tensor], x: Tokens, t: float, tolerance: float) -> None:
    """Check that the output for a state is the same in any batch, and when computed again."""
    tolerance, given = number("tolerance", tolerance), x.clone()
    together = asked(x, t)
    require(torch.equal(x, given), f"t = {t:g}: the {name} writes to the states it is given; work on a copy")
    require(torch.equal(together, asked(x, t)), f"t = {t:g}: the {name} answers otherwise when asked again")
    others = {
        "one by one": torch.cat([asked(one, t) for one in x.split(1)]),
        "in another order": asked(x.flip(0), t).flip(0),
    }
    for how, found in others.items():
        off = torch.where(found == together, 0.0, (found - together).abs()) / together.abs().clamp(min=1.0)
        require(
            not (off > tolerance).any(),
            f"t = {t:g}: asked {how}, the {name} answers {float(off.max()):.1e} otherwise ({tolerance:.0e} allowed); "
            "its answer about a state must not hang on the rest of the batch",
        )

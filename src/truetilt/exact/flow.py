"""The exact limit of any Feynman-Kac model on an enumerable space: the law of infinitely many particles.

It uses the same moves as the sampler. Only the time error of the grid remains, so it can be separated from Monte-Carlo
error. A clock move factorises over sites and is summed by matrix products; any other move is summed pair by pair. Moves
between the steps (a `Rejuvenation`) are included, summed over all choices that their kernel may make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.arguments import whole_number
from ..core.bases import FeynmanKac, MoveKernel, check_listed, check_sampled, model_of
from ..core.errors import InvalidInput, InvalidWeights
from ..core.types import NEG_INF, Aux, Law, ListedLaw, Model, Move, Particles, SiteOdds, Tokens
from ..diffusion.grids import check_grid
from ..runtime.memory import check_fits
from ..runtime.run_plan import check_same_target
from ..smc.rejuvenation import Rejuvenation
from ..smc.resampling import check_weights
from ..targets.on_clock import ClockMove
from .tables import enumerate_states, flat_index

_LISTED = "flow sums over all that a move may do; give a kernel that has them, such as tt.Gibbs, or no moves"
_CHUNK = 1 << 18  # numbers in an intermediate product, at most: fits into the CPU cache


class Limit(NamedTuple):
    """Unnormalised mass of every state: its sum is E[Z-hat], its shape the law of the weighted particles."""

    states: Tokens  # [K, D]
    log_mass: Tensor  # float64 [K]

    @property
    def log_z(self) -> Tensor:
        return self.log_mass.logsumexp(0)

    @property
    def law(self) -> Tensor:
        return (self.log_mass - self.log_z).exp()


def flow(
    fk: FeynmanKac,
    grid: Sequence[float],
    size: int | None = None,
    length: int | None = None,
    moves: Rejuvenation | None = None,
) -> Limit:
    """Propagate mass through every move: the law and log Z of infinitely many particles.

    Args:
        fk: What is sampled, such as `tt.Tilted(model, alpha)`.
        grid: Falling times, such as `tt.uniform_grid(100)`.
        size: How many states a site has, mask included. None (the default): as the model of `fk` says.
        length: Number of sites. None (the default): as the model of `fk` says.
        moves: Moves made after each step and at the end, as `run` makes them, of the same target; their kernel needs
            `branches`, as tt.Gibbs, tt.Metropolis, tt.Block, tt.Pair and tt.WholeSequence have. None (the default): no
            moves.
    """
    check_sampled(fk)
    moves = _made_moves(fk, moves)
    grid = check_grid(grid)
    size, length = _sizes(model_of(fk), size, length)
    check_fits(8 * size**length * (length + 2), f"all {size}^{length} states")
    first = fk.start((1,), grid[0])
    states = enumerate_states(size, length, first.log_before.device)
    log_mass, aux = push(first, torch.zeros(1, dtype=torch.float64, device=states.device), states, size)
    for number, (t, s) in enumerate(pairwise(grid), start=1):
        particles = _alive(states, log_mass, aux, t)
        log_mass, aux = push_branches(fk.branches(particles, t, s), particles.log_w, states, size)
        for kernel, move in _moves_after(moves, number, last=number == len(grid) - 1):
            particles = _alive(states, log_mass, aux, s)
            log_mass, aux = push_branches(kernel.branches(particles, s, move), particles.log_w, states, size)
    check_weights(log_mass, f"exact flow at t = {grid[-1]:.6g}")
    return Limit(states, log_mass)


def _alive(states: Tokens, log_mass: Tensor, aux: Aux, t: float) -> Particles:
    """The states with positive mass at time t, as particles."""
    check_weights(log_mass, f"exact flow at t = {t:.6g}")
    alive = (log_mass > NEG_INF).nonzero().squeeze(-1)
    return Particles(states[alive], log_mass[alive], {k: v[alive] for k, v in aux.items()})


def _moves_after(moves: Rejuvenation | None, step: int, last: bool) -> Iterator[tuple[MoveKernel, int]]:
    """The kernel and the number of each move after a step, as the sampler counts them."""
    if moves is None:
        return
    first = moves.before(step)
    for number in range(first, first + moves.each_step + moves.at_end * last):
        yield moves.by, number


def _made_moves(fk: FeynmanKac, moves: object) -> Rejuvenation | None:
    """The moves, made from fk; raise unless they have its target, do not hang on weights, and list their choices."""
    if moves is None:
        return None
    if not isinstance(moves, Rejuvenation):
        raise InvalidInput(f"moves is a {type(moves).__name__}; give tt.Rejuvenation(kernel, each_step=...)")
    if moves.after_resampling:
        raise InvalidInput(
            "moves after a step that resampled hang on the weights of finitely many particles, and flow has none; "
            "give each_step or at_end"
        )
    made = moves.made_from(fk)
    check_listed("the kernel of the moves", made.by, _LISTED)
    check_same_target(fk.spec, made)
    return made


def _sizes(model: object, size: int | None, length: int | None) -> tuple[int, int]:
    """Size and length as given, or those of the sampled model; raises if they differ from those."""
    if model is not None and not isinstance(model, Model):
        raise InvalidInput("flow sums over tokens, and fk samples real vectors; use tt.continuous.line_flow")
    if model is not None:
        size, length = (model.process.states if size is None else size), (model.length if length is None else length)
    if size is None or length is None:
        raise InvalidInput("flow needs to know the space: fk has no model, so give size and length")
    size, length = whole_number("size", size, 2), whole_number("length", length, 1)
    if model is not None and (size, length) != (model.process.states, model.length):
        raise InvalidInput(
            f"flow over {length} sites of {size} states, and the model has {model.length} of {model.process.states} "
            "(a mask is a state too); give those"
        )
    return size, length


def push_branches(
    branches: Sequence[tuple[Tensor, Move]], log_mass: Tensor, states: Tokens, size: int
) -> tuple[Tensor, Aux]:
    """Mass after a move, summed over the choices made before the weight; a state gets the aux values of its heaviest
    branch.
    """
    possible = [(move, log_mass + log_p) for log_p, move in branches if (log_mass + log_p > NEG_INF).any()]
    pushed = [push(*_possible(move, log_mass), states, size) for move, log_mass in possible]
    every = torch.stack([mass for mass, _ in pushed])
    best = every.argmax(0)
    aux = {key: torch.stack([a[key] for _, a in pushed])[best, torch.arange(len(states))] for key in pushed[0][1]}
    return every.logsumexp(0), aux


def _possible(move: Move, log_mass: Tensor) -> tuple[Move, Tensor]:
    """A move restricted to the states with positive mass: on others its functions may be undefined."""
    alive = (log_mass > NEG_INF).nonzero().squeeze(-1)
    return (move, log_mass) if len(alive) == len(log_mass) else (move.take(alive), log_mass[alive])


def push(move: Move, log_mass: Tensor, states: Tokens, size: int) -> tuple[Tensor, Aux]:
    """Mass of every state after a move from weighted states, and the auxiliary values of each state."""
    log_mass = log_mass + move.log_before
    if isinstance(move, ClockMove):
        return push_factored(move, log_mass, states, size)
    return push_listed(move, log_mass, states, size)


def push_factored(move: ClockMove, log_mass: Tensor, states: Tokens, size: int) -> tuple[Tensor, Aux]:
    """sum over x of mass(x) prod_d k_d(x, y_d), as one matrix product of the two halves of the sites."""
    log_mass, odds, frozen = log_mass - move.log_start, kernel_odds(move), move.law.frozen()
    held = torch.where(frozen, log_mass + odds.log_hold.sum(-1), NEG_INF)
    shift = torch.maximum(log_mass.max(), held.max())
    total = torch.zeros(len(states), dtype=torch.float64, device=states.device)
    total = total.index_add(0, flat_index(move.law.x, size), (held - shift).exp())
    step = max(1, _CHUNK // size ** ((states.shape[-1] + 1) // 2))
    log_sum = odds.logits.rows.logsumexp(-1)
    weights = odds.logits.with_rows(torch.where(log_sum > NEG_INF, odds.logits.rows.T - log_sum, NEG_INF).T.exp())
    log_move = odds.log_move + odds.logits.per_site(log_sum)
    for chosen in (~frozen).nonzero().squeeze(-1).split(step):
        top = torch.maximum(odds.log_hold, log_move)[chosen]
        kernel = weights.take(chosen).dense().mul_((log_move[chosen] - top).exp()[..., None])
        if kernel.shape[-1] < size:  # add an entry for the mask, which is a state but never drawn
            kernel = torch.nn.functional.pad(kernel, (0, size - kernel.shape[-1]))
        kernel.scatter_(-1, move.law.x[chosen][..., None], (odds.log_hold[chosen] - top).exp()[..., None])
        total = total + _contract((log_mass[chosen] + top.sum(-1) - shift).exp(), kernel)
    log_end, reached = torch.zeros_like(total), total > 0
    if move.end:  # evaluated only on states that are reached; on others it may be undefined
        log_end[reached] = move.end(states[reached])
    return torch.where(total > 0, total.log() + shift + log_end, NEG_INF), {"log_tilt": log_end}


def kernel_odds(move: ClockMove) -> SiteOdds:
    """log of proposal times weight, site by site: a log-linear mixture of laws, -inf where the proposal is."""
    power: dict[int, float] = {id(move.law): 1.0}
    laws = {id(move.law): move.law}
    for c, law in move.proposal.ratios:
        power[id(law)], laws[id(law)] = power.get(id(law), 0.0) + c, law
    odds = [laws[key].odds for key in laws]
    logits = odds[0].logits.aligned(*(o.logits for o in odds[1:]))

    def mix(values: list[Tensor]) -> Tensor:
        total = sum((c * v for c, v in zip(power.values(), values, strict=True) if c != 0), torch.zeros_like(values[0]))
        return torch.where(values[0] > NEG_INF, total, NEG_INF)

    rows = logits[0].with_rows(mix([o.rows for o in logits]))
    return SiteOdds(rows, mix([o.log_hold for o in odds]), mix([o.log_move for o in odds]))


def push_listed(move: Move, log_mass: Tensor, states: Tokens, size: int) -> tuple[Tensor, Aux]:
    """Any move, by enumeration: the weight of every state its law can draw, auxiliary values from the heaviest
    parent."""
    y, log_q = support(move.law, states, len(log_mass))
    n, m = log_q.shape
    parent = torch.arange(n, device=y.device).repeat_interleave(m)
    log_after, aux = move.take(parent).after(y.flatten(0, 1))
    _check_numbers(move, log_q, log_after)
    joint = log_mass[parent] + torch.where(log_q > NEG_INF, log_q + log_after.reshape(n, m), NEG_INF).reshape(-1)
    index = flat_index(y, size).reshape(-1)
    shift = torch.full((len(states),), NEG_INF, dtype=joint.dtype, device=y.device)
    shift = shift.scatter_reduce(0, index, joint, "amax")
    finite = shift.clamp(min=-1e300)[index]
    total = torch.zeros_like(shift).index_add(0, index, (joint - finite).exp())
    heaviest = index.new_zeros(len(states))
    winners = (joint == shift[index]).nonzero().squeeze(-1)
    heaviest[index[winners]] = winners
    return torch.where(total > 0, total.log() + shift, NEG_INF), {k: v[heaviest] for k, v in aux.items()}


def _check_numbers(move: Move, log_q: Tensor, log_after: Tensor) -> None:
    """Raise on NaN, which would be lost as a mass of zero."""
    if log_q.isnan().any() or log_after[(log_q > NEG_INF).reshape(-1)].isnan().any():
        raise InvalidWeights(
            f"flow: a move ({type(move).__name__}) gives NaN as the log-probability or the log-weight of a state that "
            "it may draw; an acceptance probability is at most 1, log_accept at most 0 (-inf + inf is NaN)"
        )


def support(law: Law, states: Tokens, n: int) -> tuple[Tokens, Tensor]:
    """The support of a law, y [n, m, D] with log-probabilities [n, m]: as the law lists it, else every state."""
    if isinstance(law, ListedLaw):
        return law.support()
    every = torch.arange(n, device=states.device).repeat_interleave(len(states))
    y = states.repeat(n, 1)
    return y.reshape(n, len(states), -1), law.take(every).log_prob(y).reshape(n, len(states))


def _contract(mass: Tensor, kernel: Tensor) -> Tensor:
    half = kernel.shape[1] // 2
    left, right = _outer(kernel[:, :half]), _outer(kernel[:, half:])
    return ((mass[:, None] * left).T @ right).reshape(-1)


def _outer(kernel: Tensor) -> Tensor:
    """Products over sites [n, k, size] -> [n, size^k]."""
    if kernel.shape[1] == 0:
        return torch.ones(kernel.shape[0], 1, dtype=kernel.dtype, device=kernel.device)
    out, *rest = kernel.unbind(1)
    for site in rest:
        out = (out[:, :, None] * site[:, None, :]).flatten(1)
    return out

"""Samplers that fill the gaps of many texts in one run: each text has populations of its own, all as many gaps.

p(gaps) is the network's law with the given tokens masked, p(gaps|text) with them visible. Two baselines differ:
reconstruction samples whole texts and overwrites the given tokens; prompting puts the text with its gaps in front and
samples the whole text after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.costs import StateCounter
from ..commands.sample_text import Given
from ..commands.samplers import FeynmanKac
from ..core.errors import InvalidInput
from ..core.evaluation import Batch, BatchScore, ask
from ..core.logits import SiteLogits
from ..core.types import Model, Score, Tokens
from ..diffusion.grids import uniform_grid
from ..diffusion.kernels import tweedie
from ..models.conditions import row_of_each_state
from ..models.infilling import Retimed
from ..models.text_bundle import Reviews
from ..smc.resampling import never
from ..targets.any_order import AnyOrder
from ..targets.on_clock import Unweighted
from .populations import draws_of_each
from .text_samplers import TEXT_SAMPLERS, Lots, watched

RECONSTRUCTION, PROMPTING = "reconstruction", "prompting"
EVERY_ROW = (RECONSTRUCTION, "guidance-rate")  # methods that read the score at every site
MARK = " ..."  # stands for a gap in a prompt


class Way(NamedTuple):
    """A method, its strengths and its steps, 0 for as many as usual."""

    method: str
    alpha: float | None = None
    beta: float | None = None
    steps: int = 0

    @property
    def name(self) -> str:
        pairs = (("a", self.alpha), ("b", self.beta))
        words = [self.method, *(f"{letter}{value:g}" for letter, value in pairs if value is not None)]
        return "-".join([*words, *([str(self.steps)] if self.steps else [])])


class FillRun(NamedTuple):
    """One run: the samples per text, the texts drawn of them, steps, seed, and the number of its first population."""

    shape: tuple[int, int]  # populations and particles of each text
    draws: int
    steps: int
    seed: int
    first_population: int = 0


class Layout(NamedTuple):
    """The row to be filled, and the position of the text in it."""

    row: list[int | None]
    first: int
    size: int


class Filled(NamedTuple):
    """Whole texts [texts, draws, D]; the share of given tokens that were drawn as given, if they were drawn at all."""

    x: Tokens
    kept: Tensor | None  # [texts, draws]
    evaluations: float  # per particle
    steps: int


@dataclass(frozen=True)
class Gapped(BatchScore):
    """The Score of the gaps of many texts; a state fills the gaps, and all texts have equally many populations."""

    asks_others: ClassVar[bool] = True
    score: Score  # Score of whole texts
    around: Tensor  # int64 [texts, D]: given tokens, or masks if they are hidden
    sites: Tensor  # int64 [texts, gaps]

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x = batch.x
        answer = ask(self.score, Batch(self.whole(x), batch.log), t)
        return SiteLogits(answer.store, answer.index.gather(-1, row_of_each_state(self.sites, x)))

    def whole(self, x: Tokens) -> Tokens:
        """The texts [..., D] with their gaps filled from x [..., gaps]."""
        return row_of_each_state(self.around, x).scatter(-1, row_of_each_state(self.sites, x), x)


@dataclass
class Noted:
    """The network's probability of each given token at the last step before it was overwritten [B, D]."""

    chance: Tensor | None = None

    def note(self, chance: Tensor, masked: Tensor) -> None:
        before = torch.zeros_like(chance) if self.chance is None else self.chance
        self.chance = torch.where(masked, chance, before)


@dataclass(frozen=True)
class Overwritten(BatchScore):
    """The Score of whole texts in which given tokens replace the drawn ones; until then they are masked."""

    asks_others: ClassVar[bool] = True
    score: Score
    known: Tensor  # int64 [texts, D], -1 at gaps
    mask: int
    noted: Noted

    def ask(self, batch: Batch, t: float) -> SiteLogits:
        x = batch.x
        rows, known = ask(self.score, batch, t).dense(), row_of_each_state(self.known, x)
        size, token = rows.logsumexp(-1, keepdim=True), known.clamp(min=0)[..., None]
        self.noted.note((rows.gather(-1, token) - size).exp()[..., 0].double(), x == self.mask)
        fixed = torch.full_like(rows, -torch.inf).scatter(-1, token, size)
        return SiteLogits.of(torch.where((known >= 0)[..., None], fixed, rows))


@torch.no_grad()
def fill(nets: Reviews, texts: Sequence[Given], way: Way, plan: FillRun) -> Filled:
    """Fill every text by one method; texts with equally many gaps share a run."""
    layouts = [_layout(nets, given, way.method) for given in texts]
    groups: dict[int, list[int]] = {}
    for number, layout in enumerate(layouts):
        groups.setdefault(layout.row.count(None), []).append(number)
    room = Lots(plan.shape, plan.seed, 1, way.method in EVERY_ROW).room(nets.device)
    many = max(1, room // (plan.shape[0] * plan.shape[1]))
    found: list[tuple[int, Tensor, Tensor | None]] = []
    meter, steps, first = StateCounter(), [], 0
    for _, numbers in sorted(groups.items()):
        for k in range(0, len(numbers), many):
            lot = numbers[k : k + many]
            rows = torch.tensor([[-1 if v is None else v for v in layouts[n].row] for n in lot], device=nets.device)
            x, kept, taken = _fill_lot(nets, rows, way, plan._replace(first_population=first), meter)
            found += [(n, x[j], None if kept is None else kept[j]) for j, n in enumerate(lot)]
            steps.append((taken, len(lot)))
            first += len(lot) * plan.shape[0]
    found.sort(key=lambda entry: entry[0])
    whole = torch.stack([_unlaid(x, layouts[n], nets.tokenizer.end) for n, x, _ in found])
    shares = None if found[0][2] is None else torch.stack([own for _, _, own in found if own is not None])
    if way.method == PROMPTING:
        shares = torch.stack([kept_share(x, given, nets.tokenizer.end) for x, given in zip(whole, texts, strict=True)])
    particles = len(texts) * plan.shape[0] * plan.shape[1]
    mean_steps = round(sum(taken * size for taken, size in steps) / len(texts))
    return Filled(whole, shares, sum(meter.states.values()) / particles, mean_steps)


def kept_share(x: Tokens, given: Given, end: int) -> Tensor:
    """The share of given tokens of the text that each row [n, D] has where they were."""
    sites = [site for site, token in enumerate(given) if token not in (None, end)]
    if not sites:
        raise InvalidInput("no token of the text is given; there is none to keep")
    tokens = torch.tensor([given[site] for site in sites], device=x.device)
    return (x[..., sites] == tokens).double().mean(-1)


def prompt_of(nets: Reviews, given: Given) -> list[int]:
    """The text as a prompt: its given tokens, and one mark for each gap, whatever its length."""
    mark, end, out = nets.tokenizer.encode(MARK), nets.tokenizer.end, []
    for site, token in enumerate(given):
        if token is None:
            out += mark if not site or given[site - 1] is not None else []
        elif token != end:
            out.append(token)
    return out


def prompt_fits(nets: Reviews, given: Given) -> bool:
    """Whether a prompt and the whole text after it fit into a row."""
    return len(prompt_of(nets, given)) + _used(given, nets.tokenizer.end) <= nets.length


def _used(given: Given, end: int) -> int:
    return sum(token != end for token in given)


def _layout(nets: Reviews, given: Given, method: str) -> Layout:
    if method != PROMPTING:
        return Layout(list(given), 0, nets.length)
    if not prompt_fits(nets, given):
        raise InvalidInput(f"the text with its prompt does not fit into {nets.length} tokens; leave it out")
    prompt, size, end = prompt_of(nets, given), _used(given, nets.tokenizer.end), nets.tokenizer.end
    return Layout([*prompt, *[None] * size, *[end] * (nets.length - len(prompt) - size)], len(prompt), size)


def _unlaid(x: Tokens, layout: Layout, end: int) -> Tokens:
    """The text of each row [n, D], moved to the start of the row; the rest is filled with end tokens."""
    _, first, size = layout
    return torch.full_like(x, end).slice_scatter(x[:, first : first + size], -1, 0, size)


def _fill_lot(
    nets: Reviews, rows: Tensor, way: Way, plan: FillRun, meter: StateCounter
) -> tuple[Tokens, Tensor | None, int]:
    """Whole rows [texts, draws, D] of some texts, the share of given tokens kept if they were drawn, and the steps."""
    noted = Noted()
    fk, inside, options = _built(nets, rows, way, meter, noted)
    grid = fk.grid if isinstance(fk, AnyOrder) else uniform_grid(plan.steps)
    populations, particles = plan.shape
    result = run(
        fk, grid, particles=particles, populations=populations * len(rows), seed=plan.seed,
        first_population=plan.first_population, **options,
    )  # fmt: skip
    x = draws_of_each(result, plan.seed, max(1, plan.draws // populations))
    if len(x) < populations * len(rows):
        raise InvalidInput(f"{populations * len(rows) - len(x)} populations died; lower alpha, or take more particles")
    x = inside.whole(x) if inside is not None else x
    return x.reshape(len(rows), -1, x.shape[-1]), _noted_share(noted, rows, nets.tokenizer.end), len(grid) - 1


def _noted_share(noted: Noted, rows: Tensor, end: int) -> Tensor | None:
    """The mean probability of the given tokens of each text, by particle."""
    if noted.chance is None:
        return None
    chance = noted.chance.reshape(len(rows), -1, rows.shape[-1])
    own = ((rows >= 0) & (rows != end)).double()[:, None]
    return (chance * own).sum(-1) / own.sum(-1)


def _built(
    nets: Reviews, rows: Tensor, way: Way, meter: StateCounter, noted: Noted
) -> tuple[FeynmanKac, Gapped | None, dict[str, Any]]:
    """The Feynman-Kac model of a method, the Score that completes its states to whole rows, and options of the run."""
    if way.method == RECONSTRUCTION:
        plain = meter.watch(Model(nets.process, nets.length, nets.base(), None, None, nets.device))
        score = Overwritten(plain.base, rows, nets.process.mask, noted)
        return Unweighted(plain, score, kernel=tweedie), None, {"resample": never}
    model = watched(gap_model(nets, rows), meter, way.method in EVERY_ROW)
    inside: Any = model.conditional
    whole = Gapped(nets.base(), rows, _sites(rows))
    alpha, beta = 1.0 if way.alpha is None else way.alpha, 1.0 if way.beta is None else way.beta
    if way.method == PROMPTING:
        return Unweighted(model, inside, kernel=tweedie), whole, {"resample": never}
    sampler = TEXT_SAMPLERS[way.method]
    fk, options = replace(sampler, moves=model.length if sampler.moves else 0).built(model, alpha, beta)
    return fk, whole, options


def _sites(rows: Tensor) -> Tensor:
    """The positions of the gaps of each row, equally many [texts, gaps]."""
    return (rows < 0).nonzero()[:, 1].reshape(len(rows), -1)


def gap_model(nets: Reviews, rows: Tensor) -> Model:
    """The model of the gaps of rows [texts, D] (-1 there), whose condition is the text around, hidden from the base."""
    sites, length = _sites(rows), rows.shape[-1]
    gaps, net = sites.shape[-1], nets.base()
    blank = torch.full_like(rows, nets.process.mask)
    base = Gapped(Retimed(net, length, gaps, length - gaps), blank, sites)
    return Model(nets.process, gaps, base, Gapped(Retimed(net, length, gaps), rows, sites), None, nets.device)

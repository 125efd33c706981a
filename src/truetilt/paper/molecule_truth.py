"""Truth without enumeration: draws of the base say what log Z and expectations of a hard reward are, and how precisely.

Independent jobs draw from the network by a loop of their own, a row at a time until its end, and keep counts, sums and
sums of squares. Hits over draws are Z, means over hits are expectations; the spread over jobs, scaled to the draws
that a budget buys, is the error of rejection sampling at that cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..commands.job_runner import Answer
from ..core.chemistry import logp_value, parsed
from ..core.types import Tokens
from ..models.end_tokens import behind_end
from ..molecules.bundle import Molecules
from ..smc.uncertainty import student_quantile
from .molecule_scores import Moments
from .molecule_tasks import TRUTH, Task, networks

_ROWS = 1000  # rows drawn at a time on a CPU; on a GPU all of a job


def weight_of(mol: Any) -> float:
    """The molecular weight."""
    from rdkit.Chem import rdMolDescriptors

    return float(rdMolDescriptors._CalcMolWt(mol))


def rings_of(mol: Any) -> float:
    """The number of rings."""
    return float(mol.GetRingInfo().NumRings())


FUNCTIONS: dict[str, Callable[[Any], float]] = {"logP": logp_value, "weight": weight_of, "rings": rings_of}


@torch.no_grad()
def left_to_right(nets: Molecules, count: int, seed: int) -> Tokens:
    """Rows [count, D] of the network from left to right; what lies behind an end is filled with ends, unasked."""
    sites, end, mask = nets.length, nets.tokenizer.end, nets.process.mask
    noise = torch.Generator(nets.device).manual_seed(seed)
    x = torch.full((count, sites), mask, device=nets.device)
    open_rows = torch.arange(count, device=nets.device)
    for site in range(sites):
        if not len(open_rows):
            break
        law = [_law(nets, part, site) for part in x[open_rows].split(nets.batch)]
        token = torch.multinomial(torch.cat(law), 1, generator=noise)[:, 0]
        x[open_rows, site] = token
        open_rows = open_rows[token != end]
    return torch.where(behind_end(x, end), end, x)


def asked_sites(x: Tokens, end: int) -> int:
    """How many network evaluations the rows [B, D] cost: one for each site up to the end token."""
    return int((~behind_end(x, end)).sum())


def _law(nets: Molecules, x: Tokens, site: int) -> Tensor:
    """p(token at this site | the row) [B, S]; the network is not told the time."""
    net: Any = nets.net
    sigma = torch.ones(len(x), device=x.device)
    with torch.autocast(x.device.type, nets.dtype, enabled=nets.dtype is not None):
        hidden = net.trunk(x, sigma)[:, site]
        logits = net.head(hidden if nets.dtype is None else hidden.to(nets.dtype), sigma)
    return logits[:, : nets.vocabulary].double().softmax(-1)


def reference_job(count: int, seed: int, device: str) -> Answer:
    """Draws of the base: how many are valid, hits of each task with sums of the functions, moments of descriptors."""
    nets = networks(device)
    step = _ROWS if device == "cpu" else count
    sizes = [min(step, count - first) for first in range(0, count, step)]
    x = torch.cat([left_to_right(nets, size, seed * 1009 + k) for k, size in enumerate(sizes)])
    texts, asked = nets.decode(x), asked_sites(x, nets.tokenizer.end)
    mols = [mol for mol in map(parsed, texts) if mol is not None]
    hits = {task.name: hits_of(task, mols) for task in TRUTH}
    counts = {"draws": count, "network_evaluations": asked, "valid": len(mols)}
    return counts | {"hits": hits, "moments": Moments.of(mols[:_ROWS]).told()}


def hits_of(task: Task, mols: Sequence[Any]) -> Answer:
    """The number of molecules that a hard reward allows, and sums and squares of each function over them."""
    chosen = [mol for mol in mols if task.score(mol) == 0]
    found: Answer = {"count": len(chosen)}
    for name, function in FUNCTIONS.items():
        values = [function(mol) for mol in chosen]
        found[name] = [math.fsum(values), math.fsum(value * value for value in values)]
    return found


class Reference(NamedTuple):
    """What draws of the base say of one task: estimates, their standard errors, and terms of each job.

    Entry 0 is Z, the others are the expectations of `FUNCTIONS`. `terms` are linearised errors of a single job, those
    of Z relative to Z.
    """

    draws: int
    hits: int
    estimates: Tensor  # [1 + functions]
    errors: Tensor  # [1 + functions], that of Z relative
    terms: Tensor  # [jobs, 1 + functions]
    each: int  # draws of a job

    def spread(self, draws: float) -> Tensor:
        """The standard deviation of rejection sampling of this many draws [1 + functions], by the spread over jobs."""
        return self.terms.std(0) * math.sqrt(self.each / draws)


def reference_of(answers: Sequence[Answer], task: str) -> Reference | None:
    """The reference of a task from its jobs, all of one size; None without two jobs and two hits."""
    hits = torch.tensor([a["hits"][task]["count"] for a in answers], dtype=torch.float64)
    if len(answers) < 2 or float(hits.sum()) < 2:
        return None
    each = answers[0]["draws"]
    sums = torch.tensor([[a["hits"][task][name][0] for name in FUNCTIONS] for a in answers], dtype=torch.float64)
    z, means = hits.sum() / (each * len(answers)), sums.sum(0) / hits.sum()
    terms = torch.cat([(hits / each / z - 1)[:, None], (sums - hits[:, None] * means) / (each * z)], 1)
    errors = terms.std(0) / math.sqrt(len(answers))
    estimates = torch.cat([z[None], means])
    return Reference(each * len(answers), int(hits.sum()), estimates, errors, terms, each)


class Ours(NamedTuple):
    """Our runs over seeds: Z relative to that of the reference, and expectations."""

    ratios: Tensor  # [seeds], Z-hat over the reference's Z
    means: Tensor  # [seeds, functions]; NaN where a run found nothing

    def pooled(self) -> tuple[Tensor, Tensor]:
        """All seeds as one sample [1 + functions], and its standard errors."""
        seeds, z = len(self.ratios), self.ratios.mean()
        means = torch.where(self.ratios[:, None] > 0, self.means, 0.0)
        pooled = (self.ratios[:, None] * means).sum(0) / self.ratios.sum()
        terms = torch.cat([(self.ratios - z)[:, None], self.ratios[:, None] * (means - pooled) / z], 1)
        return torch.cat([z[None], pooled]), terms.std(0) / math.sqrt(seeds)

    def spread(self) -> Tensor:
        """The standard deviation of a single run over seeds [1 + functions]."""
        kept = self.means[self.ratios > 0]
        return torch.cat([self.ratios.std()[None], kept.std(0)])


def ours_of(rows: Sequence[Answer], reference: Reference) -> Ours:
    """Our rows of one task as a record."""
    ratios = [0.0 if r["log_z"] is None else math.exp(r["log_z"]) / float(reference.estimates[0]) for r in rows]
    means = [[math.nan if r[name] is None else r[name] for name in FUNCTIONS] for r in rows]
    return Ours(torch.tensor(ratios, dtype=torch.float64), torch.tensor(means, dtype=torch.float64))


def agreement(ours: Ours, reference: Reference, comparisons: int) -> list[Answer]:
    """For Z and each function: both estimates, both standard errors, and whether they differ by more than chance.

    The limit keeps the chance of one false alarm in all `comparisons` at 5 %.
    """
    found, errors = ours.pooled()
    names, limit = ("Z, relative", *FUNCTIONS), student_quantile(1 - 0.05 / comparisons, len(ours.ratios) - 1)
    out = []
    for k, name in enumerate(names):
        true = 1.0 if k == 0 else float(reference.estimates[k])
        z = (float(found[k]) - true) / max(math.hypot(float(errors[k]), float(reference.errors[k])), 1e-300)
        both = {"ours": float(found[k]), "reference": true, "ours_error": float(errors[k])}
        more = {"reference_error": float(reference.errors[k]), "z": z, "limit": limit, "holds": abs(z) <= limit}
        out.append({"quantity": name} | both | more)
    return out


def error_ratios(ours: Ours, reference: Reference, draws: float, resamples: int = 2000) -> list[Answer]:
    """The empirical standard deviation of our runs over that of rejection at equal cost, with bootstrap intervals."""
    noise = torch.Generator().manual_seed(0)
    ratio = ours.spread() / reference.spread(draws)
    found = []
    for _ in range(resamples):
        mine = torch.randint(len(ours.ratios), (len(ours.ratios),), generator=noise)
        theirs = torch.randint(len(reference.terms), (len(reference.terms),), generator=noise)
        again = reference._replace(terms=reference.terms[theirs]).spread(draws)
        found.append(Ours(ours.ratios[mine], ours.means[mine]).spread() / again)
    table = torch.stack(found)
    out = []
    for k, name in enumerate(("Z, relative", *FUNCTIONS)):
        column = table[:, k][table[:, k].isfinite()]
        low, high = (
            column.quantile(torch.tensor([0.025, 0.975], dtype=column.dtype)).tolist() if len(column) else (0, 0)
        )
        out.append({"quantity": name, "ratio": float(ratio[k]), "low": low, "high": high})
    return out

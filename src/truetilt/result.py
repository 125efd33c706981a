"""What a run gives back: weighted particles, log Z, and the record of how they came to be."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .saved import check_header, check_tensors
from .smc.diagnostics import roots
from .smc.resampling import multinomial
from .smc.stream import OUTPUT, Stream
from .smc.uncertainty import (
    Estimate,
    History,
    Interval,
    Spreader,
    across_populations,
    interval,
    of_log_z,
    of_mean,
)
from .smc.weights import effective_sample_size, log_mean_exp, normalised
from .snapshots import Snapshots, no_snapshots, united
from .storage import check_plain, read_json, sha256_of, write_json, write_with
from .trust import Trust, figures_of, judge
from .types import DegenerateWeights, InvalidInput

if TYPE_CHECKING:
    from .viz.plots import Plots
    from .viz.views import View

_FORMAT, _VERSION = "truetilt-result", 1
_TENSORS = ("particles", "log_weights", "times", "ess", "log_z_path", "ancestors", "moved", "accepted")
_KEPT = ("snapshot_steps", "snapshot_particles", "snapshot_log_weights")  # in the file where there are any


@dataclass(frozen=True, repr=False)
class Result:
    """Weighted particles of every population. Estimates weigh the union by mass, so populations need no correction."""

    particles: Tensor  # [populations, particles, D]
    log_weights: Tensor  # float64 [populations, particles], unnormalised
    times: Tensor  # float64 [steps + 1], time after the first draw and after every step
    ess: Tensor  # float64 [steps + 1, populations], of the weights each resampling saw
    log_z_path: Tensor  # float64 [steps + 1, populations], after each step
    ancestors: Tensor  # int32 [steps + 1, populations, particles]
    settings: dict[str, Any] = field(default_factory=dict)
    moved: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # [steps + 1, populations], share moves changed
    accepted: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # [steps + 1, populations], of moves
    snapshot_steps: Tensor = field(default_factory=lambda: no_snapshots().steps)  # see `snapshots`
    snapshot_particles: Tensor = field(default_factory=lambda: no_snapshots().particles)
    snapshot_log_weights: Tensor = field(default_factory=lambda: no_snapshots().log_weights)

    def __repr__(self) -> str:
        populations, n = self.log_weights.shape
        ess = f"effective sample size {float(self.final_ess.mean()):.4g} of {n}"
        shape = f"{populations} x {n} particles of shape {tuple(self.particles.shape[2:])}"
        return f"Result({shape}, log Z {self.log_z:.6g}, {ess}; ask .trust() how far to trust it)"

    @property
    def log_z(self) -> float:
        """log of the estimated normalising constant, over the union of the populations."""
        return float(log_mean_exp(self.log_weights.reshape(-1)))

    @property
    def population_log_z(self) -> Tensor:
        """The estimate of each population alone [populations]; -inf for one that died."""
        return log_mean_exp(self.log_weights)

    @property
    def weights(self) -> Tensor:
        """Weights over the union, summing to one [populations, particles]."""
        return normalised(self._weighed().reshape(-1)).reshape(self.log_weights.shape)

    @property
    def final_ess(self) -> Tensor:
        """Effective sample size of each population at the end [populations]."""
        return effective_sample_size(self.log_weights)

    @property
    def roots(self) -> Tensor:
        """How many first draws of each population have a living descendant [populations]."""
        return roots(self.ancestors)

    @property
    def genealogy(self) -> Tensor:
        """Whom each particle descends from, step by step [steps + 1, populations, particles]."""
        return self.ancestors

    @property
    def snapshots(self) -> Snapshots:
        """Particles and weights after the steps that `run(..., snapshots=)` was asked to keep."""
        return Snapshots(self.snapshot_steps, self.snapshot_particles, self.snapshot_log_weights)

    @property
    def plot(self) -> Plots:
        """Figures on matplotlib axes: `ess`, `log_z`, `genealogy`, `weights`, `samples`."""
        from .viz.plots import Plots

        return Plots(self)

    def report(self, path: str | Path, view: View | None = None, title: str | None = None) -> Path:
        """Write the run as one HTML file that needs nothing else; `view` says how states look (tt.Images, ...)."""
        from .viz.report import write_report

        return write_report(self, Path(path), view, title)

    def expectation(self, h: Callable[[Tensor], Tensor]) -> Tensor:
        """Weighted mean of h(x); h maps [populations, particles, D] to [populations, particles, ...]."""
        return of_mean(self._weighed(), self._values(h)).value

    def log_z_interval(self, level: float = 0.95, by: Spreader = across_populations) -> Interval:
        """log Z with an error bar: across populations (2 or more, better 16), or by=genealogy() for a single one."""
        return self._interval(of_log_z(self._weighed()), level, by)

    def expectation_interval(
        self, h: Callable[[Tensor], Tensor], level: float = 0.95, by: Spreader = across_populations
    ) -> Interval:
        """`expectation(h)` with an error bar, one for each entry of h; `by` as in `log_z_interval`."""
        estimate = of_mean(self._weighed(), self._values(h))
        if not estimate.value.isfinite().all():
            raise InvalidInput(
                "h returned NaN or infinite values for particles that have weight; their mean has no error bar"
            )
        return self._interval(estimate, level, by)

    @property
    def log_z_stderr(self) -> float | None:
        """Standard error of log Z across populations; None where there is one population, no mass, or copies of one."""
        if self.log_weights.shape[0] < 2 or self.log_z == -torch.inf or _repeated(self.settings):
            return None
        return float(self.log_z_interval().stderr)

    def trust(self) -> Trust:
        """How far to trust this answer: a verdict with its reasons, in plain words when printed."""
        self._weighed()
        return judge(figures_of(self._history(), self.particles, self.moved, _repeated(self.settings)))

    def draw(self, n: int, seed: int = 0) -> Tensor:
        """n unweighted draws from the union by mass, in random order [n, D]. Same seed, same draws."""
        if n < 1:
            raise InvalidInput(f"cannot draw {n} samples; ask for at least one")
        stream = Stream(seed, device=self.particles.device)
        log_w = self.log_weights.reshape(-1)
        height = (torch.arange(n, device=log_w.device) + stream.uniforms(0, OUTPUT, 1, (0, 1))[0]) / n
        cdf = self.weights.reshape(-1).cumsum(0)
        top = torch.nextafter(cdf[-1], torch.zeros_like(cdf[-1]))  # rounding must not reach past the last weight
        chosen = torch.searchsorted(cdf, torch.minimum(height * cdf[-1], top), right=True)
        shuffle = stream.uniforms(1, OUTPUT, 1, (0, n))[0].argsort()
        return self.particles.flatten(0, 1)[chosen[shuffle]]

    def draw_independent(self, seed: int = 0) -> Tensor:
        """One draw from each living population [living, D]: mutually independent, each with a bias of order 1/N."""
        populations, n = self.log_weights.shape
        alive = (self.population_log_z > -torch.inf).nonzero().squeeze(-1)
        if len(alive) == 0:
            raise DegenerateWeights("every population died: there is nothing to draw")
        u = Stream(seed, device=self.particles.device).uniforms(2, OUTPUT, populations, (0, 1)).expand(populations, n)
        chosen = multinomial(self.log_weights, u).ancestors[:, :1]
        first = torch.gather(self.particles, 1, chosen[..., None].expand(-1, -1, self.particles.shape[-1]))
        return first[alive, 0]

    @staticmethod
    def union(results: Sequence[Result]) -> Result:
        """Several runs as one: their populations side by side. Mass needs no correction."""
        if not results:
            raise InvalidInput("no results to unite; give at least one")
        first = results[0]
        for other in results[1:]:
            if other.log_weights.shape[1:] != first.log_weights.shape[1:] or not torch.equal(other.times, first.times):
                raise InvalidInput("results to unite must have the same number of particles and the same time grid")
        return Result(
            torch.cat([r.particles for r in results]),
            torch.cat([r.log_weights for r in results]),
            first.times,
            torch.cat([r.ess for r in results], 1),
            torch.cat([r.log_z_path for r in results], 1),
            torch.cat([r.ancestors for r in results], 1),
            {"united": [r.settings for r in results]},
            torch.cat([r.moved for r in results], 1),
            torch.cat([r.accepted for r in results], 1),
            *united([r.snapshots for r in results]),
        )

    def _weighed(self) -> Tensor:
        """The log-weights, where there is any weight at all."""
        if self.log_z == -torch.inf:
            raise DegenerateWeights("every particle has weight zero: there is nothing to average or draw")
        return self.log_weights

    def _values(self, h: Callable[[Tensor], Tensor]) -> Tensor:
        value = h(self.particles)
        if value.shape[:2] != self.log_weights.shape:
            raise InvalidInput(
                f"h returned shape {tuple(value.shape)}; its first two axes must be {tuple(self.log_weights.shape)}"
            )
        return value

    def _history(self) -> History:
        """What error bars read. United runs must have drawn alike, or nothing is said of how they drew."""
        ways = [(run.get("resampler"), run.get("coupling")) for run in _runs(self.settings)]
        resampler, coupling = ways[0] if all(way == ways[0] for way in ways) else (None, None)
        return History(self.log_weights, self.ancestors, self.ess, resampler, coupling != "independent")

    def _interval(self, estimate: Estimate, level: float, by: Spreader) -> Interval:
        if _repeated(self.settings):
            raise InvalidInput(
                "two of the united runs share a seed and a population number, so they are copies and no error bar can "
                "be had; run them with different seeds, or with first_population"
            )
        return interval(estimate, by(estimate, self._history()), level)

    def save(self, folder: str | Path, view: View | None = None) -> Path:
        """Write particles.safetensors, then particles.json with its checksum, into a folder; a view as view.json."""
        folder = Path(folder)
        names = _TENSORS + _KEPT * (len(self.snapshot_steps) > 0)
        tensors = {name: getattr(self, name).cpu().contiguous() for name in names}
        json.dumps([self.log_z, self.settings], allow_nan=False)  # fail before anything is replaced
        write_with(folder / "particles.safetensors", lambda temporary: save_file(tensors, temporary))
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "sha256": sha256_of(folder / "particles.safetensors"),
            "log_z": self.log_z,
            "settings": self.settings,
        }
        write_json(folder / "particles.json", header)
        if view is not None:
            write_json(folder / "view.json", view.described())
        return folder

    @staticmethod
    def load(folder: str | Path) -> Result:
        """Read what `save` wrote; a missing, foreign or damaged file is refused."""
        folder = Path(folder)
        try:
            header = read_json(folder / "particles.json")
        except (FileNotFoundError, NotADirectoryError) as e:
            raise InvalidInput(f"{folder} holds no particles.json; give the folder that Result.save wrote") from e
        except (OSError, ValueError) as e:
            raise InvalidInput(f"{folder / 'particles.json'} is not JSON ({e}); the file is damaged or foreign") from e
        ours = isinstance(header, dict) and header.get("format") == _FORMAT and header.get("version") == _VERSION
        if not ours or "settings" not in header:
            raise InvalidInput(f"{folder / 'particles.json'} is not a truetilt result of version {_VERSION}")
        path = folder / "particles.safetensors"
        if not path.is_file() or sha256_of(path) != header.get("sha256"):
            raise InvalidInput(
                f"{path} is missing or does not match the checksum in particles.json; save the result again"
            )
        try:
            tensors = load_file(check_plain(path))
        except (OSError, SafetensorError) as e:
            raise InvalidInput(f"{path} cannot be read ({e}); save the result again") from e
        check_tensors(path, tensors)
        check_header(folder / "particles.json", header["settings"], len(tensors["log_weights"]))
        return Result(**tensors, settings=header["settings"])


def _runs(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of every run that a result unites."""
    return [run for part in settings["united"] for run in _runs(part)] if "united" in settings else [settings]


def _repeated(settings: dict[str, Any]) -> bool:
    """Whether two of the united runs drew a population from the same uniforms."""
    runs = [r for r in _runs(settings) if {"seed", "first_population", "populations"} <= r.keys()]
    drawn = sorted((r["seed"], r["first_population"], r["first_population"] + r["populations"]) for r in runs)
    return any(one[0] == next[0] and next[1] < one[2] for one, next in pairwise(drawn))

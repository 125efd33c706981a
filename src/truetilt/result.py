"""What a run gives back: weighted particles, log Z, and the record of how they came to be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .core.arguments import folder_of, function, has, listed, number, path_of, plain, shown, tensor_of
from .core.errors import DegenerateWeights, InvalidInput
from .core.logits import draw_from
from .core.spent import Spent
from .core.storage import write_json
from .runtime.memory import check_fits
from .runtime.result_files import load_tensors, names_of, save_tensors
from .runtime.settings import constant_of, known_of, repeated, runs_of
from .runtime.snapshots import Snapshots, no_snapshots, united
from .smc.diagnostics import STIRRED, Stirring, figures_of, lines_of
from .smc.genealogy import roots
from .smc.resampling import effective_sample_size, log_mean_exp, multinomial, normalised
from .smc.sampler import OUTPUT, Stream
from .smc.trust import Trust, judge
from .smc.uncertainty import (
    Estimate,
    History,
    Interval,
    Spread,
    Spreader,
    across_populations,
    interval,
    of_a_probability,
    of_log_z,
    of_mean,
)
from .smc.weight_findings import Finding, Verdict
from .viz.steer_story import story_lines

if TYPE_CHECKING:
    from .viz.plots import Plots
    from .viz.views import View


@dataclass(frozen=True, repr=False)
class Result:
    """What a run returns: weighted particles of every population, log Z, and the record of the steps.

    Estimates use all populations together, each weighted by its mass, which needs no correction. A run fills every
    field; to build a result by hand, the first six are needed, the others are empty by default.

    Args:
        particles: Final states [populations, particles, D]: int64 tokens, or reals.
        log_weights: Log-weights, float64 [populations, particles], unnormalised; -inf is a dead particle.
        times: Time after the first draw and after every step, float64 [steps + 1], from 1 to 0.
        ess: Effective sample size of the weights that each resampling saw, float64 [steps + 1, populations], 0 to N.
        log_z_path: Estimate of log Z after each step, float64 [steps + 1, populations].
        ancestors: Which particle each one descends from, int32 [steps + 1, populations, particles], 0 to N - 1.
        settings: How the run was made, as plain data: model, seed, versions, ... Empty by default.
        moved: Share of particles that rejuvenation moves changed, [steps + 1, populations], 0 to 1; empty by default.
        accepted: Mean acceptance probability of those moves, [steps + 1, populations], 0 to 1; empty by default.
        snapshot_steps: Steps after which `run(..., snapshots=)` kept the particles, int64 [kept]; none by default.
        snapshot_particles: The particles kept, [kept, populations, particles, D]; none by default.
        snapshot_log_weights: Their log-weights, float64 [kept, populations, particles]; none by default.
        counts: Rounds, evaluations, calls and distinct calls of each step, int64 [steps + 1, 4]; none by default.
    """

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
    counts: Tensor = field(default_factory=lambda: torch.zeros(0, 4, dtype=torch.int64))  # see `spent`

    def __post_init__(self) -> None:
        shape = tuple(self.log_weights.shape) if isinstance(self.log_weights, Tensor) else None
        empty = any(getattr(part, "is_meta", False) for part in (self.particles, self.log_weights))
        if not isinstance(self.particles, Tensor) or shape is None or len(shape) != 2 or 0 in shape or empty:
            raise InvalidInput(
                f"a result holds particles {shown(self.particles)} and log-weights {shown(self.log_weights)}; give "
                "tensors [populations, particles, D] and [populations, particles], as a run returns"
            )
        if tuple(self.particles.shape[:2]) != shape:
            raise InvalidInput(
                f"particles have shape {tuple(self.particles.shape)} and log-weights {shape}; their first two axes, "
                "populations and particles, must agree"
            )

    def __repr__(self) -> str:
        populations, n = self.log_weights.shape
        union = float(effective_sample_size(self.log_weights.reshape(-1)))
        ess = f"effective sample size {union:.4g} of {populations * n}"
        shape = f"{populations} x {n} particles of shape {tuple(self.particles.shape[2:])}"
        return f"Result({shape}, log Z {self.log_z:.6g}, {ess}; ask .trust() how far to trust it)"

    @property
    def log_z(self) -> float:
        """log of the estimated normalising constant, over the union of the populations; `log_z_words` says which."""
        return float(log_mean_exp(self.log_weights.reshape(-1)))

    @property
    def log_z_words(self) -> str:
        """Which constant `log_z` estimates; samplers of one target differ in how often they divide by $p(zeta)$."""
        constant = constant_of(self.settings)
        return "a constant that this model does not name" if constant is None else constant.words

    def log_z_less(self, share: float, log_p_zeta: float) -> float:
        """$log sum p0(x) p(zeta|x)^alpha$ less `share` times $log p(zeta)$, converted from whichever share `log_z` has.

        share 0 is the sum alone, 1 what `Tilted` estimates, alpha what `Tempered` and `AnyOrder` do.
        """
        constant, share, log_p = constant_of(self.settings), number("share", share), number("log_p_zeta", log_p_zeta)
        if not (math.isfinite(share) and math.isfinite(log_p)):
            raise InvalidInput(f"share is {share} and log p(zeta) {log_p}; both must be finite")
        if constant is None or constant.share is None:
            raise InvalidInput(f"log Z is {self.log_z_words}: there is no p(zeta) in it to convert by")
        return self.log_z + (constant.share - share) * log_p

    @property
    def spent(self) -> Spent:
        """What the answer cost: rounds and evaluations of networks, calls of the reward and distinct ones.

        The cost of the pilots and fits of the ramps and twists that the run was given is included.
        """
        counts = Spent(*self.counts.sum(0).tolist()) if len(self.counts) else Spent()
        # joined runs may share a pilot or a fit, which then counts once
        before = {json.dumps(run.get("spent before", {})) for run in runs_of(self.settings)}
        return reduce(Spent.plus, (Spent(**json.loads(one)) for one in before), counts)

    @property
    def evaluations(self) -> int:
        """How many sequences were evaluated by a network, pilots and fits included."""
        return self.spent.evaluations

    @property
    def story(self) -> list[str]:
        """What `tt.steer` did, why and at what cost, and what twice the budget would buy; empty for other runs."""
        return story_lines(self.settings["steer"]) if "steer" in self.settings else []

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
        """The ancestor of each particle at every step [steps + 1, populations, particles]."""
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

        return write_report(self, path_of("path", path), view, title)

    def expectation(self, h: Callable[[Tensor], Tensor]) -> Tensor:
        """Weighted mean of h(x); h maps a batch of states [B, D] to values [B, ...]."""
        return of_mean(self._weighed(), self._values(h)).value

    def log_z_interval(self, level: float = 0.95, by: Spreader = across_populations) -> Interval:
        """log Z with an error bar: across populations (2 or more, better 16), or by=genealogy() for a single one."""
        return self._interval(of_log_z(self._weighed()), level, by)

    def expectation_interval(
        self, h: Callable[[Tensor], Tensor], level: float = 0.95, by: Spreader = across_populations
    ) -> Interval:
        """`expectation(h)` with an error bar, one for each entry of h; `by` as in `log_z_interval`.

        If h is 0 or 1 the estimate is a probability, and its interval stays within [0, 1].
        """
        values = self._values(h)
        estimate = of_mean(self._weighed(), values)
        if not estimate.value.isfinite().all():
            raise InvalidInput(
                "h returned NaN or infinite values for particles that have weight; their mean has no error bar"
            )
        found = self._interval(estimate, level, by)
        if not bool(((values == 0) | (values == 1)).all()):
            return found
        return of_a_probability(found, self._draws())

    @property
    def log_z_stderr(self) -> float | None:
        """Standard error of log Z across populations; None where there is one population, no mass, or copies of one."""
        if self.log_weights.shape[0] < 2 or self.log_z == -torch.inf or repeated(self.settings):
            return None
        return float(self.log_z_interval().stderr)

    def trust(self) -> Trust:
        """How far to trust this answer: a verdict with its reasons, in plain words when printed."""
        stirring = Stirring(self.moved, self.accepted)
        found = [Finding(Verdict(verdict), words) for verdict, words in self.settings.get("findings", ())]
        return judge(figures_of(self._history(), self.particles, stirring, known_of(self.settings)), found)

    def draw(self, n: int, seed: int = 0) -> Tensor:
        """n unweighted draws from the union by mass, in random order [n, D]. Same seed, same draws."""
        if isinstance(n := plain(n), bool) or not isinstance(n, int) or n < 1:
            raise InvalidInput(f"cannot draw {shown(n)} samples; ask for a whole number of them, at least one")
        check_fits(8 * n * (3 + self.particles[0, 0].numel()), f"{n} draws", self.particles.device)
        stream = Stream(seed, device=self.particles.device)
        log_w = self.log_weights.reshape(-1)
        height = (torch.arange(n, device=log_w.device) + stream.uniforms(0, OUTPUT, 1, 1)[0]) / n
        chosen = draw_from(self.weights.reshape(-1).cumsum(0), height)
        shuffle = stream.uniforms(1, OUTPUT, 1, n)[0].argsort()
        return self.particles.flatten(0, 1)[chosen[shuffle]]

    def draw_independent(self, seed: int = 0) -> Tensor:
        """One draw from each living population [living, D]: mutually independent, each with a bias of order 1/N."""
        populations, n = self.log_weights.shape
        alive = (self.population_log_z > -torch.inf).nonzero().squeeze(-1)
        if len(alive) == 0:
            raise DegenerateWeights("every population died: there is nothing to draw")
        u = Stream(seed, device=self.particles.device).uniforms(2, OUTPUT, populations, 1).expand(populations, n)
        chosen = multinomial(self.log_weights, u).ancestors[:, :1]
        first = torch.gather(self.particles, 1, chosen[..., None].expand(-1, -1, self.particles.shape[-1]))
        return first[alive, 0]

    @staticmethod
    def union(results: Sequence[Result]) -> Result:
        """Several runs joined into one result, their populations side by side. The union is weighted by mass and needs
        no correction.
        """
        results = listed("the results to unite", results, "give a list of results")
        if not results:
            raise InvalidInput("no results to unite; give at least one")
        for strange in (found for found in results if not isinstance(found, Result)):
            raise InvalidInput(f"one of the results to unite is {shown(strange)}; give results of runs")
        first = results[0]
        for other in results[1:]:
            if other.log_weights.shape[1:] != first.log_weights.shape[1:] or not torch.equal(other.times, first.times):
                raise InvalidInput("results to unite must have the same number of particles and the same time grid")
            kinds = [(one.particles.shape[2:], one.particles.dtype) for one in (first, other)]
            if kinds[0] != kinds[1]:
                raise InvalidInput(f"results to unite have particles of {kinds[0]} and {kinds[1]}; they must be alike")
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
            torch.stack([r.counts for r in results]).sum(0),
        )

    def _weighed(self) -> Tensor:
        """The log-weights; raises if all are -inf."""
        if self.log_z == -torch.inf:
            raise DegenerateWeights("every particle has weight zero: there is nothing to average or draw")
        return self.log_weights

    def _draws(self) -> float:
        """The most independent draws that all populations are worth: copies of one particle that no move has changed
        count once.
        """
        stirred = bool((self.moved.sum(0) >= STIRRED).any())
        if stirred or self.ancestors.shape[1:] != self.log_weights.shape:  # some populations of a run
            return float(effective_sample_size(self.log_weights.reshape(-1)))
        return lines_of(self._history())

    def _values(self, h: Callable[[Tensor], Tensor]) -> Tensor:
        function("h", h, "(x)", "of a batch of states [B, D]")
        need, batch = "return a number, or several, for each state", self.particles.flatten(0, 1)
        value = tensor_of("what h returned", h(batch), need, self.log_weights.device)
        if value.shape[:1] != batch.shape[:1]:
            raise InvalidInput(
                f"h returned shape {tuple(value.shape)}; of a batch of states {tuple(batch.shape)} it must return "
                f"[{len(batch)}, ...]"
            )
        return value.unflatten(0, self.log_weights.shape)

    def _history(self) -> History:
        """The record that error bars are computed from; without a resampler if joined runs used different ones."""
        ways = [(run.get("resampler"), run.get("coupling")) for run in runs_of(self.settings)]
        resampler, coupling = ways[0] if all(way == ways[0] for way in ways) else (None, None)
        return History(self.log_weights, self.ancestors, self.ess, resampler, coupling != "independent")

    def _interval(self, estimate: Estimate, level: float, by: Spreader) -> Interval:
        if repeated(self.settings):
            raise InvalidInput(
                "two of the united runs share a seed and a population number, so they are copies and no error bar can "
                "be had; run them with different seeds, or with first_population"
            )
        function("by", by, "(estimate, history)", "tt.across_populations or tt.genealogy()")
        level, spread = number("the level of an interval", level), by(estimate, self._history())
        if not isinstance(spread, Spread):
            raise InvalidInput(f"`by` returned {shown(spread)}; give tt.across_populations or tt.genealogy()")
        return interval(estimate, spread, level)

    def save(self, folder: str | Path, view: View | None = None) -> Path:
        """Write particles.safetensors, then particles.json with its checksum, into a folder; a view as view.json."""
        folder = folder_of("folder", folder)
        if view is not None:
            has("view", view, ("described", "tile"), "give tt.Images, tt.TextView or the like")
        save_tensors(
            folder, {name: getattr(self, name) for name in names_of(self.snapshot_steps)}, self.log_z, self.settings
        )
        if view is not None:
            write_json(folder / "view.json", view.described())
        return folder

    @staticmethod
    def load(folder: str | Path) -> Result:
        """Read what `save` wrote; a missing, foreign or damaged file is refused."""
        tensors, settings = load_tensors(path_of("folder", folder))
        return Result(**tensors, settings=settings)

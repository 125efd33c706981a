"""Diffusions of real vectors: every sampler against exact draws of the tempered target.

p0 is a mixture of 6 Gaussians with means 2 z, standard deviation 0.5 and weights softmax(z), z standard normal. The
first two coordinates are observed with an error of 1, and zeta is their mean over the components' means. The error is
the sliced Wasserstein distance to exact draws; its floor is that of as many independent draws.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..api import run
from ..commands.job_runner import Answer, Experiment, Job, Settings
from ..commands.samplers import HALF
from ..continuous.kernels import Kernel, euler_maruyama, exponential, heun
from ..continuous.mixtures import GaussianMixture, Observation
from ..continuous.models import Guided
from ..continuous.observed_mixture import Observed
from ..continuous.on_clock import Steered, Tempered, Tilted, Unweighted
from ..continuous.processes import VP
from ..continuous.quadrature import line_flow
from ..diffusion.grids import uniform_grid
from ..metrics.cloud_distances import median_distance, mmd, sliced_wasserstein, sphere
from ..smc.resampling import never
from ..smc.sampler import OUTPUT, Stream
from ..targets.on_clock import SQUARE, Clockwork
from .sde_figure import draw

COMPONENTS = 6
DIMENSIONS, ALPHAS = (2, 8, 32), (1.0, 2.0, 4.0, 8.0)
STEPS, PARTICLES, SEEDS = 200, 2000, 8
SHOWN = (8, 4.0)  # dimension and alpha that are run in full with --quick too, and at several steps and particles
REFERENCE, KERNEL_REFERENCE, DIRECTIONS, FLOORS = 20_000, 1_000, 50, 4
FIGURES = ("sliced_wasserstein", "mmd")


def problem(dimension: int, seed: int, device: str = "cpu") -> Observed:
    """Mixture number `seed`, noised by VP 0.1 -> 20."""
    generator = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn((COMPONENTS, dimension), generator=generator, dtype=torch.float64)
    weights = torch.randn((COMPONENTS,), generator=generator, dtype=torch.float64).softmax(0)
    seen = Observation(means[:, :2].mean(0), (0, 1), 1.0)
    return Observed(VP(0.1, 20.0), GaussianMixture(weights, means, 0.5), seen).to(device)


def guidance(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    return Unweighted(p.model(), Guided(p.base, p.conditional, alpha), kernel=kernel)


def tilted(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    return Tilted(p.model(), alpha, kernel=kernel)


def leaned(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    return Tilted(p.model(), alpha, kernel=kernel).leaned()


def steered(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    """The base weighed by a growing power of the likelihood, proposed with equally strong guidance."""
    climbing = Guided(p.base, p.conditional, lambda t: alpha * SQUARE(1 - t))
    return Steered(p.model(), p.potential, alpha, SQUARE, climbing, kernel=kernel)


def edges(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    return Tempered(p.model(), alpha, 1.0, kernel=kernel)


def guided_edges(p: Observed, alpha: float, kernel: Kernel = euler_maruyama) -> Clockwork:
    return Tempered(p.model(), alpha, alpha, kernel=kernel)


class SdeMethod(NamedTuple):
    """How a sampler is built, and the log Z it estimates; None if it has no weights."""

    build: Callable[..., Clockwork]
    log_z: Callable[[Observed, float], float] | None


METHODS = {
    "guidance": SdeMethod(guidance, None),
    "smc-tilted": SdeMethod(leaned, Observed.log_z_tilted),
    "smc-tilted-plain": SdeMethod(tilted, Observed.log_z_tilted),
    "smc-steered": SdeMethod(steered, Observed.log_z),
    "smc-edges": SdeMethod(edges, Observed.log_z_tempered),
    "smc-edges-guided": SdeMethod(guided_edges, Observed.log_z_tempered),
}
KERNELS = {"euler_maruyama": euler_maruyama, "exponential": exponential, "heun": heun}


class Cell(NamedTuple):
    """One point of the figure: `seeds` problems, each run by every named sampler."""

    dimension: int
    alpha: float
    steps: int
    particles: int
    seeds: int
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.dimension}-{self.alpha:g}-{self.steps}-{self.particles}"


def cells(settings: Settings) -> list[Cell]:
    """Every dimension and alpha, then steps and particles at `SHOWN`; --quick takes fewer of all but `SHOWN` itself."""
    quick, every = settings.quick, tuple(name for name in METHODS if not (settings.quick and name == "smc-steered"))
    lines = ("guidance", "smc-tilted") if quick else ("guidance", "smc-tilted", "smc-tilted-plain", "smc-edges-guided")
    main = [
        Cell(d, a, STEPS // 2, PARTICLES // 2, 2, lines)
        if quick and (d, a) != SHOWN
        else Cell(d, a, STEPS, PARTICLES, SEEDS, every)
        for d in DIMENSIONS
        for a in ALPHAS
    ]
    steps, particles = ((50,), (500,)) if quick else ((25, 50, 100, 400), (250, 500, 1000, 4000))
    sweep = [Cell(*SHOWN, t, PARTICLES, SEEDS, lines) for t in steps]
    return main + sweep + [Cell(*SHOWN, STEPS, n, SEEDS, lines) for n in particles]


def jobs(settings: Settings) -> list[Job]:
    """A job for each cell and problem, the pictures, and a curve of the limit for each kernel and model."""
    kernels = ("euler_maruyama",) if settings.quick else tuple(KERNELS)
    curves = [Job(f"limit-{k}-{v}", one_limit, (k, v, settings)) for k in kernels for v in VALUES]
    found = [
        Job(f"{cell.name}-{seed}", one_cell, (cell, seed, settings))
        for cell in cells(settings)
        for seed in range(cell.seeds)
    ]
    return [*curves, Job("picture", picture, (settings,)), *found]


class CloudMeasure:
    """Distances of weighted particles to exact draws from a target."""

    def __init__(self, target: GaussianMixture, seed: int) -> None:
        self.target, self.seed = target, seed
        self.exact = self.draws(REFERENCE, 0)
        self.few = self.exact[:KERNEL_REFERENCE]
        self.lines = sphere(DIRECTIONS, target.dimension, seed).to(self.exact.device)
        self.bandwidth = median_distance(self.few)

    def draws(self, n: int, number: int) -> Tensor:
        """Independent draws from the target; each `number` has its own."""
        stream, width = Stream(self.seed, device=self.target.means.device), self.target.dimension + 1
        return self.target.draw(stream.uniforms(number, OUTPUT, 1, n * width).reshape(n, width))

    def __call__(self, x: Tensor, weights: Tensor | None = None) -> Answer:
        far = sliced_wasserstein(x, self.exact, self.lines, weights, power=1.0)
        return {"sliced_wasserstein": far, "mmd": mmd(x, self.few, self.bandwidth, weights)}

    def floor(self, n: int) -> Answer:
        """The mean over a few clouds of n independent draws."""
        each = [self(self.draws(n, 1 + k)) for k in range(FLOORS)]
        return {key: statistics.fmean(one[key] for one in each) for key in FIGURES}


def one_cell(cell: Cell, seed: int, settings: Settings) -> Answer:
    """Every sampler of a cell on one problem."""
    p = problem(cell.dimension, seed, settings.device)
    measure = CloudMeasure(p.target(cell.alpha), settings.seed * 1000 + seed)
    out = {"iid": measure.floor(cell.particles) | {"log_z_error": None, "ess": 1.0}}
    for name in cell.methods:
        method = METHODS[name]
        result = run(
            method.build(p, cell.alpha),
            uniform_grid(cell.steps),
            particles=cell.particles,
            seed=settings.seed * 1000 + seed,
            resample=never if method.log_z is None else HALF,
        )
        error = None if method.log_z is None else abs(result.log_z - method.log_z(p, cell.alpha))
        out[name] = measure(result.particles[0], result.weights[0])
        out[name] |= {"log_z_error": error, "ess": float(result.final_ess[0]) / cell.particles}
    return {"methods": out, "prior_gap": p.prior_gap(cell.alpha)}


def collect(settings: Settings, answers: dict[str, Answer]) -> Answer:
    """Means over the problems, and ratios of means."""
    rows, gaps = [], []
    for cell in cells(settings):
        each = [answers[f"{cell.name}-{seed}"] for seed in range(cell.seeds)]
        gaps += [one["prior_gap"] for one in each]
        rows += [_row(cell, name, [one["methods"] for one in each]) for name in ("iid", *cell.methods)]
    limits = [row for key, answer in answers.items() if key.startswith("limit-") for row in answer["rows"]]
    return {
        "experiment": "sde",
        "reference": REFERENCE,
        "largest_prior_gap": max(gaps),
        "notes": _findings(rows),
        "rows": rows,
        "limits": sorted(limits, key=lambda r: (r["kernel"], r["value"], r["alpha"], r["steps"])),
        "picture": answers["picture"],
    }


def _row(cell: Cell, name: str, each: list[Answer]) -> Answer:
    means = {key: statistics.fmean(one[name][key] for one in each) for key in (*FIGURES, "ess")}
    floors = {key: statistics.fmean(one["iid"][key] for one in each) for key in FIGURES}
    errors = [one[name]["log_z_error"] for one in each]
    return {
        "dimension": cell.dimension,
        "alpha": cell.alpha,
        "method": name,
        "steps": cell.steps,
        "particles": cell.particles,
        "ratio_to_floor": means["sliced_wasserstein"] / floors["sliced_wasserstein"],
        "mmd_ratio": means["mmd"] / floors["mmd"],
        "log_z_error": None if None in errors else statistics.fmean(errors),
        "ess": means["ess"],
        "sliced_wasserstein": means["sliced_wasserstein"],
        "mmd": means["mmd"],
        "problems": cell.seeds,
    }


def _findings(rows: list[Answer]) -> list[str]:
    """The main comparison in a sentence."""
    shown = {
        r["method"]: r["ratio_to_floor"]
        for r in rows
        if (r["dimension"], r["alpha"], r["steps"], r["particles"]) == (*SHOWN, STEPS, PARTICLES)
    }
    words = ", ".join(f"{name} {ratio:.2f}" for name, ratio in shown.items() if name != "iid")
    return [f"D = {SHOWN[0]}, alpha = {SHOWN[1]:g}, {STEPS} steps, {PARTICLES} particles, times the floor: {words}"]


# pictures and limits


def picture(settings: Settings) -> Answer:
    """Draws in the plane at alpha = 4: of 60 mixtures with one coordinate observed, one whose miss is easily seen."""
    p, alpha, n = problem(2, 19, settings.device), 4.0, 600
    p = replace(p, seen=Observation(p.p0.means[:, 0].mean(0, keepdim=True), (0,), 1.0))
    clouds = {"target": CloudMeasure(p.target(alpha), settings.seed).draws(n, 1)}
    for kind, name in (("guidance", "guidance"), ("truetilt", "smc-tilted")):
        fk, grid = METHODS[name].build(p, alpha), uniform_grid(STEPS)
        clouds[kind] = run(fk, grid, particles=PARTICLES, seed=settings.seed).draw(n)
    law = p.target(alpha)
    return {
        "alpha": alpha,
        "clouds": {kind: [[round(v, 3) for v in row] for row in x.tolist()] for kind, x in clouds.items()},
        "law": {"weights": law.weights.tolist(), "means": law.means.tolist(), "std": torch.as_tensor(law.std).tolist()},
    }


def on_a_line() -> Observed:
    """Two components on a line, where the limit of any sampler is an integral."""
    p0 = GaussianMixture(torch.tensor([0.3, 0.7]), torch.tensor([[-1.0], [1.2]]), 0.5)
    return Observed(VP(0.1, 20.0), p0, Observation(torch.tensor([0.8]), (0,), 1.0))


VALUES = ("guidance at 1", "guidance", "smc-tilted-plain", "smc-steered", "smc-edges")


def one_limit(kernel: str, value: str, settings: Settings) -> Answer:
    """Errors of log Z and of the mean with infinitely many particles, against the number of steps."""
    p, alpha, method = on_a_line(), 1.0 if value.endswith("at 1") else 4.0, METHODS[value.removesuffix(" at 1")]
    rows = []
    for steps in (25, 50, 100) if settings.quick else (25, 50, 100, 200):
        points = 1 + math.ceil(12 / (0.9 * math.sqrt(0.1 / steps)))  # closer than the noise of the last step
        fk = method.build(p, alpha, KERNELS[kernel])
        line = line_flow(fk, uniform_grid(steps), torch.linspace(-6, 6, points, dtype=torch.float64))
        exact = p.target(alpha)
        rows.append(
            {
                "steps": steps,
                "tv": float(0.5 * (line.density - exact.log_prob(line.points[:, None]).exp()).abs().sum() * line.width),
                "mean_error": line.expectation(lambda x: x) - float(exact.moments()[0]),
                "log_z_error": None if method.log_z is None else line.log_z - method.log_z(p, alpha),
            }
        )
    head = {"kernel": kernel, "value": value, "alpha": alpha}
    return {"rows": [head | row for row in rows]}


COLUMNS = ("dimension", "alpha", "method", "steps", "particles", "ratio_to_floor", "mmd_ratio", "log_z_error", "ess")
EXPERIMENT = Experiment("sde", "Diffusions: every sampler against Gaussian mixtures", jobs, collect, draw, COLUMNS)

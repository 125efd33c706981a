"""Sharper texts on request: `--sharpness` with weights, `--temperature` as the baseline without any."""

from __future__ import annotations

from typing import Any

from ..api import run
from ..core.bases import FeynmanKac
from ..core.errors import InvalidInput
from ..core.types import Model
from ..diffusion.grids import uniform_grid
from ..diffusion.guidance import Guided, posterior_level
from ..diffusion.kernels import tweedie
from ..diffusion.temperature import LocalTemperature
from ..result import Result
from ..runtime.checkpoints import check_states
from ..runtime.memory import check_run
from ..targets.on_clock import Unweighted
from ..targets.sharper import sharpened
from .outputs import SNAPSHOTS
from .request import SampleRequest
from .samplers import reveal_grid

COOLED = (
    "local temperature has no weights and is not the law p0^(1/temperature): every site is sharpened by itself; "
    "--sharpness samples that law"
)
SHARPENED = "in log Z, p0 is the model given the class and the reward log p(class | x): the same law, up to a factor"


def check_sharper(name: object, request: SampleRequest, texts: bool) -> None:
    """Raise if a request asks for a sharper base where there is none, or in two ways at once."""
    asked = [option for option in ("sharpness", "temperature") if getattr(request, option) is not None]
    if asked and not texts:
        raise InvalidInput(f"--{asked[0]} is for bundles of texts, and {name} is none; in Python: tt.sharpened")
    if len(asked) > 1:
        raise InvalidInput("--sharpness weighs and --temperature does not: two ways to sharper texts; give one of them")
    if asked and request.beta is not None:
        raise InvalidInput(f"--beta guides a proposal that --{asked[0]} does not have; leave one of them out")


def sample_sharper(model: Model, request: SampleRequest, options: dict[str, Any], end: int) -> Result:
    """Texts of a sharper base: weighted, revealed in random order; or by local temperature, in clock time.

    Local temperature leaves the probability of the token `end` as it is: cooled, it would make texts short.
    """
    sizes = request.sizes
    check_run(sizes, model.length, SNAPSHOTS, model.device)
    check_states(options.get("checkpoint"), model.length, model.process.states)
    fk: FeynmanKac
    if request.temperature is not None:
        fk, grid = _cooled(model, request.alpha, request.temperature, end), uniform_grid(sizes.steps)
    else:
        fk = sharpened(model, request.alpha, request.sharpness or 0.0)
        grid = reveal_grid(model, min(sizes.steps, model.length))
    how: dict[str, Any] = {"particles": sizes.particles, "populations": sizes.populations, "seed": request.seed}
    return run(fk, grid, snapshots=SNAPSHOTS, **how, **options)


def _cooled(model: Model, alpha: float, temperature: float, end: int) -> Unweighted:
    """Guidance of strength alpha (1: the conditional model), each site's posterior cooled."""
    score: Any = model.conditional
    if alpha != 1:
        score = Guided(model.process, model.base, score, alpha, posterior_level)
    return Unweighted(model, LocalTemperature(model.process, score, temperature, end), kernel=tweedie)


def facts_of(request: SampleRequest, condition: str) -> dict[str, Any]:
    """What a result records of a sharper target, for its report."""
    if request.sharpness is None:
        return {}
    target = f"p0(x)^{request.sharpness:g} p({condition}|x)^{request.alpha:g}"
    return {"target": target, "sharpened": {"alpha": request.alpha, "sharpness": request.sharpness}}


def notes_of(request: SampleRequest) -> list[str]:
    """What the reader of a summary must know."""
    return [COOLED] if request.temperature is not None else [SHARPENED] if request.sharpness is not None else []

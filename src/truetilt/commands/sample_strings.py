"""Sampling strings from a public network: after a prompt, in the gaps of a text, or without either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..api import run, sample
from ..core.errors import InvalidInput
from ..core.storage import write_text
from ..diffusion.processes import Masking
from ..models.gaps import has_gaps
from ..models.sequences import Sequences
from ..result import Result
from ..runtime.checkpoints import check_states
from ..runtime.memory import check_run
from ..targets.any_order import AnyOrder
from .outputs import SNAPSHOTS, command, noted, rows_of, summary_of, write_outputs
from .request import SampleRequest
from .sample_text import drawn_texts
from .samplers import reveal_grid
from .steerable import open_length

PARTICLES, STEPS = 16, 64  # defaults for strings


def sample_strings(
    words: list[str], nets: Sequences, request: SampleRequest, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Sample, save the particles, and write draws as a file of strings: FASTA, SMILES or text."""
    result = _sampled(nets, request, options)
    told = request._asdict() | ({"prompt": None, "length": None} if words[0] == "infill" else {})
    told |= {"steps": None} if words[0] == "infill" else {}
    gaps = request.prompt is not None and has_gaps(request.prompt)
    result = noted(
        result, bundle=words[-1], condition=request.prompt or request.condition, command=command(words, told),
        net="strings", length=None if gaps else result.particles.shape[-1],
    )  # fmt: skip
    x, weights = result.particles.flatten(0, 1), result.weights.reshape(-1)
    drawn = strings_of(nets, request.prompt, result.draw(len(x), request.seed))
    result.save(folder, nets.view)
    particles = zip(strings_of(nets, request.prompt, x), weights.tolist(), strict=True)
    summary = summary_of(result, rows_of(result)) | {
        "particles": [{"text": text, "weight": weight} for text, weight in particles],
        "texts": [{"text": text} for text in drawn],
    }
    ending, text = nets.written(drawn)
    write_text(folder / f"samples.{ending}", text)
    write_outputs(folder, summary, drawn_texts(summary))
    return summary


def strings_of(nets: Sequences, prompt: str | None, x: Any) -> list[str]:
    """The strings of rows [n, D]; for a text with gaps, the whole text."""
    return nets.filled(prompt, x) if prompt is not None and has_gaps(prompt) else nets.decode(x)


def _sampled(nets: Sequences, request: SampleRequest, options: dict[str, Any]) -> Result:
    """The weighted particles: in any order if a prompt is the condition, else by the base alone."""
    label = None if request.condition is None else _class(request.condition)
    length = open_length(nets, request.prompt, request.length)
    model = nets.model(request.prompt, length=length, condition=label)
    sizes = request.sizes
    check_run(sizes, model.length, SNAPSHOTS, model.device)
    check_states(options.get("checkpoint"), model.length, model.process.states)
    how: dict[str, Any] = {"particles": sizes.particles, "populations": sizes.populations, "seed": request.seed}
    how |= {"snapshots": SNAPSHOTS, "chunk": "auto"} | options
    if model.conditional is None or not isinstance(model.process, Masking):
        alpha = 0.0 if model.conditional is None else request.alpha
        if model.conditional is None and (request.alpha != 1 or request.beta is not None):
            raise InvalidInput("alpha and beta are of a condition, and there is none; give a --prompt")
        return sample(model, alpha, request.beta, num_inference_steps=sizes.steps, **how)
    grid = reveal_grid(model, min(sizes.steps, model.length))
    return run(AnyOrder(model, request.alpha, request.beta), grid, **how)


def _class(condition: str | int) -> int:
    if not str(condition).isdigit():
        raise InvalidInput(f"the condition is {condition!r}; classes of this net are numbers, and words are a --prompt")
    return int(condition)

"""`truetilt sample`: digits of a class from a bundle of networks, with a contact sheet; other kinds are dispatched.

A bundle is embedded (mnist, tiny-reviews) or a folder of the user's own. Tables: `sample_table`; texts: `sample_text`;
strings of a public network: `sample_strings`; residues of a backbone: `sample_protein`.
A model of a Python file is sampled here, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..metrics.images import accuracy, grey_levels, mean_distance
from ..models.hub import EMBEDDED, Digits, load
from ..models.sequences import Sequences
from ..models.text_bundle import Reviews, is_reviews
from ..result import Result
from ..smc.uncertainty import RECOMMENDED
from ..viz.sheets import sheet
from .named_nets import is_nets, is_strings
from .outputs import (
    DRAWS,
    as_tokens,
    command,
    merged_draws,
    noted,
    rows_of,
    sample_model,
    summary_of,
    write_draws,
    write_outputs,
)
from .python_file import is_named, load_model
from .real_digits import reference
from .request import Backbone, SampleRequest, TableNoise
from .sample_protein import NAME, check_other, protein_defaults, sample_protein
from .sample_strings import PARTICLES as STRING_PARTICLES
from .sample_strings import STEPS as STRING_STEPS
from .sample_strings import sample_strings
from .sample_table import PARTICLES as TABLE_PARTICLES
from .sample_table import STEPS as TABLE_STEPS
from .sample_table import sample_table
from .sample_text import PARTICLES as TEXT_PARTICLES
from .sample_text import STEPS as TEXT_STEPS
from .sample_text import sample_text
from .sharper_text import check_sharper
from .steerable import class_number

PARTICLES, STEPS = 64, 50  # defaults for digits
COLUMNS = 16
LEAST = 4  # fewest particles per population when a total is divided into populations


def with_defaults(name: Path, request: SampleRequest) -> SampleRequest:
    """The request with its defaults filled in; networks need a class, a table has a condition of its own."""
    texts = str(name) == "tiny-reviews" or is_reviews(Path(name))
    check_sharper(name, request, texts)
    if str(name) == NAME:
        request = protein_defaults(request)
        sizes = (request.particles, request.populations)
        particles, populations = sizes if request.populations is not None else spread(request.particles or 0)
        return request._replace(particles=particles, populations=populations)
    python = is_named(str(name))
    nets = not python and is_nets(name, ", or file.py:name of a tt.Model")
    strings = nets and is_strings(name)
    if not strings and (request.prompt is not None or request.length is not None):
        raise InvalidInput(f"{name} takes no prompt; a folder that transformers reads does, see docs/families.md")
    if nets and not strings and request.condition is None:
        raise InvalidInput(
            f"{name} holds nets of several classes; say which one to sample with --condition (samples without a "
            "condition: tt.Unweighted in Python, see 'How to choose')"
        )
    if python and request.condition is not None:
        raise InvalidInput(f"{name} has its condition inside, if any; leave out --condition")
    if not nets and request.condition is not None:
        raise InvalidInput(f"{name} is a table, which has its condition inside; leave out --condition")
    particles, steps = (PARTICLES, STEPS) if nets else (TABLE_PARTICLES, TABLE_STEPS)
    if texts:
        particles, steps = TEXT_PARTICLES, TEXT_STEPS
    if strings:
        particles, steps = STRING_PARTICLES, STRING_STEPS
    particles, populations = particles if request.particles is None else request.particles, request.populations
    if populations is None:
        particles, populations = spread(particles) if nets else (particles, RECOMMENDED)
    return request._replace(
        particles=particles, populations=populations, steps=steps if request.steps is None else request.steps
    )


def spread(particles: int) -> tuple[int, int]:
    """Divide a total into (particles, populations): at most the recommended number of populations, 4 or more particles
    in each.

    Populations are compared for error bars; there are fewer if the particles cannot be divided equally.
    """
    counts = (count for count in range(RECOMMENDED, 1, -1) if particles % count == 0 and particles // count >= LEAST)
    populations = next(counts, 1)
    return particles // populations, populations


def sample_any(
    name: Path, request: SampleRequest, noise: TableNoise, backbone: Backbone, folder: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Sample a bundle, a table or a protein, by a request with its defaults; `options` are passed to `run`."""
    check_other(name, backbone)
    if str(name) == NAME:
        if noise != TableNoise():
            raise InvalidInput(f"{NAME} decodes its sites one by one; leave out --process and --sigma-eps")
        return sample_protein(backbone, request, folder, options)
    if is_named(str(name)):
        if noise != TableNoise():
            raise InvalidInput(f"{name} is a model, which knows its process; leave out --process and --sigma-eps")
        return sample_own(str(name), request, folder, options)
    if is_nets(name):
        if noise != TableNoise():
            raise InvalidInput(f"{name} holds nets, which know their process; leave out --process and --sigma-eps")
        return sample_bundle(str(name), request, folder, options)
    return sample_table(name, noise, request, folder, options)


def sample_own(name: str, request: SampleRequest, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Sample a model of a Python file; draws.csv has its draws, figure.png how the run went."""
    model = load_model(name)
    if model.conditional is None and (request.alpha != 1 or request.beta is not None):
        raise InvalidInput(f"alpha and beta are of a condition, and {name} has none; leave them out")
    result = sample_model(model, request._replace(alpha=0.0) if model.conditional is None else request, options)
    result = noted(result, bundle=name, command=command(["sample", name], request._asdict()))
    draws = merged_draws(result, result.draw(result.log_weights.numel(), request.seed), as_tokens)[1]
    draws = sorted(draws, key=lambda one: -one.weight)
    result.save(folder)
    write_draws(folder, draws)
    summary = summary_of(result, rows_of(result)) | {"draws": [one._asdict() for one in draws], "files": [DRAWS]}
    write_outputs(folder, summary, _draw_steps(result))
    return summary


def sample_bundle(name: str, request: SampleRequest, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Sample, save the particles, and return their quality; figure.png shows draws, the wrong ones framed."""
    nets = load(name, request.device, trust_remote_code=request.trust_remote_code)
    if isinstance(nets, Sequences):
        return sample_strings(["sample", name], nets, request, folder, options)
    if isinstance(nets, Reviews):
        return sample_text(name, nets, request, folder, options)
    condition = class_number(request.condition)
    model = nets.model(condition, "potential" if request.beta is None else "cfg")
    if "judge" not in nets.nets:
        raise InvalidInput(f"{name} holds {sorted(nets.nets)} and no judge, by whom samples are shown; add one")
    result = sample_model(model, request, options | {"chunk": 64})
    result = noted(result, bundle=name, condition=condition, command=command(["sample", name], request._asdict()))
    rows = _figures(name, nets, condition, result)
    drawn = result.draw(min(64, result.log_weights.numel()), request.seed)
    wrong = (nets.judge(drawn).argmax(-1) != condition).tolist()
    result.save(folder, nets.view)
    summary = summary_of(result, rows)
    title = f"class {condition}, α = {request.alpha:g}: {len(drawn)} draws; in red what the judge calls another"
    picture = _draw(grey_levels(drawn, nets.process.vocabulary).cpu().numpy(), title, wrong)
    write_outputs(folder, summary, picture)
    return summary


def _figures(name: str, nets: Digits, condition: int, result: Result) -> dict[str, Any]:
    """Figures of the weighted particles of all populations together."""
    x, weights, levels = result.particles.flatten(0, 1), result.weights.reshape(-1), nets.process.vocabulary
    out = {"taken for the class by the judge": accuracy(nets.judge(x), condition, weights)} | rows_of(result)
    if name in EMBEDDED and len(x) > 1:
        real = reference()[condition]["test"]["distance"]
        out["diversity, of real digits"] = mean_distance(x, weights, levels) / real
    return out


def _draw_steps(result: Result) -> Any:
    """Effective sample size and log Z, step by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    result.plot.ess(left)
    result.plot.log_z(right)
    return figure


def _draw(images: Any, title: str, wrong: list[bool]) -> Any:
    from matplotlib.figure import Figure

    lines = -(-len(images) // COLUMNS)
    figure = Figure(figsize=(9, 0.6 * lines + 0.6), layout="constrained")
    sheet(figure.subplots(), images, min(COLUMNS, len(images)), title, wrong)
    return figure

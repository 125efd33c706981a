"""The web page: a form on the left, the run on the right, by a condition or a reward. Each open page has its own
run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import gradio as gr

from ..core.errors import InvalidInput
from . import pictures
from .choices import MODELS, ORDERED, PACES, PROCESSES, RESAMPLING, SAMPLERS, WEIGHTS
from .folders import found_at, sampler_for
from .form import RunForm, devices, faults, first_form, form_of, scalars, trimmed
from .jobs import StudioRun
from .sessions import Studio
from .steer_choices import EXAMPLES, RewardChoice
from .steer_page import steer_tab

POLL = 0.2  # seconds between updates
OWN, PROTEIN = ("process", "prompt"), ("open", "weights")  # fields that only some models have
SUITED = ("model", "path", *OWN, "condition", *PROTEIN, "sampler", "alpha", "particles", "populations", "steps")
ONE_ORDER = ("protein", "molecules")  # networks that are drawn site by site in one order
ALPHA = "α, the exponent"
PATHS = {  # label and example of the field
    "own": ("Path", "/home/me/table.json"),
    "protein": ("Structure, PDB or mmCIF: its path on this machine", "/home/me/1pga.pdb"),
}
HEAD = """<header class="studio-head"><h1>truetilt <span>studio</span></h1>
<p>Sample p₀(x) · p(ζ | x)<sup>α</sup> beside plain guidance, or p₀(x) · e<sup>λ r(x)</sup> beside what people use
instead.</p></header>"""
EMPTY = """<div class="empty"><p><b>Choose a model on the left and press Run.</b></p>
<p>You will see the particles appear step by step: on one side weighted, as truetilt has them, on the other as plain
guidance leaves them. Nothing you do here leaves this machine.</p></div>"""


def blocks(studio: Studio, known: Mapping[str, RewardChoice] = EXAMPLES) -> gr.Blocks:
    """The whole page; `known` are the rewards on offer."""
    with gr.Blocks(title="truetilt studio", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HEAD, apply_default_css=False)
        with gr.Tabs(elem_id="kinds"):
            with gr.Tab("Tilt by a condition", elem_id="by-condition"):
                _condition_tab(page, studio)
            with gr.Tab("Steer by a reward", elem_id="by-reward"):
                steer_tab(studio, known)
    return page


def _condition_tab(page: gr.Blocks, studio: Studio) -> None:
    plain: dict[str, Any] = {"wrap_lines": True, "show_line_numbers": False}
    with gr.Row(elem_classes="room"):
        with gr.Column(scale=1, min_width=310, elem_id="form", elem_classes="fields"):
            form = _form()
            with gr.Row():
                go = gr.Button("Run", variant="primary", elem_id="go", elem_classes="press")
                halt = gr.Button("Cancel", interactive=False, elem_id="halt", elem_classes="press")
        with gr.Column(scale=3, min_width=320, elem_id="seen", elem_classes="seen"):
            said = gr.HTML("", elem_id="said", apply_default_css=False)
            veil = gr.HTML("", elem_id="veil", apply_default_css=False)
            seen = gr.HTML(EMPTY, elem_id="stage", apply_default_css=False)
            told = gr.HTML("", elem_id="links", apply_default_css=False)
            again = gr.Accordion(
                "The same run in Python and on the command line",
                open=True,
                visible="hidden",
                elem_id="again",
                elem_classes="again",
            )
            with again:
                python = gr.Code(
                    label="Python", language="python", interactive=False, elem_id="python", lines=3, **plain
                )
                shell = gr.Code(label="Command", language="shell", interactive=False, elem_id="shell", lines=1, **plain)
    _wire(page, studio, form, [said, veil, seen, told, python, shell, again, go, halt])


def _form() -> dict[str, Any]:
    """The fields by the names of a `RunForm`, in its order."""
    first = first_form()
    out: dict[str, Any] = {}
    out["model"] = gr.Dropdown(
        _pairs({k: c.label for k, c in MODELS.items()}), value="nine", label="Model", elem_id="model",
        info=MODELS["nine"].words, filterable=False,
    )  # fmt: skip
    out["path"] = gr.Textbox(
        label=PATHS["own"][0], visible=False, elem_id="path", placeholder=PATHS["own"][1], max_lines=1
    )
    out["process"] = gr.Radio(
        _pairs(PROCESSES), value="masking", label="Noise of the table", visible=False, elem_id="process"
    )
    out["open"] = gr.Textbox(
        label="Residues to design, by their numbers; empty: all", visible=False, elem_id="open", max_lines=1,
        placeholder="39-41,54 or A10-20,B7",
    )  # fmt: skip
    out["weights"] = gr.Dropdown(
        _pairs(WEIGHTS), value="vanilla", label="Weights", visible=False, elem_id="weights", filterable=False
    )
    out["condition"] = gr.Dropdown(
        [], label="Condition", visible=False, elem_id="condition", allow_custom_value=True, value=None
    )
    out["prompt"] = gr.Textbox(
        label="Or a prompt, for one text net", visible=False, elem_id="prompt", max_lines=1,
        placeholder="the beginning of a text",
    )  # fmt: skip
    out["sampler"] = gr.Dropdown(
        _samplers("nine"), value="tilted", label="Sampler", elem_id="sampler",
        info=SAMPLERS["tilted"][1], filterable=False,
    )  # fmt: skip
    with gr.Row(elem_classes="pair"):
        out["alpha"] = gr.Number(first.alpha, label=ALPHA, elem_id="alpha", min_width=120)
        out["beta"] = gr.Number(1.0, label="β, of the proposal", elem_id="beta", visible=False, min_width=120)
    with gr.Row(elem_classes="pair"):
        out["particles"] = gr.Number(first.particles, label="Particles", elem_id="particles", min_width=120)
        out["populations"] = gr.Number(first.populations, label="× populations", elem_id="populations", min_width=120)
    with gr.Row(elem_classes="pair"):
        out["steps"] = gr.Number(first.steps, label="Steps", elem_id="steps", min_width=120)
        out["seed"] = gr.Number(0, label="Seed", elem_id="seed", min_width=120)
    with gr.Accordion("More", open=False, elem_id="more", elem_classes="more"):
        schemes = {key: scheme.words for key, scheme in RESAMPLING.items()}
        out["resampling"] = gr.Dropdown(
            _pairs(schemes), value="half", label="Resampling", elem_id="resampling", filterable=False
        )
        out["device"] = gr.Dropdown(devices(), value="cpu", label="Device", elem_id="device", filterable=False)
        out["pace"] = gr.Dropdown(_pairs(PACES), value="watch", label="Pace", elem_id="pace", filterable=False)
    return {name: out[name] for name in RunForm._fields}


def _pairs(named: Any) -> list[tuple[str, str]]:
    return [(words, key) for key, words in named.items()]


def _wire(page: gr.Blocks, studio: Studio, form: dict[str, Any], outputs: list[Any]) -> None:
    *_, go, halt = outputs
    fields = [form[name] for name in RunForm._fields]

    async def run(request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, ...]]:
        async for shown in followed(studio, str(request.session_hash), scalars(RunForm._fields, values)):
            yield shown

    def check(*values: Any) -> list[Any]:
        return _marked(scalars(RunForm._fields, values))

    def cancel(request: gr.Request) -> None:
        studio.leave(str(request.session_hash))

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "preprocess": False}
    go.click(check, fields, fields, queue=False, **quiet)
    go.click(run, fields, outputs, concurrency_limit=None, trigger_mode="multiple", **quiet)  # the last click counts
    halt.click(cancel, None, None, queue=False, **quiet)
    page.unload(cancel)
    suited = [form[name] for name in SUITED]
    form["model"].change(_suit, form["model"], suited, queue=False, **quiet)
    form["path"].blur(_offer, [form["model"], form["path"]], [form["condition"], form["sampler"]], queue=False, **quiet)
    form["sampler"].change(
        lambda sampler: (gr.update(info=words_of(SAMPLERS, sampler)), gr.update(visible=sampler == "tempered")),
        form["sampler"], [form["sampler"], form["beta"]], queue=False, **quiet,
    )  # fmt: skip


def _suit(model: str) -> list[Any]:
    """The fields that a model needs, with suitable values; earlier error messages are cleared."""
    model = model if isinstance(model, str) and model in MODELS else "nine"
    choice, first = MODELS[model], first_form(model)
    told = {name: {"value": getattr(first, name)} for name in SUITED}
    told |= {name: {"visible": model == "own"} for name in OWN}
    told |= {name: told[name] | {"visible": model == "protein"} for name in PROTEIN}
    told["path"] = {"visible": model in ("own", "protein"), "label": PATHS.get(model, PATHS["own"])[0]}
    told["path"]["placeholder"] = PATHS.get(model, PATHS["own"])[1]
    told["steps"] |= {"visible": model not in ONE_ORDER}
    told["alpha"] |= {"label": "Strength of the reward" if model == "molecules" else ALPHA}
    told["model"], told["sampler"] = {}, told["sampler"] | {"choices": _samplers(model)}
    told["condition"] |= {"visible": choice.condition is not None, "choices": list(choice.offered)}
    told["condition"]["label"] = choice.condition or "Condition"
    words = {"model": choice.words, "sampler": SAMPLERS[choice.sampler][1]}
    return [gr.update(info=words.get(name, ""), elem_classes=[], **told[name]) for name in SUITED]


def _samplers(model: str) -> list[tuple[str, str]]:
    """The samplers that a model may take, in words."""
    if model == "molecules":
        return [(SAMPLERS["in-order"][0], "in-order")]
    ordered = model in ONE_ORDER
    return [(words, key) for key, (words, _) in SAMPLERS.items() if (key in ORDERED if ordered else key != "in-order")]


def _offer(model: str, path: str) -> tuple[Any, Any]:
    """The classes of networks at a path, and a sampler for them."""
    if model != "own":
        return gr.skip(), gr.skip()
    there = found_at(trimmed(scalars(["path"], [path])["path"]))
    return gr.update(choices=list(there.judged or there.classes)), gr.update(value=sampler_for(there))


def words_of(known: Mapping[str, tuple[str, str]], key: object) -> str:
    """The description of a choice; nothing of one that there is not."""
    return known[key][1] if isinstance(key, str) and key in known else ""


def _marked(values: dict[str, Any]) -> list[Any]:
    """Every field with its description, or with its error message instead."""
    found = faults(values)
    words = {"model": getattr(MODELS.get(values["model"]), "words", "")}
    words["sampler"] = words_of(SAMPLERS, values["sampler"])
    return [
        gr.update(info=found.get(name, words.get(name, "")), elem_classes=["fault"] if name in found else [])
        for name in RunForm._fields
    ]


def _again(job: StudioRun) -> list[Any]:
    """The Python, the command, and whether to show them."""
    return [job.python, job.command, gr.update(visible=True if job.python else "hidden")]


async def followed(studio: Studio, page: str, values: dict[str, Any]) -> AsyncIterator[tuple[Any, ...]]:
    """Start a run and show it until it ends; the run is cancelled when the page is closed."""
    on, off, hidden = gr.update(interactive=True), gr.update(interactive=False), gr.update(visible="hidden")
    try:
        form = form_of(values)
    except InvalidInput:
        yield (
            pictures.alert("Nothing was run: see what is marked in the form."),
            *[gr.skip()] * 3,
            "",
            "",
            hidden,
            on,
            off,
        )
        return
    job, told = StudioRun(form, studio.folder), ""
    studio.start(page, job)
    try:
        yield pictures.status(job, studio.pool.ahead(job)), "", "", "", "", "", hidden, off, on
        while not job.over and studio.shown(page, job):
            await asyncio.sleep(POLL)
            known = job.command == told  # the model is loaded, so its description can be shown
            veil, *again = [gr.skip()] * 4 if known else [pictures.veil(job), *_again(job)]
            told = job.command
            yield pictures.status(job, studio.pool.ahead(job)), veil, pictures.stage(job), gr.skip(), *again, off, on
        if not studio.shown(page, job):
            return
        if job.token:
            studio.keep(job.token)
        last = gr.skip() if job.command == told else pictures.veil(job)
        yield pictures.status(job, 0), last, pictures.stage(job), pictures.links(job), *_again(job), on, off
    finally:
        studio.pool.cancel(job)
        if studio.jobs.get(page) is job:
            del studio.jobs[page]

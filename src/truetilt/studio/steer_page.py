"""The second tab of the page: a form for steering by a reward on the left, the answer on the right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import gradio as gr

from ..core.errors import InvalidInput
from . import steer_pictures as pictures
from .folders import TABLE, Found
from .form import devices, scalars
from .pictures import alert
from .sessions import Studio
from .steer_choices import SUBJECTS, RewardChoice, rewards_for
from .steer_form import SteerForm, first_steer_form, steer_faults, steer_form_of, subject_at
from .steer_jobs import SteerRun

POLL = 0.2  # seconds between updates
SUITED = ("model", "path", "condition", "reward", "strength", "evaluations", "calls", "steps")
EMPTY = """<div class="empty"><p><b>Choose a model and a reward, and press Steer.</b></p>
<p>You will see draws before and after with the reward of each, what was spent and why, how far to trust the answer, and
what other methods give for the same budget. Rewards are examples, or functions of a Python file that was named when the
studio was started: <code>truetilt studio --reward mine.py:score</code>. Nothing typed here is run.</p></div>"""


def steer_tab(studio: Studio, known: Mapping[str, RewardChoice]) -> None:
    """The form, the answer, and the event handlers between them."""
    plain: dict[str, Any] = {"wrap_lines": True, "show_line_numbers": False}
    with gr.Row(elem_classes="room"):
        with gr.Column(scale=1, min_width=310, elem_id="steer-form", elem_classes="fields"):
            form = _form(known)
            with gr.Row():
                go = gr.Button("Steer", variant="primary", elem_id="steer-go", elem_classes="press")
                halt = gr.Button("Cancel", interactive=False, elem_id="steer-halt", elem_classes="press")
        with gr.Column(scale=3, min_width=320, elem_id="steer-seen", elem_classes="seen"):
            said = gr.HTML("", elem_id="steer-said", apply_default_css=False)
            veil = gr.HTML("", elem_id="steer-veil", apply_default_css=False)
            links = gr.HTML("", elem_id="steer-links", apply_default_css=False)
            seen = gr.HTML(EMPTY, elem_id="steer-stage", apply_default_css=False)
            again = gr.Accordion(
                "The same in Python and on the command line",
                open=True,
                visible="hidden",
                elem_id="steer-again",
                elem_classes="again",
            )
            with again:
                python = gr.Code(
                    label="Python", language="python", interactive=False, elem_id="steer-python", lines=3, **plain
                )
                shell = gr.Code(
                    label="Command", language="shell", interactive=False, elem_id="steer-shell", lines=1, **plain
                )
    _wire(studio, known, form, [said, veil, seen, links, python, shell, again, go, halt])


def _form(known: Mapping[str, RewardChoice]) -> dict[str, Any]:
    """The fields by the names of a `SteerForm`, in its order."""
    first = first_steer_form(known)
    out: dict[str, Any] = {}
    out["model"] = gr.Dropdown(
        [(one.label, key) for key, one in SUBJECTS.items()], value=first.model, label="Model", elem_id="steer-model",
        info=SUBJECTS[first.model].words, filterable=False,
    )  # fmt: skip
    out["path"] = gr.Textbox(
        label="Path", visible=False, elem_id="steer-path", placeholder="/home/me/table.json", max_lines=1
    )
    out["condition"] = gr.Dropdown(
        [], label="Of which class", visible=False, elem_id="steer-condition", allow_custom_value=True, value=None
    )
    out["reward"] = gr.Dropdown(
        _offered(TABLE, known), value=first.reward, label="Reward r", elem_id="steer-reward",
        info=known[first.reward].words, filterable=False,
    )  # fmt: skip
    out["strength"] = gr.Number(
        first.strength, label="Strength λ", elem_id="steer-strength", info="The target is p₀(x) · exp(λ r(x))."
    )
    with gr.Row(elem_classes="pair"):
        out["evaluations"] = gr.Number(
            first.evaluations, label="Evaluations at most", elem_id="steer-evaluations", min_width=120
        )
        out["calls"] = gr.Number(first.calls, label="Calls at most", elem_id="steer-calls", min_width=120)
    out["seed"] = gr.Number(0, label="Seed", elem_id="steer-seed")
    with gr.Accordion("More", open=False, elem_id="steer-more", elem_classes="more"):
        out["steps"] = gr.Number(
            None, label="Steps of a draw", elem_id="steer-steps", info="Networks only; empty: as many as sites."
        )
        out["compare"] = gr.Checkbox(True, label="Compare with other methods", elem_id="steer-compare")
        out["device"] = gr.Dropdown(devices(), value="cpu", label="Device", elem_id="steer-device", filterable=False)
    return {name: out[name] for name in SteerForm._fields}


def _offered(kind: str, known: Mapping[str, RewardChoice]) -> list[tuple[str, str]]:
    return [(one.label, key) for key, one in rewards_for(kind, known).items()]


def _wire(studio: Studio, known: Mapping[str, RewardChoice], form: dict[str, Any], outputs: list[Any]) -> None:
    *_, go, halt = outputs
    names = SteerForm._fields
    fields = [form[name] for name in names]

    async def run(request: gr.Request, *values: Any) -> AsyncIterator[tuple[Any, ...]]:
        told = scalars(names, values)
        async for shown in followed_steering(studio, str(request.session_hash), told, known):
            yield shown

    def check(*values: Any) -> list[Any]:
        return _marked(scalars(names, values), known)

    def cancel(request: gr.Request) -> None:
        studio.leave(str(request.session_hash))

    def of_reward(reward: str) -> tuple[Any, Any]:
        one = known.get(reward) if isinstance(reward, str) else None
        return gr.update(info=one.words if one else ""), gr.skip() if one is None else one.strength

    def of_path(model: str, path: str) -> tuple[Any, Any]:
        told = scalars(["model", "path"], [model, path])
        there = subject_at(told) if told["model"] in SUBJECTS else Found()
        offered = _offered(there.kind, known)
        first: dict[str, Any] = {"value": offered[0][1]} if offered and model == "own" else {}
        return gr.update(choices=list(there.classes)), gr.update(choices=offered, **first)

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "preprocess": False}
    go.click(check, fields, fields, queue=False, **quiet)
    go.click(run, fields, outputs, concurrency_limit=None, trigger_mode="multiple", **quiet)  # the last click counts
    halt.click(cancel, None, None, queue=False, **quiet)
    form["model"].input(
        lambda model: _suit(model, known), form["model"], [form[name] for name in SUITED], queue=False, **quiet
    )
    form["reward"].change(of_reward, form["reward"], [form["reward"], form["strength"]], queue=False, **quiet)
    form["path"].blur(of_path, [form["model"], form["path"]], [form["condition"], form["reward"]], queue=False, **quiet)


def _suit(model: str, known: Mapping[str, RewardChoice]) -> list[Any]:
    """The fields that a model needs, with suitable values; earlier error messages are cleared."""
    model = model if isinstance(model, str) and model in SUBJECTS else SteerForm().model
    subject, first = SUBJECTS[model], first_steer_form(known, model)
    told: dict[str, dict[str, Any]] = {name: {"value": getattr(first, name)} for name in SUITED}
    told["model"] = {}
    told["path"] |= {"visible": model == "own"}
    told["condition"] |= {"visible": subject.condition is not None, "choices": list(subject.offered)}
    told["condition"]["label"] = subject.condition or "Of which class"
    told["reward"]["choices"] = _offered(subject.kind or TABLE, known)
    words = _words(first._asdict(), known)
    return [gr.update(info=words.get(name, ""), elem_classes=[], **told[name]) for name in SUITED]


def _words(values: Mapping[str, Any], known: Mapping[str, RewardChoice]) -> dict[str, str]:
    """The descriptions of the fields, shown if nothing is wrong."""
    return {
        "model": getattr(SUBJECTS.get(values["model"]), "words", ""),
        "reward": getattr(known.get(values["reward"]), "words", ""),
        "strength": "The target is p₀(x) · exp(λ r(x)).",
        "steps": "Networks only; empty: as many as sites.",
    }


def _marked(values: dict[str, Any], known: Mapping[str, RewardChoice]) -> list[Any]:
    """Every field with its description, or with its error message instead."""
    found, words = steer_faults(values, known), _words(values, known)
    return [
        gr.update(info=found.get(name, words.get(name, "")), elem_classes=["fault"] if name in found else [])
        for name in SteerForm._fields
    ]


def _again(job: SteerRun) -> list[Any]:
    """The Python, the command, and whether to show them."""
    return [job.python, job.command, gr.update(visible=True if job.python else "hidden")]


async def followed_steering(
    studio: Studio, page: str, values: dict[str, Any], known: Mapping[str, RewardChoice]
) -> AsyncIterator[tuple[Any, ...]]:
    """Start a steering and show it until it ends; it is cancelled when the page is closed."""
    on, off, hidden = gr.update(interactive=True), gr.update(interactive=False), gr.update(visible="hidden")
    try:
        form = steer_form_of(values, known)
    except InvalidInput:
        yield alert("Nothing was run: see what is marked in the form."), *[gr.skip()] * 3, "", "", hidden, on, off
        return
    job, told = SteerRun(form, studio.folder, known), ""
    studio.start(page, job)
    try:
        yield pictures.steer_status(job, studio.pool.ahead(job)), "", "", "", "", "", hidden, off, on
        while not job.over and studio.shown(page, job):
            await asyncio.sleep(POLL)
            fresh = job.python != told
            veil, *again = [pictures.steer_veil(job), *_again(job)] if fresh else [gr.skip()] * 4
            told = job.python
            yield (
                pictures.steer_status(job, studio.pool.ahead(job)), veil, pictures.steer_stage(job),
                pictures.steer_links(job), *again, off, on,
            )  # fmt: skip
        if not studio.shown(page, job):
            return
        last = gr.skip() if job.python == told else pictures.steer_veil(job)
        yield (
            pictures.steer_status(job, 0), last, pictures.steer_stage(job), pictures.steer_links(job), *_again(job),
            on, off,
        )  # fmt: skip
    finally:
        studio.pool.cancel(job)
        if job.token:
            studio.keep(job.token)
        if studio.jobs.get(page) is job:
            del studio.jobs[page]

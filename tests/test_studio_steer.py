"""Steering by a reward in the studio: fields, the same bits by Python, rivals, errors, cancelling, and in a browser."""

import asyncio
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from html import escape

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from test_studio import HOSTILE, OWN, called, choose, finished, house, opened, own_nets, set_values  # noqa: F401
from test_studio_text import texts  # noqa: F401
from truetilt.baselines.independent_draws import importance
from truetilt.cli.main import app
from truetilt.rewards import examples
from truetilt.studio import steer_baselines, steer_jobs, steer_page, steer_pictures
from truetilt.studio.background import CANCELLED, DONE, FAILED, Cancelled
from truetilt.studio.job_queue import Pool
from truetilt.studio.steer_baselines import AIMING, BEST, FK, IMPORTANCE, OURS, SHARES, Point
from truetilt.studio.steer_choices import EXAMPLES, SUBJECTS, named_rewards, rewards_for
from truetilt.studio.steer_curves import error_chart
from truetilt.studio.steer_form import SteerForm, first_steer_form, steer_faults, steer_form_of
from truetilt.studio.steer_jobs import SteerRun
from truetilt.viz.reward_gain import reward_bars

MINE = """
import truetilt as tt


def score(x):
    return (x[:, 1:] != x[:, :-1]).sum(-1).double()


def broken(x):
    raise RuntimeError("no value today")


spelled = tt.Reward(lambda text: text.count("C"), tokenizer="ACGT", one_at_a_time=True)
number = 3
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    return str(tmp_path / "mine.py")


def first(model="letters", **changes):
    return first_steer_form(EXAMPLES, model)._replace(**changes)


SMALL = {"evaluations": 3000, "calls": 400, "compare": False}


def done(form, folder, known=EXAMPLES):
    job = SteerRun(form, folder, known)
    job.run()
    assert job.state == DONE, job.message
    return job


# The examples.


def test_the_examples_say_what_they_are_called():
    x = torch.tensor([[1, 1, 0, 3], [2, 0, 0, 2]])
    assert examples.ones(x).tolist() == [2, 0]
    assert examples.apart(x).tolist() == [2, 0]
    assert examples.palindrome(x).tolist() == [False, True]
    image = torch.tensor([[0, 0, 0, 200, 0, 0, 200, 0, 0]])  # a left edge of two dark pixels
    assert examples.ink(image).item() == pytest.approx(400 / 9)
    assert examples.symmetry(image).item() == pytest.approx(-800 / 9)
    assert examples.height(image).item() == 2
    assert examples.exclamations("great! great!!") == 3
    assert examples.long_words("a bcd!") == 2
    assert examples.long_words("") == 0
    assert (examples.says_great("Great."), examples.says_great("greatly")) == (1, 0)
    assert examples.no_repeats("the film, the the end") == -2


# The form.


@pytest.mark.parametrize("model", [m for m in SUBJECTS if m != "own"])
def test_what_the_form_says_at_first_can_be_run(model):
    assert steer_faults(first(model)._asdict(), EXAMPLES) == {}


WRONG = {
    "no strength": ("strength", None), "a strength of nothing": ("strength", 0), "nan": ("strength", float("nan")),
    "words": ("strength", "2"), "half an evaluation": ("evaluations", 2.5), "none": ("evaluations", 0),
    "too few": ("evaluations", 95), "too many": ("evaluations", 10**12), "no evaluations": ("evaluations", None),
    "half a call": ("calls", 0.5), "too few calls": ("calls", 15), "more steps than sites": ("steps", 7),
    "seed": ("seed", -1), "another reward": ("reward", HOSTILE), "a reward of texts": ("reward", "exclamations"),
    "code": ("reward", "lambda x: 1"), "no reward": ("reward", None), "another model": ("model", "x"),
    "device": ("device", "cuda:77"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_value_is_told_at_its_field_and_makes_no_run(name):
    field, value = WRONG[name]
    values = first()._asdict() | {field: value}
    assert list(steer_faults(values, EXAMPLES)) == [field]
    with pytest.raises(tt.InvalidInput, match=field):
        steer_form_of(values, EXAMPLES)


def test_an_empty_limit_of_calls_is_none():
    assert steer_form_of(first()._asdict() | {"calls": None}, EXAMPLES).calls is None


def test_faults_of_the_model(texts, own_nets, tmp_path):  # noqa: F811
    def found(**values):
        return list(steer_faults(first(values.get("model", "letters"))._asdict() | values, EXAMPLES))

    assert found(model="mnist", condition="10") == found(model="mnist", condition="x") == ["condition"]
    assert found(model="mnist", condition="4") == found(model="mnist", condition="") == []
    assert found(model="tiny-reviews", condition="happy") == ["condition"]
    assert found(model="own", path=str(tmp_path / "none")) == ["path"]
    assert found(model="own", path=f"{texts}/sedd") == ["path"]  # one text net
    assert found(model="own", path=texts) == found(model="own", path=own_nets) == ["reward"]  # of tables
    assert found(model="own", path=texts, reward="exclamations", condition="calm") == []
    assert found(model="own", path=own_nets, reward="ink", condition="1") == []


def test_rewards_of_a_file_come_first_and_for_all_models(mine):
    known = {**named_rewards([f"{mine}:score"]), **EXAMPLES}
    for kind in ("table", "digits", "reviews"):
        assert next(iter(rewards_for(kind, known))) == f"{mine}:score"
    assert first_steer_form(known, "mnist").reward == f"{mine}:score"
    assert known[f"{mine}:score"].label == "score (mine.py)"


@pytest.mark.parametrize("name", ["none", "number"])
def test_a_reward_that_cannot_be_loaded_is_told_before_anything_is_served(mine, name):
    pytest.importorskip("gradio", reason="gradio is not installed (the ui extra has it)")
    told = CliRunner().invoke(app, ["studio", "--port", "7989", "--no-browser", "--reward", f"{mine}:{name}"])
    assert told.exit_code == 2
    assert name in told.stderr
    assert "studio:" not in told.stderr


# The same bits, and what is shown.


def forms(own_nets, texts, tmp_path, mine):  # noqa: F811
    (tmp_path / "t.json").write_text(json.dumps(OWN))
    own = {"model": "own", "evaluations": 700, "calls": 300, "compare": False, "seed": 2}
    return {
        "letters": first(**SMALL),
        "no limit of calls": first(reward="apart", strength=2.0, evaluations=3000, calls=None, compare=False),
        "nine": first("nine", **SMALL),
        "a table": first(**own, path=str(tmp_path / "t.json")),
        "nets": first(**own, path=own_nets, reward="symmetry", steps=5),
        "nets of a class": first(**own, path=own_nets, reward="ink", strength=0.01, condition="0", steps=8),
        "texts": first(**own, path=texts, reward="long_words", steps=4),
        "texts of a class": first(**own, path=texts, reward="no_repeats", condition="calm", steps=6),
        "my function": first(**SMALL)._replace(reward=f"{mine}:score"),
        "my Reward": first(**SMALL)._replace(reward=f"{mine}:spelled"),
    }


def test_the_python_gives_the_same_bits(own_nets, texts, tmp_path, mine, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    known = {**named_rewards([f"{mine}:score", f"{mine}:spelled"]), **EXAMPLES}
    for name, form in forms(own_nets, texts, tmp_path, mine).items():
        job, space = done(form, tmp_path, known), {}
        exec(job.python, space)
        assert space["result"].log_z == job.result.log_z, name
        assert torch.equal(space["result"].particles, job.result.particles), name
        assert (tmp_path / "run.html").stat().st_size > 10_000
        spent = job.result.settings["steer"]["spent"]
        assert spent["evaluations"] <= form.evaluations, name
        assert form.calls is None or spent["distinct"] <= form.calls, name


def test_the_command_gives_the_same_bits_where_there_is_one(own_nets, tmp_path, mine, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(json.dumps(OWN))
    known, own = {**named_rewards([f"{mine}:score"]), **EXAMPLES}, {"evaluations": 700, "calls": 300, "compare": False}
    for path, steps in ((str(tmp_path / "t.json"), None), (own_nets, 5)):
        job = done(first("own", **own, path=path, steps=steps)._replace(reward=f"{mine}:score"), tmp_path, known)
        said = CliRunner().invoke(app, [*shlex.split(job.command)[1:], "--out", f"out-{steps}"])
        assert said.exit_code == 0, said.output
        assert torch.equal(tt.Result.load(f"out-{steps}").log_weights, job.result.log_weights)
    assert done(first(**SMALL), tmp_path).command.startswith("# `truetilt steer` takes a reward of a file")
    words = done(first(**SMALL)._replace(reward=f"{mine}:score"), tmp_path, known).command
    assert words == "# `truetilt steer` does not take this table; use the Python"


def test_a_second_run_with_the_reward_of_a_file_has_the_same_bits(mine, tmp_path):
    """What a run asked is not known to the next: its budget buys as much."""
    known, form = named_rewards([f"{mine}:spelled"]), first(**SMALL)._replace(reward=f"{mine}:spelled")
    one, two = (done(form, tmp_path, known) for _ in range(2))
    assert torch.equal(one.result.log_weights, two.result.log_weights)


def test_before_after_and_the_exact_answer(tmp_path):
    job = done(first(**SMALL | {"evaluations": 12_000, "calls": 2000}), tmp_path)
    exact = job.exact
    assert abs(job.panes["ours"].mean - exact.mean) < 0.1
    assert job.panes["base"].mean < exact.mean - 2
    assert abs(job.result.log_z - exact.log_z) < 0.02
    for shown in job.panes.values():
        assert examples.ones(torch.as_tensor(shown.drawn)).tolist() == shown.rewards.tolist()
    page = steer_pictures.steer_stage(job)
    assert page.count('<section class="pane') == 3
    assert page.count('class="worth"') == 16
    story = job.result.settings["steer"]
    assert f"<b>{story['spent']['evaluations']:,}</b> of 12,000 network evaluations" in page
    assert f"<b>{story['spent']['distinct']:,}</b> of 2,000 calls of the reward" in page
    assert page.count("<li>") - page.count('class="worth"') >= len(story["stages"])
    assert "<h3>Trust</h3>" in page
    steps = page.partition('<details class="story"')[2].partition("</ol>")[0]
    assert steps.count("<li>") == len(job.result.story) - 2
    assert "Spent" not in steps
    assert page.count(escape(job.result.story[-1])) == 1
    assert 'id="story"' in (tmp_path / f"{job.token}.html").read_text(encoding="utf-8")


def test_the_others_stand_beside_ours_within_the_same_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(steer_jobs, "SHARES", (0.5, 1.0))
    monkeypatch.setattr(steer_baselines, "SEEDS", 2)
    form = first(evaluations=6000, calls=800, seed=1)
    job = done(form, tmp_path)
    assert [row.name for row in job.rows] == [OURS, IMPORTANCE, BEST, FK]
    for row in job.rows:
        assert row.evaluations <= form.evaluations
        assert row.calls <= form.calls
        assert {"reward", "naturalness", "diversity"} <= row.figures.keys()
    assert job.rows[0].figures["error"] < job.rows[1].figures["error"]
    assert [(name, len(points)) for name, points in job.curve.items()] == [(name, 2) for name in AIMING]
    assert all(len(point.errors) == 2 for points in job.curve.values() for point in points)
    assert job.curve[OURS][-1].mean < job.curve[IMPORTANCE][-1].mean
    page = steer_pictures.steer_stage(job)
    assert page.count("no target") == 2  # best of N, and what is said below
    assert all(f'<g class="m-{name}">' in page for name in AIMING)


def test_networks_draw_in_the_same_steps_and_are_judged_together(own_nets, tmp_path):  # noqa: F811
    form = first("own", path=own_nets, reward="ink", strength=0.01, steps=4, evaluations=400, calls=None)
    job = done(form, tmp_path)
    assert [row.name for row in job.rows] == [OURS, IMPORTANCE, BEST, FK]
    assert all(row.figures["naturalness"] < 0 and row.drawn is None for row in job.rows)
    assert job.curve == {}
    assert job.exact is None
    again = importance(
        steer_jobs.steer_task(form, EXAMPLES, lambda states: None).model, tt.Reward(examples.ink), 0.01,
        budget=tt.core.budget.Budget(400), walk=steer_baselines._in(4), seed=0,
    )  # fmt: skip
    assert again.spent.evaluations == job.rows[1].evaluations == 400
    assert torch.equal(again.states, torch.as_tensor(job.panes["base"].x))


def test_every_site_is_judged_once():
    for length in (1, 2, 5, 6, 16, 64, 784):
        stride = steer_baselines._coprime(length)
        assert sorted(site * stride % length for site in range(length)) == list(range(length))


def test_a_method_that_the_budget_does_not_buy_says_so_and_the_rest_goes_on(tmp_path):
    job = done(first(evaluations=96, calls=None), tmp_path)
    failed = {row.name: row.failed for row in job.rows}
    assert failed[OURS] == failed[IMPORTANCE] == ""
    assert "give at least that" in failed[BEST]
    assert "give at least that" in steer_pictures.steer_stage(job)


def test_texts_of_any_class_or_a_harsh_one_are_veiled(texts, tmp_path):  # noqa: F811
    own = {"path": texts, "reward": "exclamations", "evaluations": 200, "calls": None, "compare": False, "steps": 3}
    for condition, hidden in ((None, True), ("toxic", True), ("calm", False)):
        job = done(first("own", **own | {"condition": condition}), tmp_path)
        assert job.task.veiled == hidden
        assert bool(steer_pictures.steer_veil(job)) == hidden
        assert ("veiled" in steer_pictures.steer_stage(job)) == hidden


def test_hostile_words_are_escaped(tmp_path):
    job = SteerRun(first(), tmp_path, EXAMPLES)
    job.state, job.message, job.doing = "running", HOSTILE, HOSTILE
    assert "<img" not in steer_pictures.steer_status(job, 0)
    job.state = FAILED
    assert "<img" not in steer_pictures.steer_status(job, 0)
    job.rows = [steer_baselines.Row(FK, {}, failed=HOSTILE)]
    assert "<img" not in steer_pictures.steer_stage(job)


# Charts.


def test_the_chart_of_errors_holds_what_is_there():
    form = SteerForm(evaluations=800, calls=400)
    assert error_chart({}, form) == error_chart({OURS: []}, form) == ""
    drawn = error_chart({OURS: [Point(SHARES[0], (0.1, 0.2))], IMPORTANCE: [Point(s, (0.0,)) for s in SHARES]}, form)
    assert drawn.count("<polyline") == 2
    assert drawn.count('class="seed"') == 6
    assert ">50<" in drawn
    assert "Error against calls" in drawn
    assert "Error against evaluations" in error_chart({OURS: [Point(1.0, (0.1,))]}, form._replace(calls=None))
    assert "nan" not in drawn


def test_bars_of_rewards_share_a_range_and_forbidden_states_are_left_out():
    values, weights = torch.tensor([0.0, 1, 2, -torch.inf]).numpy(), torch.tensor([0.5, 0.25, 0.25, 0.0]).numpy()
    assert reward_bars(values, weights, (0.0, 4.0)).count("<rect") == 3
    assert reward_bars(values / 3, weights, (0.0, 1.0)).count("<rect") == 3
    assert "nan" not in reward_bars(values[:1], weights[:1], (0.0, 0.0))


# Cancelling and failing.

LONG = first(evaluations=3_000_000, calls=None, compare=False)


def test_a_cancelled_steering_stops_within_a_pass_and_frees_its_memory(tmp_path):
    pool = Pool()
    try:
        job, after = SteerRun(LONG, tmp_path, EXAMPLES), SteerRun(first(**SMALL), tmp_path, EXAMPLES)
        pool.submit(job)
        pool.submit(after)
        while job.passes == 0 and not job.over:
            time.sleep(0.005)
        pool.cancel(job)
        assert finished(job).state == CANCELLED
        at = job.passes
        assert finished(after).state == DONE
        assert job.passes == at < LONG.evaluations
        assert job.token == ""
        assert job.task.model is None
    finally:
        pool.close()


def test_cancelling_the_comparison_keeps_our_answer(tmp_path, monkeypatch):
    def stopped(*args):
        raise Cancelled

    monkeypatch.setattr(steer_jobs, "error_at", stopped)
    job = SteerRun(first(evaluations=3000, calls=400), tmp_path, EXAMPLES)
    job.run()
    assert job.state == CANCELLED
    assert "What was finished is below" in steer_pictures.steer_status(job, 0)
    assert job.token in steer_pictures.steer_links(job)
    assert len(job.rows) == 4
    assert all(tensor.device.type == "cpu" for tensor in (job.result.particles, job.result.log_weights))


def test_a_reward_that_raises_is_a_message(mine, tmp_path):
    known = named_rewards([f"{mine}:broken"])
    job = SteerRun(first(**SMALL)._replace(reward=f"{mine}:broken"), tmp_path, known)
    job.run()
    assert job.state == FAILED
    assert "no value today" in job.message
    assert job.message.count("the reward has no value") == 1


def test_a_page_has_one_run_of_either_kind(tmp_path):
    from truetilt.studio.sessions import Studio

    studio = Studio(tmp_path)
    try:
        one, two = SteerRun(LONG, tmp_path, EXAMPLES), SteerRun(first(**SMALL), tmp_path, EXAMPLES)
        studio.start("page", one)
        studio.start("page", two)
        assert finished(one).state == CANCELLED
        assert finished(two).state == DONE
    finally:
        studio.pool.close()


# In a browser.


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(steer_jobs, "SHARES", (0.5, 1.0))
    monkeypatch.setattr(steer_baselines, "SEEDS", 1)


def to_rewards(page):
    page.get_by_role("tab", name="Steer by a reward").click()
    page.wait_for_selector("#steer-go", state="visible")


def own_model(page, path):
    """Choose networks of one's own, with all fields open: what is typed while one appears is lost."""
    to_rewards(page)
    page.locator("#steer-more button").click()
    page.wait_for_selector("#steer-steps input")
    choose(page, "steer-model", "My own")
    page.wait_for_selector("#steer-path")
    page.wait_for_function("document.querySelector('#steer-steps input')?.value === '32'")
    set_values(page, **{"steer-path": path})
    page.locator("#steer-path input, #steer-path textarea").blur()


def test_a_steering_is_followed_to_its_end_and_its_report_opens(house, browser):  # noqa: F811
    url, studio = house
    with opened(browser, url) as page:
        to_rewards(page)
        set_values(page, **{"steer-evaluations": 6000, "steer-calls": 800, "steer-seed": 5})
        page.click("#steer-go")
        page.wait_for_selector("#steer-said .state.on .meter")
        page.wait_for_selector(".pane.run .worth")
        page.wait_for_selector("#steer-said .state.done")
        assert page.locator("#steer-stage .pane").count() == 3
        assert page.locator(".rivals tbody tr").count() == 4
        assert page.locator(".errors polyline").count() == 3
        exact = tt.steer(
            steer_jobs.steer_task(first(), EXAMPLES, lambda states: None).model, examples.ones, 1.5,
            evaluations=6000, calls=800, seed=5,
        )  # fmt: skip
        assert f"{exact.log_z:.5g}" in page.locator(".answer").inner_text()
        assert "tt.steer(" in page.locator("#steer-python").inner_text()
        with page.expect_popup() as popup:
            page.click("#steer-links .open")
        popup.value.wait_for_selector("html[data-drawn]")
        assert "How it was steered" in popup.value.locator("#story").inner_text()
        with page.expect_download() as download:
            page.click("#steer-links a[download]")
        assert download.value.suggested_filename == "truetilt-steer-letters.html"
    assert not studio.jobs


def test_faults_stand_at_their_fields_and_go_when_mended(house, browser):  # noqa: F811
    url, studio = house
    with opened(browser, url) as page:
        to_rewards(page)
        set_values(page, **{"steer-strength": 0, "steer-evaluations": 2.5})
        page.click("#steer-go")
        page.wait_for_selector("#steer-strength:has-text('another number than 0')")
        assert "Give a whole number" in page.locator("#steer-evaluations").inner_text()
        assert "Give" not in page.locator("#steer-seed").inner_text()
        assert not studio.jobs
        set_values(page, **{"steer-strength": 1, "steer-evaluations": 20})
        page.click("#steer-go")
        page.wait_for_selector("#steer-evaluations:has-text('Give at least 96')")
        set_values(page, **{"steer-evaluations": 600, "steer-calls": 200})
        page.click("#steer-go")
        page.wait_for_selector("#steer-said .state.done")
        assert "Give" not in page.locator("#steer-form").inner_text()


def test_of_two_clicks_the_last_counts(house, browser):  # noqa: F811
    """Both clicks are heard, however quickly they follow one another, and one run is shown to its end."""
    url, studio = house
    with opened(browser, url) as page:
        to_rewards(page)
        set_values(page, **{"steer-evaluations": 600, "steer-calls": 200})
        page.evaluate("() => { const go = document.querySelector('#steer-go'); go.click(); go.click(); }")
        page.wait_for_selector("#steer-said .state.done")
        assert page.locator("#steer-go").is_enabled()
        assert not studio.jobs


def test_cancel_stops_the_steering(house, browser):  # noqa: F811
    url, studio = house
    with opened(browser, url) as page:
        to_rewards(page)
        set_values(page, **{"steer-evaluations": 3_000_000, "steer-calls": ""})
        page.click("#steer-go")
        page.wait_for_selector("#steer-said .state.on")
        (job,) = studio.jobs.values()
        page.click("#steer-halt")
        assert finished(job).state == CANCELLED
        page.wait_for_selector("#steer-said .state:has-text('Cancelled')")
        assert page.locator("#steer-go").is_enabled()


@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}])
def test_digits_are_steered_in_the_dark_and_on_a_phone(house, browser, own_nets, options):  # noqa: F811
    with opened(browser, house[0], **options) as page:
        own_model(page, own_nets)
        page.wait_for_selector("#steer-reward:has-text('The mean grey level')")
        set_values(page, **{"steer-steps": 4, "steer-evaluations": 400, "steer-calls": 200, "steer-strength": 0.01})
        page.click("#steer-go")
        page.wait_for_selector("#steer-said .state.done")
        assert page.locator(".pane.run .tiles img").count() == page.locator(".pane.plain .tiles img").count() == 16
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_texts_of_any_class_are_shown_after_a_click(house, browser, texts):  # noqa: F811
    with opened(browser, house[0]) as page:
        own_model(page, texts)
        page.wait_for_selector("#steer-reward:has-text('The mean number of letters')")
        set_values(page, **{"steer-steps": 4, "steer-evaluations": 200, "steer-calls": ""})
        page.click("#steer-go")
        page.wait_for_selector("#steer-said .state.done")
        assert page.locator("#steer-stage .pane .tiles").count() == 2
        assert not any(tiles.is_visible() for tiles in page.locator("#steer-stage .pane .tiles").all())
        page.check("#steer-veil .unveil")
        assert all(tiles.is_visible() for tiles in page.locator("#steer-stage .pane .tiles").all())
        assert page.evaluate("window.hit") is None


def test_the_form_has_the_order_of_its_record():
    assert SteerForm._fields[:4] == ("model", "path", "condition", "reward")


def test_a_refused_form_leaves_no_python_of_the_run_before():
    bad = first()._asdict() | {"strength": 0}

    async def shown():
        return [told async for told in steer_page.followed_steering(None, "page", bad, EXAMPLES)]

    with ThreadPoolExecutor(1) as other:  # a browser's tests leave a running event loop in this thread
        (told,) = other.submit(asyncio.run, shown()).result()
    said, *_, python, shell, again, _, _ = told
    assert "Nothing was run" in said
    assert (python, shell, again["visible"]) == ("", "", "hidden")

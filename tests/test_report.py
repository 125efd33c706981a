"""The run report: what it says, that it holds nothing foreign, and how it behaves in a real browser."""

import contextlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from problems import table
from truetilt.cli.main import app
from truetilt.viz import settings_in_words, tiles
from truetilt.viz.report import report
from truetilt.viz.steer_story import steer_words

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror='window.hit=2'>&\"'"


def resampled(particles=12, populations=3, **options):
    return tt.sample(
        table(tt.Masking, 3, 2).model(), 4.0, 3.0, particles=particles, populations=populations,
        num_inference_steps=30, resample=tt.adaptive(tt.systematic, 0.95), **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result():
    return resampled(snapshots=5)


def large(side=28):
    """1,000 particles over 1,000 steps, resampled at every one, with images on the way."""
    rng, n = np.random.default_rng(0), 1000
    ancestors = np.sort(rng.integers(0, n, (n + 1, 1, n)), -1).astype(np.int32)
    ancestors[0] = np.arange(n)
    steps = torch.tensor([0, 250, 500, 750, 1000])
    images = torch.as_tensor(rng.integers(0, 256, (5, 1, n, side * side)).astype(np.int16))
    log_w = torch.as_tensor(rng.normal(size=(5, 1, n)))
    return tt.Result(
        images[-1], log_w[-1], torch.linspace(1, 0, n + 1, dtype=torch.float64),
        torch.as_tensor(rng.uniform(300, 900, (n + 1, 1))), torch.as_tensor(rng.normal(size=(n + 1, 1)).cumsum(0) / 30),
        torch.as_tensor(ancestors), {}, snapshot_steps=steps, snapshot_particles=images, snapshot_log_weights=log_w,
    )  # fmt: skip


# What the file holds.


def test_it_says_what_was_asked_what_came_out_and_how_far_to_trust_it(result):
    page = report(result, title="A title")
    assert "<h1>A title</h1>" in page
    assert "3 populations of 12 particles" in page
    assert "α = 4" in page
    assert repr(result.log_z) in page  # in full, to copy
    for reason in result.trust().reasons:
        assert reason in page.replace("&#39;", "'").replace("&#34;", '"')
    for k, z in enumerate(result.population_log_z.tolist()):
        assert f'<th scope="row">{k}</th>' in page
        assert repr(z) in page
    order = [page.index(f'id="{name}"') for name in ("trust", "course", "weights", "populations", "particles", "again")]
    assert order == sorted(order)


@pytest.fixture(scope="module")
def steered():
    reward = tt.Reward(lambda x: (x == 2).sum(-1).double(), vocabulary=3)
    return tt.steer(table(tt.Masking, 3, 2).model(), reward, 2.0, evaluations=6000, calls=500, seed=4)


def test_a_steered_run_tells_its_story_near_the_top(steered):
    page = report(steered).replace("&#39;", "'")
    order = [page.index(f'id="{name}"') for name in ("trust", "story", "course", "weights")]
    assert order == sorted(order)
    story = steered.settings["steer"]
    for stage in story["stages"]:
        assert stage["what"][1:] in page
        assert f"because {stage['why']}" in page
    spent = story["spent"]
    assert f"<b>{spent['evaluations']:,}</b> of 6,000 network evaluations" in page
    assert f"<b>{spent['distinct']:,}</b> of 500 calls of the reward" in page
    assert "Checked by moves: draws of the answer stayed where they were" in page
    assert story["outlook"] in page
    assert "snapshots=8" not in page  # steer keeps none
    told = steered.settings | {"steer": story | {"check": {"mean": -2.0, "stderr": 0.1, "moved": 0.5}}}
    assert "contradicted: draws of the answer drifted by −2 ± 0.1 nats" in report(replace(steered, settings=told))


def test_the_call_of_a_steered_run_gives_the_same_bits(steered):
    call = steer_words(steered.settings).call
    assert call.split("result = ")[1] in report(steered).replace("&#39;", "'")
    reward = tt.Reward(lambda x: (x == 2).sum(-1).double(), vocabulary=3)
    space = {"model": table(tt.Masking, 3, 2).model(), "reward": reward}
    exec(call, space)
    assert torch.equal(space["result"].log_weights, steered.log_weights)


def test_a_limit_that_was_not_given_and_a_check_that_was_not_made_are_said(steered):
    story = steered.settings["steer"]
    asked = story["asked"] | {"calls": None, "seed": "__import__('os')", "order": {"a": 1}}
    words = steer_words({"steer": story | {"asked": asked, "check": None}})
    assert words.budgets[1].limit is None
    assert "Not checked by moves" in words.check
    assert "seed=\"__import__('os')\"" in words.call  # a text, no code
    assert "order=" not in words.call


@pytest.mark.parametrize("steer", [None, 3, {}, {"stages": []}])
def test_other_runs_have_no_story(result, steer):
    settings = result.settings if steer is None else result.settings | {"steer": steer}
    assert 'id="story"' not in report(replace(result, settings=settings))


def test_its_policy_allows_nothing_from_elsewhere(result):
    page = report(result)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert " style=" not in page


def test_hostile_text_is_escaped_everywhere(result):
    told = {
        "bundle": HOSTILE,
        "condition": HOSTILE,
        "command": HOSTILE,
        "version": HOSTILE,
        "versions": {HOSTILE: HOSTILE},
    }
    model = {"name": HOSTILE, "alpha": HOSTILE, HOSTILE: HOSTILE}
    hostile = replace(result, settings=result.settings | told | {"model": model, "resampler": {"name": HOSTILE}})
    for title in (HOSTILE, None):
        page = report(hostile, title=title)
        assert "window.hit" in page
        assert "<script>window" not in page
        assert "<img src=x" not in page
        assert len(re.findall("<script", page)) == len(re.findall("</script>", page)) == 2


def test_numbers_that_json_cannot_say_are_left_out(result):
    log_w, path = result.log_weights.clone(), result.log_z_path.clone()
    log_w[0], path[3:, 0] = -torch.inf, -torch.inf
    page = report(replace(result, log_weights=log_w, log_z_path=path))
    data = json.loads(re.search(r'id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    assert data["courses"]["log_z_each"][0][-1] is None
    assert "−∞" in page


@pytest.mark.parametrize("settings", [{}, {"united": [{}, {"seed": 1}]}, {"model": "x", "resampler": 3}])
def test_a_result_that_says_little_of_itself_has_a_report(result, settings):
    assert "not recorded" in report(replace(result, settings=settings))


def test_united_runs_are_told_apart_and_written_out(result):
    page = report(tt.Result.union([result, resampled(seed=1, snapshots=5)]))
    assert "from 2 united runs" in page
    assert page.count("<pre>import truetilt as tt") == 2
    assert page.count('class="frame"') == 5


def test_many_populations_are_thinned_and_it_says_so():
    page = report(resampled(particles=4, populations=40))
    assert "32 of 40 populations, evenly taken" in page
    assert page.count('"population":') == 16


def test_a_result_without_mass_has_no_report(result):
    with pytest.raises(tt.DegenerateWeights, match="weight zero"):
        report(replace(result, log_weights=torch.full_like(result.log_weights, -torch.inf)))


def test_reals_of_any_precision_are_shown(result):
    reals = torch.linspace(-2, 2, 3 * 12 * 3).reshape(3, 12, 3).bfloat16()
    page = report(replace(result, particles=reals, snapshot_steps=torch.zeros(0, dtype=torch.int64)))
    assert 'svg class="cloud"' in page


def test_a_folder_is_no_file(result, tmp_path):
    with pytest.raises(tt.InvalidInput, match="is a folder"):
        result.report(tmp_path)


def test_a_view_that_does_not_fit_is_named_and_nothing_is_written(result, tmp_path):
    with pytest.raises(tt.InvalidInput, match="no images of side 28"):
        result.report(tmp_path / "run.html", view=tt.Images(28, 256))
    assert list(tmp_path.iterdir()) == []


def test_the_command_reports_what_was_saved(result, tmp_path):
    result.save(tmp_path / "run", view=tt.Disks(3))
    done = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--title", "Mine"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "run" / "report.html")
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8") == report(result, tt.Disks(3), "Mine")
    bad = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert bad.exit_code == 2
    assert "particles.json" in bad.stderr


def test_a_sampled_table_leaves_what_its_report_needs(tmp_path):
    (tmp_path / "t.json").write_text('{"p0": [[2, 3], [3, 1]], "likelihood": [[0.1, 0.5], [0.4, 0.1]]}')
    asked = ["sample", str(tmp_path / "t.json"), "--alpha", "2", "--particles", "40", "--steps", "9"]
    assert CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "o")]).exit_code == 0
    assert CliRunner().invoke(app, ["report", str(tmp_path / "o")]).exit_code == 0
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert page.count('class="frame"') == 8
    assert (
        f"truetilt sample {tmp_path / 't.json'} --alpha 2.0 --process masking --sigma-eps 0.001 --particles 40" in page
    )


# The call gives the same run again.

MODEL = table(tt.Masking, 3, 2).model()
REALS = tt.continuous.Observed(
    tt.continuous.VP(),
    tt.continuous.GaussianMixture([0.3, 0.7], [[-1.0, 2.0], [1.0, -1.0]], 0.5),
    tt.continuous.Observation([0.2], (0,), 1.0),
).model()
RUNS = {
    "tempered": lambda: tt.run(tt.Tempered(MODEL, 3.0, 2.0), tt.uniform_grid(7), particles=5, populations=2, seed=3),
    "tilted": lambda: tt.run(
        tt.Tilted(MODEL, 2.5, tt.Power(1.5)), (1.0, 0.7, 0.2, 0.0), particles=9, first_population=4,
        resample=tt.partial(tt.multinomial, 4),
        moves=tt.Rejuvenation(tt.Metropolis(tt.Tilted(MODEL, 2.5, tt.Power(1.5))), each_step=1, at_end=2),
    ),
    "any order": lambda: tt.reveal(MODEL, 2.0, particles=6, resample=tt.stratified, couple=tt.systematic_draws),
    "reals": lambda: tt.run(
        tt.continuous.Girsanov(REALS, 2.0, 1.5, kernel=tt.continuous.heun), tt.uniform_grid(4), particles=5, seed=1
    ),
    "tilted reals": lambda: tt.run(tt.continuous.Tilted(REALS, 2.0), tt.uniform_grid(4), particles=5, seed=1),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_the_call_gives_the_same_bits(name):
    first = RUNS[name]()
    call = settings_in_words.run_settings(first.settings, first.times.tolist()).call
    space = {"model": REALS if "reals" in name else MODEL}
    exec(call, space)
    assert torch.equal(space["result"].particles, first.particles)
    assert torch.equal(space["result"].log_weights, first.log_weights)


def test_a_bundle_that_was_named_is_loaded_in_the_call():
    run = RUNS["tempered"]()
    settings = run.settings | {"bundle": "mnist", "condition": 4}
    assert (
        "model = tt.load('mnist').model(4, 'cfg')\n"
        in settings_in_words.run_settings(settings, run.times.tolist()).call
    )


def test_a_run_with_something_of_the_readers_leaves_it_open():
    run = tt.run(tt.Tempered(MODEL, 3.0, lambda t: 2 * t), tt.uniform_grid(3), particles=4)
    assert "beta=..." in settings_in_words.run_settings(run.settings, run.times.tolist()).call


def test_settings_of_a_stranger_put_no_code_into_the_call():
    run = RUNS["tempered"]()
    evil = "__import__('os').system('true')"
    model = {"name": evil, "kernel": f"Power({evil})", evil: 1, "guide": "Power(p=__import__)", "beta": [evil]}
    settings = run.settings | {"model": model, "resampler": {"name": evil}, "seed": evil, "coupling": evil}
    call = settings_in_words.run_settings(settings, run.times.tolist()).call
    assert re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", call).count("system") == 0  # in quotes it is no code
    assert "__import__(" not in re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", call)


# Particles follow their lines.


def test_a_place_follows_a_final_particle_and_its_forebears(result):
    seen = []

    class Spy(tt.Numbers):
        def tile(self, x, before):
            seen.append((x.tolist(), None if before is None else before.tolist()))
            return ""

    found = tiles.frames(result, Spy())
    count = len(found[-1].tiles)
    kept = result.snapshots
    for number, frame in enumerate(found):
        for k, tile in enumerate(frame.tiles):
            last = found[-1].tiles[k]
            slot = last.particle
            for later in range(30, frame.step, -1):
                slot = int(result.ancestors[later, last.population, slot])
            assert (tile.population, tile.particle) == (last.population, slot)
            x, before = seen[number * count + k]
            assert x == kept.particles[number, tile.population, slot].tolist()
            assert before == (None if number == 0 else seen[(number - 1) * count + k][0])
            share = torch.softmax(kept.log_weights[number].reshape(-1), 0).reshape(3, 12)[tile.population, slot]
            assert tile.weight == pytest.approx(36 * float(share))
    assert any(tile.twin for tile in found[0].tiles)
    assert not any(tile.twin for tile in found[-1].tiles)


def test_without_snapshots_the_end_is_shown():
    found = tiles.frames(resampled(), tt.Disks(3))
    assert [frame.step for frame in found] == [30]


def test_tiles_that_are_too_many_are_halved_until_they_fit():
    class Heavy(tt.Numbers):
        def tile(self, x, before):
            return "x" * 100_000

    found = tiles.frames(resampled(particles=24, snapshots=3), Heavy())
    assert sum(len(t.html) for f in found for t in f.tiles) <= tiles.BYTES
    assert len(found[0].tiles) == 3


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    return large().report(tmp_path_factory.mktemp("large") / "run.html", view=tt.Images(28, 256))


def test_the_largest_run_stays_small(large_file):
    assert large_file.stat().st_size < 3_000_000


# In a browser.


@pytest.fixture(scope="module")
def file(result, tmp_path_factory):
    return result.report(tmp_path_factory.mktemp("report") / "run.html", title=HOSTILE)


@contextlib.contextmanager
def opened(browser, file, **options):
    """The page, drawn; when it closes, nothing may have been asked of another host and no error said."""
    context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, "color_scheme": "light"} | options)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    if options.get("java_script_enabled", True):
        page.wait_for_selector("html[data-drawn]")
    yield page
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []


def test_it_opens_and_draws_every_chart_and_hostile_text_does_nothing(browser, file):
    with opened(browser, file) as page:
        assert page.locator(".chart svg").count() == 6
        assert page.locator("#c-tree .alive").count() > 10
        assert page.locator("h1").inner_text() == HOSTILE
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.images.length") == 0


@pytest.mark.parametrize("guarded", [True, False])
def test_a_page_that_asked_another_host_would_be_caught(browser, file, tmp_path, guarded):
    text = file.read_text(encoding="utf-8").replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">')
    text = text if guarded else re.sub("<meta http-equiv[^>]*>", "", text)
    (tmp_path / "run.html").write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError), opened(browser, tmp_path / "run.html"):
        pass


def test_the_slider_changes_the_picture_and_marks_the_step(browser, file):
    with opened(browser, file) as page:
        shown = ".frame:not([hidden])"
        assert page.locator(shown).get_attribute("data-step") == "30"
        before = page.locator(shown).inner_html()
        mark = page.locator("#c-ess .mark").get_attribute("x1")
        page.locator("#step").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator(shown).get_attribute("data-step") == "22"
        assert page.locator(shown).inner_html() != before
        assert "step 22 of 30" in page.locator("#step-words").inner_text()
        assert page.locator("#c-ess .mark").get_attribute("x1") != mark
        page.keyboard.press("Home")
        assert "100.0% of the mass still masked" in page.locator(shown).text_content()


def test_play_runs_to_the_end_and_stops(browser, file):
    with opened(browser, file) as page:
        page.click("#play")
        assert page.locator(".frame:not([hidden])").get_attribute("data-step") == "0"
        page.locator("#step").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")  # a hand on the slider stops it
        assert page.locator("#play").inner_text() == "▶"
        page.click("#play")
        page.locator("#play", has_text="▶").wait_for(timeout=10_000)
        assert page.locator(".frame:not([hidden])").get_attribute("data-step") == "30"


def test_light_and_dark(browser, file):
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, file) as page:
        light = page.evaluate(paper)
        page.click("#theme")
        dark = page.evaluate(paper)
        assert light != dark
        page.click("#theme")
        assert page.evaluate(paper) == light
    with opened(browser, file, color_scheme="dark") as page:
        assert page.evaluate(paper) == dark


def test_numbers_data_and_calls_are_copied_whole(browser, file, result):
    with opened(browser, file, permissions=["clipboard-read", "clipboard-write"]) as page:

        def copied(selector):
            page.locator(selector).first.click()
            page.locator("#tip", has_text="copied").wait_for()
            return page.evaluate("navigator.clipboard.readText()")

        assert float(copied(".figures .n")) == result.log_z
        assert copied('[data-csv="ess"]').splitlines()[0] == "step,t,mean,population_0,population_1,population_2"
        last = copied('[data-csv="log_z"]').splitlines()[-1].split(",")
        assert float(last[2]) == pytest.approx(result.log_z, rel=1e-5)
        assert copied("#again .copy").startswith("import truetilt as tt")


def test_pointing_shows_the_step_everywhere_and_a_line_of_descent(browser, file):
    with opened(browser, file) as page:
        page.locator("#c-ess").hover(position={"x": 500, "y": 80})
        assert page.locator("#tip").inner_text().startswith("Step ")
        assert page.locator(".cursor.on").count() == 4
        page.locator("#c-tree").hover(position={"x": 500, "y": 80})
        assert "first draw #" in page.locator("#tip").inner_text()
        assert 0 < page.locator("#c-tree .alive.hit").count() < page.locator("#c-tree .alive").count()
        page.mouse.move(5, 5)
        assert page.locator("#tip").is_hidden()


def test_another_population_has_another_genealogy(browser, file, result):
    with opened(browser, file) as page:
        before = page.locator("#c-tree").inner_html()
        page.select_option("#tree", "2")
        assert page.locator("#c-tree").inner_html() != before
        assert page.locator("#tree-note").inner_text().startswith(f"{int(result.roots[2])} of 12 first draws")


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_narrow_screen_does_not_scroll_sideways(browser, file, width):
    with opened(browser, file, viewport={"width": width, "height": 700}, has_touch=True) as page:
        page.click("summary >> nth=0")
        page.click("summary >> nth=1")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert (
            page.evaluate("Math.max(...[...document.querySelectorAll('.chart svg')].map(s => s.clientWidth))") <= width
        )


def test_without_scripts_the_numbers_and_the_last_particles_are_there(browser, file):
    with opened(browser, file, java_script_enabled=False) as page:
        assert page.locator("#trust h2").is_visible()
        assert page.locator(".pops tbody tr").count() == 3
        assert page.locator(".frame >> nth=-1").is_visible()


def test_a_thousand_particles_over_a_thousand_steps_are_drawn_in_two_seconds(browser, large_file):
    with opened(browser, large_file) as page:
        assert int(page.evaluate("document.documentElement.dataset.drawn")) < 2000
        assert "60 of 1000 lines" in page.locator("#tree-note").inner_text()
        assert page.locator(".frame:not([hidden]) img").count() == 48


VIEWED = {
    "text": (tt.TextView(["a", HOSTILE, " c"].__getitem__, 3, 3), "ins"),
    "logo": (tt.SequenceLogo("<&A"), "svg.logo path"),
    "disks": (tt.Disks(3), "svg.disks circle"),
    "numbers": (tt.Numbers(), "code"),
}


@pytest.mark.parametrize("name", VIEWED)
def test_every_view_draws(browser, result, tmp_path, name):
    view, drawn = VIEWED[name]
    with opened(browser, result.report(tmp_path / "run.html", view=view)) as page:
        assert page.locator(f".frame:not([hidden]) {drawn}").count() > 1
        assert page.evaluate("window.hit") is None

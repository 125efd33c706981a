"""Texts in the studio: classes by name, the same bits by Python and command, what is new marked, and the veil."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from test_models import stirred
from test_studio import answer, called, choose, current, finished, harmless, house, opened, set_values  # noqa: F401
from truetilt.cli.main import app
from truetilt.core.types import Particles, StepInfo
from truetilt.models.text_classifier import TextClassifier, TextClassifierConfig
from truetilt.models.tokenizer import END, Tokenizer
from truetilt.studio import final_texts, jobs, pictures
from truetilt.studio.background import CANCELLED, DONE, FAILED
from truetilt.studio.choices import SAMPLERS
from truetilt.studio.folders import REVIEWS, TEXT, found_at
from truetilt.studio.form import faults, first_form, form_of
from truetilt.studio.jobs import Lane, LaneFrame, StudioRun
from truetilt.viz.report import report
from truetilt.viz.settings_in_words import is_veiled, run_settings

HOSTILE = "<img src=x onerror='window.hit=1'>${window.hit=2}{{hit}}\"&"
WORDS = (END, "good", "bad", HOSTILE, "</script><script>window.hit=3</script>", "film", ".", "the")
CLASSES = ("calm", "toxic", HOSTILE, "-dashed", "note")
SIZES = {"vocabulary": len(WORDS), "length": 6, "hidden": 16, "blocks": 1, "heads": 2, "condition": 8}
SMALL = {"particles": 10, "populations": 2, "steps": 5, "pace": "fast", "seed": 3, "beta": 2.0}


def tokenizer():
    import tokenizers

    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="."))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Tokenizer(inner)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A bundle of random weights whose classes and tokens are hostile; its sedd alone is a text net."""
    folder = tmp_path_factory.mktemp("my 'texts'")
    sedd = tt.SEDD(tt.SEDDConfig(**SIZES, classes=5), seed=1)
    stirred(sedd, 1).save_pretrained(folder / "sedd")
    for seed, name in enumerate(("potential", "judge")):
        stirred(TextClassifier(TextClassifierConfig(**SIZES, groups=(2, 2)), seed), seed).save_pretrained(folder / name)
    card = {"classes": CLASSES, "groups": {"tone": CLASSES[:2], "mood": CLASSES[2:4]}, "withheld": [5, 5, 5, 5, 5, 5]}
    (folder / "sedd" / "card.json").write_text(json.dumps(card), encoding="utf-8")
    tokenizer().save(folder)
    tokenizer().save(folder / "sedd")
    return str(folder)


def form_with(path, **changes):
    return first_form("own")._replace(path=path, **SMALL | changes)


def done(form, folder):
    job = StudioRun(form, folder)
    job.run()
    assert job.state == DONE, job.message
    return job


# What is there.


def test_folders_are_told_apart_without_loading_them(texts, tmp_path):
    assert found_at(texts) == (REVIEWS, CLASSES, CLASSES[:4], True)
    assert found_at(f"{texts}/sedd") == (TEXT, ("0", "1", "2", "3", "4"), (), True)
    assert found_at(tmp_path).kind == "digits"
    assert found_at("\0").kind == found_at("").kind == ""
    for text in ("[", "{}", '{"classes": 3, "groups": 1}', '{"classes": ["a"]}'):
        (tmp_path / "sedd").mkdir(exist_ok=True)
        (tmp_path / "sedd" / "card.json").write_text(text)
        assert found_at(tmp_path) == (REVIEWS, (), (), True)


def test_bad_conditions_of_texts_are_told_at_their_fields(texts):
    def found(path=texts, **changes):
        return list(faults(form_with(path, **changes)._asdict()))

    assert found() == found(condition="x") == found(condition="5") == ["condition"]
    assert found(condition="toxic") == found(condition=1) == found(condition=HOSTILE) == []
    assert found(condition="note") == ["condition"]  # no classifier knows it
    assert found(condition="note", sampler="tempered") == []
    one = f"{texts}/sedd"
    assert found(one, condition="1") == ["sampler"]  # nothing to tilt by
    assert found(one, condition="1", sampler="tempered") == found(one, prompt="the", sampler="guidance") == []
    assert found(one, condition="1", prompt="the", sampler="tempered") == ["prompt"]
    assert found(one, condition="5", sampler="tempered") == found(one, sampler="tempered") == ["condition"]


def test_a_damaged_bundle_is_a_message(texts, tmp_path):
    shutil.copytree(texts, tmp_path / "b")
    (tmp_path / "b" / "sedd" / "card.json").write_text("{}")
    job = StudioRun(form_with(str(tmp_path / "b"), condition="toxic"), tmp_path)
    job.run()
    assert job.state == FAILED
    assert "does not say what the classes mean" in job.message


# The same bits.


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "in-order"])
@pytest.mark.parametrize("condition", ["toxic", "-dashed", HOSTILE])
def test_python_and_command_give_the_same_bits(texts, tmp_path, monkeypatch, sampler, condition):
    monkeypatch.chdir(tmp_path)
    job = done(form_with(texts, condition=condition, sampler=sampler), tmp_path)
    first, space = job.lanes["run"].result, {}
    exec(job.python, space)
    assert torch.equal(space["result"].particles, first.particles)
    assert torch.equal(space["result"].log_weights, first.log_weights)
    assert job.command.startswith("# ") == (sampler in ("any-order", "guidance"))
    if job.command.startswith("# "):
        return
    line = CliRunner().invoke(app, [*shlex.split(job.command)[1:], "--out", "out"])
    assert line.exit_code == 0, line.output
    again = tt.Result.load("out")
    assert torch.equal(again.particles, first.particles)
    assert torch.equal(again.log_weights, first.log_weights)


@pytest.mark.parametrize("said", [{"condition": "1"}, {"prompt": "the film"}])
@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if s not in ("tilted", "in-order")])
def test_one_text_net_has_python_and_a_report_that_calls_it(texts, tmp_path, monkeypatch, sampler, said):
    monkeypatch.chdir(tmp_path)
    job = done(form_with(f"{texts}/sedd", sampler=sampler, **said), tmp_path)
    first, space = job.lanes["run"].result, {}
    exec(job.python, space)
    assert torch.equal(space["result"].log_weights, first.log_weights)
    assert "no single text nets" in job.command or "samplers tilted and tempered" in job.command
    call = run_settings(first.settings, first.times.tolist()).call
    assert "text = tt.load(" in call
    if sampler == "tempered":  # a grid of equal steps: the call is whole
        exec(call, space)
        assert torch.equal(space["result"].log_weights, first.log_weights)


def test_a_prompt_without_a_tokenizer_is_a_message(texts, tmp_path):
    shutil.copytree(f"{texts}/sedd", tmp_path / "net")
    (tmp_path / "net" / "tokenizer.json").unlink()
    job = StudioRun(form_with(str(tmp_path / "net"), prompt="the", sampler="tempered"), tmp_path)
    job.run()
    assert "has no tokenizer.json" in job.message


def test_texts_are_not_sampled_by_guided_rates(texts, tmp_path):
    """The wrong variant: Euler steps and guided rates give other bits."""
    form = form_with(texts, condition="toxic", sampler="tempered")
    first = done(form, tmp_path).lanes["run"].result
    model = tt.load(texts).model("toxic", "cfg")
    wrong = tt.run(tt.Tempered(model, 4.0, 2.0), tt.uniform_grid(5), particles=10, populations=2, seed=3)
    assert not torch.equal(wrong.log_weights, first.log_weights)


# How it looks.


def test_a_text_net_shows_words_or_numbers(texts):
    with_words, x = tt.load(f"{texts}/sedd"), np.array([7, 5, 1, 8, 0, 0])
    assert with_words.view.tile(x, None).startswith("<p>thefilmgood<span")
    assert "¶×2" in with_words.view.tile(x, None)
    plain = tt.Text(with_words.net, with_words.process)
    assert plain.view.tile(x, None).startswith("<p>7 5 1 <span")
    result = tt.reveal(plain.model(1), 2.0, particles=4, seed=0)
    assert re.search(r"<p>(?:<ins>)?\d \d", report(result, view=plain.view))


def test_ends_are_counted_and_never_marked():
    view = tt.TextView(["¶", "a"].__getitem__, 2, 2)
    assert view.tile(np.array([1, *[0] * 9]), None) == '<p>a<span class="masked" title="9 ends">¶×9 </span></p>'
    assert view.tile(np.array([1, 0, 1]), np.array([1, 2, 2])) == (
        '<p>a<span class="masked" title="1 ends">¶</span><ins>a</ins></p>'
    )


def test_what_is_new_is_told_by_descent():
    """After a resampling a particle is compared with its forebear, not with who stood in its place."""
    lane = Lane(steps=9)

    def step(number, x, ancestors):
        particles = Particles(torch.tensor(x)[None], torch.zeros(1, 2, dtype=torch.float64), {})
        info = StepInfo(*[None] * len(StepInfo._fields))
        info = info._replace(ess=torch.tensor([2.0]), ancestors=torch.tensor([ancestors], dtype=torch.int32))
        lane.seen = 0.0 if number != 1 else 1e18  # no picture of step 1
        lane.look(number, particles, info)

    step(0, [[9, 9], [9, 9]], [0, 1])
    step(1, [[1, 9], [9, 2]], [0, 1])
    assert lane.frame.step == 0
    step(2, [[3, 2], [3, 9]], [1, 0])
    assert lane.frame.step == 2
    assert lane.frame.before.tolist() == [[9, 9], [9, 9]]
    step(3, [[3, 9], [3, 9]], [1, 1])
    assert lane.frame.before.tolist() == [[3, 9], [3, 9]]  # both of the second; by place the first would be [3, 2]
    shown = pictures._look(tt.TextView("abcdefghi".__getitem__, 9, 9), lane.frame)
    assert "<ins>" not in shown
    by_place = LaneFrame(3, lane.frame.x, lane.frame.weights, np.array([[3, 2], [3, 9]]))
    assert "<span" in pictures._look(tt.TextView("abcdefghi".__getitem__, 9, 9), by_place)


def test_final_texts_are_merged_counted_and_judged(texts, tmp_path):
    job = done(form_with(texts, condition="calm"), tmp_path)
    assert job.problem.judge is None  # freed with the networks
    nets, shown = tt.load(texts), pictures.stage(job)
    for lane in job.lanes.values():
        log_p, _ = nets.verdicts(nets.decode(lane.result.particles.flatten(0, 1)), "calm")
        mean = float(lane.result.weights.reshape(-1) @ log_p.exp())
        assert lane.scores == pytest.approx(log_p.exp().numpy())
        assert f"p(calm | text) is <b>{mean:.2f}</b>" in shown
    frame = LaneFrame(1, np.array([[1, 2], [3, 4], [1, 2]]), np.array([0.2, 0.6, 0.2]))
    found = final_texts.merged(frame, np.array([0.1, 0.9, 0.1]))
    assert [(text.x.tolist(), text.count, text.score) for text in found] == [([3, 4], 1, 0.9), ([1, 2], 2, 0.1)]
    lane = Lane(1, frame, scores=np.array([0.1, 0.9, 0.1]))
    page = final_texts.final_texts(tt.TextView("abcdef".__getitem__, 6, 6), frame, lane, weighted=True)
    assert "×2 · 40 % of the weight" in page
    assert page.count("<li>") == 2
    assert "is <b>0.58</b>" in final_texts.mean_score(lane, "calm")
    assert final_texts.mean_score(lane, HOSTILE).count("<") == 4  # of its own tags alone
    assert final_texts.mean_score(Lane(1, frame), "calm") == ""


@pytest.mark.parametrize(("part", "condition"), [("", "note"), ("/sedd", "1")])
def test_nothing_is_judged_without_a_judge_of_the_class(texts, tmp_path, part, condition):
    job = done(form_with(f"{texts}{part}", condition=condition, sampler="tempered"), tmp_path)
    assert job.lanes["run"].scores is None
    assert "judge" not in pictures.stage(job)


VEILED = {"toxic": True, "Severe_Toxicity": True, "hateful": True, "non-toxic": False, "not toxic": False}
VEILED |= {"positive": False, "negative": False, "4": False, "None": False}


@pytest.mark.parametrize("name", VEILED)
def test_which_classes_are_veiled(name):
    assert is_veiled(name) == VEILED[name]
    assert not is_veiled(None)


def test_the_report_of_a_harsh_class_waits_for_a_click(texts, tmp_path):
    harsh = done(form_with(texts, condition="toxic"), tmp_path)
    calm = done(form_with(texts, condition="calm"), tmp_path)
    pages = [(tmp_path / f"{job.token}.html").read_text(encoding="utf-8") for job in (harsh, calm)]
    assert ['<details class="veil"><summary>Show texts' in page for page in pages] == [True, False]
    assert pages[0].index('<details class="veil"') < pages[0].index('class="frame"') < pages[0].index('id="again"')
    assert pictures.veil(calm) == ""
    assert pictures.stage(harsh).count("veiled") == 2
    for page in pages:
        assert "<img src=x" not in page
        assert len(re.findall("<script", page)) == len(re.findall("</script>", page)) == 2


def test_hostile_classes_are_escaped_in_the_report(texts, tmp_path):
    job = done(form_with(texts, condition=HOSTILE), tmp_path)
    page = (tmp_path / f"{job.token}.html").read_text(encoding="utf-8")
    assert "onerror" in page
    assert "<img src=x" not in page
    assert "<script>window" not in page + pictures.stage(job)


# In a browser.


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(jobs, "WATCHED", 0.4)


def own(page, path, condition, **values):
    choose(page, "model", "My own")
    page.wait_for_selector("#path")
    set_values(page, path=path, **values)
    page.click("#alpha input")  # leaves the path: its classes are offered
    page.wait_for_timeout(500)
    page.click("#condition input")
    page.locator("ul[role=listbox] li", has_text=condition).first.click()


def test_texts_are_watched_with_what_is_new_marked(house, browser, texts, monkeypatch):  # noqa: F811
    monkeypatch.setattr(jobs, "WATCHED", 3.0)
    assert answer(house[0]).status_code == 200
    with opened(browser, house[0]) as page:
        own(page, texts, "calm", particles=4, populations=2, steps=6)
        page.click("#go")
        page.wait_for_selector(".pane.run .tiles.text ins")
        page.wait_for_selector(".state.done")
        assert page.locator(".pane.run .tiles.text p").count() == 8  # of eight particles, at the end
        assert page.locator(".pane .judged:visible").count() == 2
        assert page.locator(".pane.plain .tiles.text p").first.is_visible()
        assert page.locator("#unveil").count() == 0
        assert "nets.model('calm', 'potential')" in page.locator("#python").inner_text()
        assert "--condition calm" in page.locator("#shell").inner_text()
        assert page.evaluate("window.hit") is None


def test_harsh_texts_are_shown_after_a_click_and_the_next_run_hides_them_again(house, browser, texts):  # noqa: F811
    with opened(browser, house[0]) as page:
        own(page, texts, "toxic", particles=4, populations=2, steps=4)
        for _ in range(2):
            page.click("#go")
            page.wait_for_selector(".state:not(.done)")
            page.wait_for_selector(".state.done")
            assert page.locator(".pane .tiles").count() == 2
            assert not any(tiles.is_visible() for tiles in page.locator(".pane .tiles").all())
            page.check("#unveil")
            assert all(tiles.is_visible() for tiles in page.locator(".pane .tiles").all())
        with page.expect_popup() as popup:
            page.click(".links .open")
        popup.value.wait_for_selector("html[data-drawn]")
        assert not popup.value.locator(".frame p").first.is_visible()
        popup.value.click("summary:has-text('Show texts')")
        assert popup.value.locator(".frame:not([hidden]) p").first.is_visible()


def test_hostile_classes_and_tokens_are_text_and_nothing_more(house, browser, texts):  # noqa: F811
    with opened(browser, house[0]) as page:
        own(page, texts, "onerror", particles=8, populations=1, steps=4)
        page.click("#go")
        harmless(page)


def test_a_run_of_texts_is_cancelled_and_the_condition_is_checked(house, browser, texts, monkeypatch):  # noqa: F811
    with opened(browser, house[0]) as page:
        own(page, texts, "calm", particles=20, populations=2, steps=5000)
        page.click("#go")
        job = current(house[1])
        page.click("#halt")
        assert finished(job).state == CANCELLED
        page.wait_for_selector(".state:has-text('Cancelled')")
        page.fill("#condition input", "nobody")
        page.keyboard.press("Enter")
        page.click("#go")
        page.wait_for_selector("#condition:has-text('Choose one of calm, toxic')")


def test_the_embedded_texts_can_be_asked_for():
    assert form_of(first_form("tiny-reviews")._asdict()).condition == "positive"
    assert faults(first_form("tiny-reviews")._replace(condition="rude")._asdict()).keys() == {"condition"}

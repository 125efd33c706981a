"""The studio: bad values, the same bits by Python and command, cancelling, and all of it in a real browser."""

import contextlib
import importlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
from typer.testing import CliRunner

import truetilt as tt
from problems import table
from test_models import CLASSIFIER, UNET, stirred
from truetilt.cli.main import app
from truetilt.models import hub
from truetilt.models.unet import UNet
from truetilt.studio import form as forms
from truetilt.studio import job_queue, jobs, pictures, plans, server
from truetilt.studio.background import CANCELLED, DONE, FAILED, RUNNING, Background
from truetilt.studio.choices import MODELS, RESAMPLING, SAMPLERS
from truetilt.studio.form import RunForm, faults, first_form, form_of
from truetilt.studio.job_queue import Pool
from truetilt.studio.jobs import StudioRun
from truetilt.studio.problems import problem_of
from truetilt.studio.steer_choices import EXAMPLES
from truetilt.studio.steer_form import SteerForm, first_steer_form, steer_faults
from truetilt.targets.defaults import default_guidance, default_sampler

HOSTILE = "<img src=x onerror='window.hit=1'>${window.hit=2}{{hit}}\"&"
OWN = {"p0": [[2, 3, 4], [3, 1, 1], [1, 1, 1]], "likelihood": [[0.1, 0.5, 0.9], [0.4, 0.1, 0.3], [0.2, 0.05, 0.7]]}
SMALL = {"particles": 12, "populations": 2, "steps": 6, "pace": "fast", "seed": 3}


@pytest.fixture(scope="module")
def own_table(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "my 'table'.json"
    path.write_text(json.dumps(OWN), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def own_nets(tmp_path_factory):
    """Networks of random weights: 4 x 4 pixels."""
    folder = tmp_path_factory.mktemp("nets")
    for seed, (name, kind) in enumerate(hub.PARTS.items()):
        config = UNET if kind is UNet else CLASSIFIER
        stirred(kind(config, seed), seed).save_pretrained(folder / name, torch.float16)
    return str(folder)


def asked(own_table, own_nets):
    """A small form for every model and sampler that go together."""
    out = {}
    for model in ("nine", "six", "plane", "table", "uniform table", "nets"):
        own = {"table": own_table, "uniform table": own_table, "nets": own_nets}.get(model)
        for sampler in SAMPLERS:
            form = first_form("own" if own else model)._replace(sampler=sampler, path=own or "", beta=2.0, **SMALL)
            form = form._replace(process="uniform" if "uniform" in model else "masking")
            form = form._replace(condition=1 if model == "nets" else form.condition)
            if not faults(form._asdict()):
                out[f"{model}, {sampler}"] = form
    return out


def finished(job, pool=None, seconds=60):
    """The job once it is over."""
    end = time.monotonic() + seconds
    while not job.over and time.monotonic() < end:
        time.sleep(0.01)
    assert job.over
    return job


# The form.


@pytest.mark.parametrize("model", [m for m in MODELS if m not in ("own", "protein")])
def test_what_the_form_says_at_first_can_be_run(model):
    if model == "molecules":
        pytest.importorskip("rdkit")
    assert faults(first_form(model)._asdict()) == {}


WRONG = {
    "no number": ("alpha", None), "negative": ("alpha", -1.0), "infinite": ("alpha", float("inf")),
    "nan": ("beta", float("nan")), "words": ("beta", "2"), "half a particle": ("particles", 2.5),
    "none": ("particles", 0), "too many": ("particles", 10**9), "populations": ("populations", 0),
    "steps": ("steps", 0), "steps in the millions": ("steps", 10**7), "seed": ("seed", -1),
    "another sampler": ("sampler", HOSTILE), "another model": ("model", "x"), "device": ("device", "cuda:77"),
    "resampling": ("resampling", None), "pace": ("pace", "slow"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_value_is_told_at_its_field_and_makes_no_run(name):
    field, value = WRONG[name]
    values = first_form()._asdict() | {field: value}
    assert list(faults(values)) == [field]
    with pytest.raises(tt.InvalidInput, match=field):
        form_of(values)


def test_faults_of_two_fields_together(own_table, own_nets, tmp_path):
    def found(**values):
        return list(faults(first_form(values.get("model", "nine"))._asdict() | values))

    assert found(particles=1000, populations=4000) == ["particles"]
    assert found(particles=1000, populations=100, steps=2000) == ["steps"]
    assert found(model="mnist", condition=None) == found(model="mnist", condition=10) == ["condition"]
    assert found(model="plane", condition=float("nan")) == ["condition"]
    assert found(model="six", sampler="any-order") == found(model="plane", sampler="any-order") == ["sampler"]
    assert found(model="own", path=own_table, process="uniform", sampler="any-order") == ["sampler"]
    assert found(model="own", path=own_nets) == ["condition"]
    assert found(model="own", path=own_nets, condition=1) == found(model="own", path=f" {own_table} ") == []
    for path in ("", None, HOSTILE, "\0", "a" * 5000, str(tmp_path / "none")):
        assert found(model="own", path=path) == ["path"]


# The same bits.


COMMANDS = (
    "nine, tilted",
    "six, tempered",
    "table, tempered",
    "uniform table, tilted",
    "nets, tilted",
    "nets, tempered",
)


def test_every_model_has_its_samplers(own_table, own_nets):
    assert len(asked(own_table, own_nets)) == 4 + 3 + 3 + 4 + 3 + 4


@pytest.mark.filterwarnings("ignore:edge ratios")  # the command says what the studio notes
def test_the_python_gives_the_same_bits_and_the_command_where_there_is_one(own_table, own_nets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = 0
    for name, form in asked(own_table, own_nets).items():
        job = StudioRun(form, tmp_path)
        job.run()
        assert job.state == DONE, (name, job.message)
        first, space = job.lanes["run"].result, {}
        exec(job.python, space)
        assert space["result"].log_z == first.log_z, name
        assert torch.equal(space["result"].particles, first.particles), name
        assert (tmp_path / "run.html").stat().st_size > 10_000
        none = job.command.startswith("# ")
        assert none == ("any-order" in name or "guidance" in name or "plane" in name), name
        if name not in COMMANDS:
            continue
        commands += 1
        *before, line = job.command.split("\n")
        if before:
            subprocess.run(["sh", "-c", before[0]], check=True)
        done = CliRunner().invoke(app, [*shlex.split(line)[1:], "--out", "out"])
        assert done.exit_code == 0, (name, done.output)
        again = tt.Result.load("out")
        assert again.log_z == first.log_z, name
        assert torch.equal(again.log_weights, first.log_weights), name
    assert commands == len(COMMANDS)


@pytest.mark.parametrize("scheme", RESAMPLING)
def test_every_way_to_resample_is_written_as_it_is(scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    form = first_form()._replace(resampling=scheme, sampler="tempered", **SMALL | {"steps": 15, "particles": 40})
    job = StudioRun(form, tmp_path)
    job.run()
    space = {}
    exec(plans.python_of(problem_of(form), form), space)
    assert torch.equal(space["result"].ancestors, job.lanes["run"].result.ancestors)
    assert (plans.command_of(problem_of(form), form) is None) == (scheme != "half")
    resampled = not torch.equal(space["result"].ancestors, space["result"].ancestors[:1].expand(16, -1, -1))
    assert resampled == (scheme != "never")


def test_plain_guidance_runs_beside_with_as_many_particles(tmp_path):
    job = StudioRun(first_form()._replace(**SMALL), tmp_path)
    job.run()
    run, plain = job.lanes["run"].result, job.lanes["plain"].result
    assert run.log_weights.shape == plain.log_weights.shape == (2, 12)
    assert plain.settings["model"]["name"] == "Unweighted"
    assert bool((plain.log_weights == 0).all())
    assert job.lanes["run"].frame.step == job.lanes["plain"].frame.step == 6
    assert len(job.lanes["run"].ess) == 7


@pytest.mark.parametrize("model", ["nine", "six"])
def test_guidance_takes_the_steps_of_the_sampler_beside_it(model):
    """Side by side they differ in weights alone: one kernel, one level of guidance, the ones of tt.sample."""
    form = first_form(model)._replace(**SMALL)
    problem = problem_of(form)
    run, plain = plans.plan(problem, form), plans.guidance(problem, form)
    kernel = "tt.tweedie" if model == "nine" else None
    for made in (run, plain):
        assert (kernel is None) or f"kernel={kernel}" in made.python
    options = {"particles": 4, "seed": 3}
    exact = tt.run(
        default_guidance(problem.model, form.alpha), tt.uniform_grid(form.steps), resample=tt.never, **options
    )
    assert torch.equal(plain.run(**options).particles, exact.particles)
    names = [
        tt.run(fk, tt.uniform_grid(2), particles=2).settings["model"]["kernel"]
        for fk in (default_guidance(problem.model, 2.0), default_sampler(problem.model, 2.0))
    ]
    assert names[0] == names[1]


def test_being_watched_changes_no_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "WATCHED", 0.5)
    both = [StudioRun(first_form()._replace(**SMALL | {"pace": pace}), tmp_path) for pace in ("watch", "fast")]
    for job in both:
        job.run()
    assert both[0].seconds > 0.5
    assert torch.equal(both[0].lanes["run"].result.log_weights, both[1].lanes["run"].result.log_weights)


def test_guidance_alone_has_one_lane_and_no_verdict(tmp_path):
    job = StudioRun(first_form()._replace(sampler="guidance", **SMALL), tmp_path)
    job.run()
    assert list(job.lanes) == ["run"]
    shown = pictures.stage(job)
    assert "without weights nothing says how far off it is" in shown
    assert "log Z" not in shown
    assert shown.count('<section class="pane') == 2  # and the exact target


# Watching, cancelling, waiting.


def test_watch_sees_every_step_and_what_it_raises_ends_the_run():
    seen = []

    def watch(step, particles, info):
        seen.append((step, particles.x.shape, info.s))
        if step == 4:
            raise KeyError("enough")

    model = table(tt.Masking, 3, 2).model()
    with pytest.raises(KeyError, match="enough"):
        tt.sample(model, 2.0, particles=5, num_inference_steps=9, watch=watch)
    assert [step for step, _, _ in seen] == [0, 1, 2, 3, 4]
    assert seen[0][1] == (1, 5, 2)
    assert seen[0][2] == 1.0


@pytest.fixture
def pool():
    made = Pool()
    yield made
    made.close()


LONG = first_form()._replace(steps=2000, particles=50, pace="fast")


def test_a_cancelled_run_stops_at_its_step_and_the_next_one_runs(pool, tmp_path):
    first, second, third = (
        StudioRun(LONG, tmp_path),
        StudioRun(LONG, tmp_path),
        StudioRun(first_form()._replace(**SMALL), tmp_path),
    )
    for job in (first, second, third):
        pool.submit(job)
    while first.steps < 5:
        time.sleep(0.005)
    assert (pool.ahead(second), pool.ahead(third)) == (1, 2)
    pool.cancel(second)  # out of the queue, never begun
    assert (second.state, second.steps, pool.ahead(third)) == (CANCELLED, 0, 1)
    pool.cancel(first)
    assert finished(first).state == CANCELLED
    at = first.steps
    assert at < 2 * LONG.steps / 2
    assert finished(third).state == DONE
    assert first.steps == at  # nothing went on behind
    assert first.token == ""
    assert all(lane.result is None for lane in first.lanes.values())


def test_a_run_that_is_not_cancelled_goes_on(pool, tmp_path):
    """The counter that the tests of cancelling watch does count."""
    job = StudioRun(LONG, tmp_path)
    pool.submit(job)
    while job.steps < 5:
        time.sleep(0.005)
    before, end = job.steps, time.monotonic() + 60
    while job.steps <= before and time.monotonic() < end:
        time.sleep(0.005)
    assert job.steps > before
    assert not job.over


@pytest.mark.parametrize("text", ["{}", "[", '{"p0": [1, 1], "likelihood": [0, 0]}', '{"p0": 3, "likelihood": 3}'])
def test_a_bad_table_is_a_message_and_the_worker_lives(pool, tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    form = first_form("own")._replace(path=str(tmp_path / "t.json"), **SMALL)
    job, after = StudioRun(form, tmp_path), StudioRun(first_form()._replace(**SMALL), tmp_path)
    pool.submit(job)
    pool.submit(after)
    assert finished(job).state == FAILED
    assert job.message
    assert "Traceback" not in job.message
    assert finished(after).state == DONE


def test_a_bug_is_a_line_and_the_worker_lives(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "problem_of", lambda form: 1 / 0)
    job = StudioRun(first_form()._replace(**SMALL), tmp_path)
    pool.submit(job)
    assert finished(job).message == "The run failed: ZeroDivisionError: division by zero"


class Slow(Background):
    """A job that is one long pass of a network, or that hears nothing."""

    layers = 0

    def carry_out(self):
        layer = torch.nn.Identity()
        for self.layers in range(1, 2001):
            layer(torch.zeros(1))
            time.sleep(0.01)

    def free(self):
        pass


class Deaf(Slow):
    def carry_out(self):
        time.sleep(5)


def test_a_run_is_cancelled_inside_a_pass(pool, tmp_path):
    """A pass of 3,000 digits takes a minute, and cancelling was heeded after it."""
    job, after = Slow(None, tmp_path), StudioRun(first_form()._replace(**SMALL), tmp_path)
    pool.submit(job)
    pool.submit(after)
    while not job.layers:
        time.sleep(0.01)
    pool.cancel(job)
    done = job.layers
    assert finished(job).state == CANCELLED
    assert job.layers <= done + 2
    assert finished(after).state == DONE


def test_digits_are_cancelled_inside_a_pass_in_both_lanes(pool, tmp_path):
    form = first_form("mnist")._replace(particles=2_500, populations=4, steps=50, pace="fast")
    job = StudioRun(form, tmp_path)
    pool.submit(job)
    while not job.lanes and not job.over:
        time.sleep(0.01)
    time.sleep(0.5)
    pool.cancel(job)
    assert finished(job, seconds=20).state == CANCELLED
    assert job.steps < 10


def test_what_does_not_heed_that_the_studio_closes_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(job_queue, "PATIENCE", 0.2)
    pool, job = Pool(), Deaf(None, tmp_path)
    pool.submit(job)
    while job.state != RUNNING:
        time.sleep(0.01)
    begun = time.monotonic()
    assert not pool.close()
    assert time.monotonic() - begun < 3
    pool = Pool()
    assert pool.close()


def test_sizes_that_take_hours_are_refused_in_the_form():
    values = first_form("mnist")._asdict()
    assert faults(values | {"particles": 2_500, "populations": 4}) == {}
    assert "more than 10,000 particles" in faults(values | {"particles": 3_000, "populations": 4})["particles"]
    assert faults(first_form("nine")._asdict() | {"particles": 3_000, "populations": 4}) == {}


def test_a_run_beyond_memory_is_a_message_before_it_begins(pool, tmp_path, monkeypatch):
    monkeypatch.setattr("truetilt.runtime.memory.free_bytes", lambda device: 1000)
    job = StudioRun(first_form()._replace(**SMALL), tmp_path)
    pool.submit(job)
    assert finished(job).state == FAILED
    assert "1e+03 bytes are free; take fewer" in job.message
    assert job.steps == 0


JUNK = [None, True, -1, 1e999, float("nan"), 10**400, "", "x" * 300_000, "\ud800", "\0", [], {}, [1, 2], {"a": []}]


@pytest.mark.parametrize("value", JUNK, ids=range(len(JUNK)))
def test_whatever_a_request_gives_is_told_at_its_field(value):
    """Not one field raises, and what is said again can be written as UTF-8."""
    page, steer_page = (importlib.import_module(f"truetilt.studio.{name}") for name in ("page", "steer_page"))
    for place, name in enumerate(RunForm._fields):
        given = [*first_form()]
        given[place] = value
        told = forms.scalars(RunForm._fields, given)
        json.dumps([faults(told), told], ensure_ascii=False).encode()
        assert len(page._marked(told)) == len(RunForm._fields), name
    for place in range(len(SteerForm._fields)):
        given = [*first_steer_form(EXAMPLES)]
        given[place] = value
        told = forms.scalars(SteerForm._fields, given)
        json.dumps([steer_faults(told, EXAMPLES), told], ensure_ascii=False).encode()
        assert len(steer_page._marked(told, EXAMPLES)) == len(SteerForm._fields)
    page._suit(value)
    page._offer("own", value)
    steer_page._suit(value, EXAMPLES)
    page.words_of(SAMPLERS, value)


# The server.


@pytest.fixture(scope="module")
def called():
    """Whom this process calls, by number or by name."""
    hosts, connect, look_up = [], socket.socket.connect, socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda self, at: hosts.append(at[0]) or connect(self, at))
        patch.setattr(
            socket, "getaddrinfo", lambda host, *rest, **more: hosts.append(host) or look_up(host, *rest, **more)
        )
        yield hosts


@pytest.fixture(scope="module")
def house(tmp_path_factory, called):
    """The address, and the studio behind it; by the end the server has called nobody."""
    pytest.importorskip("gradio", reason="gradio is not installed (the ui extra has it)")
    import uvicorn

    application, studio = server.application(tmp_path_factory.mktemp("studio"))
    listening = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=web.run, args=([listening],), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    yield address, studio
    answer(address)
    web.should_exit = True
    studio.pool.close()
    thread.join(timeout=10)
    assert "127.0.0.1" in called  # the last call at least: calls are seen
    assert set(called) <= {"127.0.0.1"}


def answer(url, **headers):
    import httpx

    return httpx.get(url, headers=headers, timeout=30)


def test_only_its_own_pages_are_answered(house):
    url, _ = house
    assert answer(url).status_code == 200
    assert answer(url, origin=url).status_code == 200
    assert answer(url, host="evil.example").status_code == 403
    assert answer(url, origin="http://evil.example").status_code == 403
    assert answer(url, origin="null").status_code == 403
    assert "default-src 'self'" in answer(url).headers["content-security-policy"]


def test_junk_requests_leave_no_traceback(house, capfd, caplog):
    """Each is answered, and the terminal has a line at most."""
    import httpx

    url, _ = house
    config = httpx.get(f"{url}/config", timeout=30).json()
    functions = [one["id"] for one in config["dependencies"]][:4]
    lone = b'{"data": ["\\ud800"], "fn_index": %d, "session_hash": "a"}'
    bodies = [b"", b"{", b"[]", b"null", b'{"data": 3}', b'{"data": [1], "fn_index": 99999, "session_hash": "a"}']
    bodies += [lone % number for number in functions]
    bodies += [b'{"data": [{}], "fn_index": %d, "session_hash": "\\ud800"}' % number for number in functions[:3]]
    for path in ("queue/join", "run/predict", "call/x", "upload"):
        for body in bodies:
            head = {"content-type": "application/json"}
            answered = httpx.post(f"{url}/gradio_api/{path}", content=body, headers=head, timeout=30)
            assert answered.status_code < 600
    time.sleep(1)
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    assert answer(url).status_code == 200


@pytest.mark.parametrize("token", ["nothing-here", "..%2Fsecret", "%00", "x" * 300])
def test_a_report_that_is_not_there_is_not_found(house, token):
    assert answer(f"{house[0]}/report/{token}").status_code == 404


def test_the_command_refuses_a_port_that_is_taken_and_says_what_is_missing(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["studio", "--port", str(port), "--no-browser"])
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    monkeypatch.setitem(sys.modules, "gradio", None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = CliRunner().invoke(app, ["studio", "--port", str(port), "--no-browser"])
    assert done.exit_code == 2
    assert "pip install 'truetilt[ui]'" in done.stderr


@pytest.mark.interrupt
def test_the_command_serves_until_it_is_interrupted(tmp_path):
    pytest.importorskip("gradio", reason="gradio is not installed (the ui extra has it)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "truetilt", "studio", "--port", str(port), "--no-browser"]
    here = os.environ | {"TMPDIR": str(tmp_path)}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=here)
    try:
        assert running.stderr.readline() == f"studio: http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        assert answer(f"http://127.0.0.1:{port}").status_code == 200
        assert [path.name.startswith("truetilt-studio-") for path in tmp_path.iterdir()] == [True]
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) == 130
    finally:
        running.kill()
    assert running.stderr.read() == "error: stopped\n"
    assert list(tmp_path.iterdir()) == []  # reports go with it


# In a browser.


@pytest.fixture(autouse=True)
def brisk(monkeypatch):
    monkeypatch.setattr(jobs, "WATCHED", 0.4)


def harmless(page):
    """The run ends, and hostile words are text and nothing more, on the page and in the report."""
    page.wait_for_selector(".state.done")
    assert "onerror" in page.locator("#python").inner_text()
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src='x']").count() == 0
    with page.expect_popup() as popup:
        page.click(".links .open")
    popup.value.wait_for_selector("html[data-drawn]")
    assert "<img src=x" in popup.value.locator("h1").inner_text()
    assert popup.value.evaluate("window.hit") is None


@contextlib.contextmanager
def opened(browser, url, **options):
    """The page; when it closes, nothing may have been asked of another host and nothing said on the console."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"} | options)
    asked, said = [], []
    context.on("request", lambda request: asked.append(request.url))
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    page = context.new_page()
    page.set_default_timeout(40_000)
    page.goto(url)
    page.wait_for_selector("#go")
    yield page
    context.close()
    assert [u for u in asked if not u.startswith((url, "data:", "blob:"))] == []
    assert said == []


def choose(page, field, words):
    page.click(f"#{field} input")
    page.locator("ul[role=listbox] li", has_text=words).first.click()


def set_values(page, **values):
    for name, value in values.items():
        page.fill(f"#{name} input, #{name} textarea", str(value))


def slow(page):
    """A run that takes long: in the browser's time, minutes."""
    set_values(page, steps=5000, particles=400)


def current(studio):
    """The one job there is."""
    end = time.monotonic() + 10
    while not studio.jobs and time.monotonic() < end:
        time.sleep(0.02)
    (job,) = studio.jobs.values()
    while job.steps < 3 and time.monotonic() < end:
        time.sleep(0.02)
    return job


def test_a_run_is_watched_to_its_end_and_its_report_opens(house, browser, monkeypatch):
    monkeypatch.setattr(jobs, "WATCHED", 4.0)
    url, studio = house
    with opened(browser, url) as page:
        set_values(page, particles=60, steps=20, seed=5)
        page.click("#go")
        page.wait_for_selector(".state.on .meter")
        page.wait_for_selector(".pane.plain svg.disks")
        early = int(page.locator(".pane.run").get_attribute("data-step"))
        page.wait_for_selector(".state.done")
        assert early < 20
        assert page.locator(".pane").count() == 3
        assert page.locator(".pane.run").get_attribute("data-step") == "20"
        assert page.locator(".course .mean").count() == 1
        misses = [float(words) for words in page.locator(".miss b").all_inner_texts()]
        assert misses[0] < misses[1]
        form = first_form()._replace(particles=60, steps=20, seed=5)
        exact = tt.run(tt.Tilted(problem_of(form).model, 4.0), tt.uniform_grid(20), particles=60, populations=4, seed=5)
        assert f"{exact.log_z:.5g}".replace("-", "−") in page.locator(".figures").inner_text()
        assert "tt.Tilted(model, 4.0, kernel=tt.tweedie)" in page.locator("#python").inner_text()
        assert "truetilt sample table.json" in page.locator("#shell").inner_text()
        with page.expect_popup() as popup:
            page.click(".links .open")
        popup.value.wait_for_selector("html[data-drawn]")
        assert repr(exact.log_z) in popup.value.content()
        with page.expect_download() as download:
            page.click(".links a[download]")
        assert download.value.suggested_filename == "truetilt-nine.html"
    assert not studio.jobs


def test_cancel_stops_the_work_and_another_run_may_follow(house, browser):
    url, studio = house
    with opened(browser, url) as page:
        slow(page)
        page.click("#go")
        job = current(studio)
        page.click("#halt")
        assert finished(job).state == CANCELLED
        at = job.steps
        page.wait_for_selector(".state:has-text('Cancelled after')")
        assert page.locator("#links a").count() == 0
        set_values(page, steps=5)
        page.click("#go")
        page.wait_for_selector(".state.done")
        assert job.steps == at < 5000


def test_a_page_that_is_left_stops_its_work(house, browser):
    url, studio = house
    with opened(browser, url) as page:
        slow(page)
        page.click("#go")
        job = current(studio)
    assert finished(job).state == CANCELLED
    at = job.steps
    time.sleep(0.3)
    assert job.steps == at < 5000
    assert not studio.jobs


def test_two_pages_do_not_disturb_each_other(house, browser):
    url, studio = house
    with opened(browser, url) as one, opened(browser, url) as two:
        slow(one)
        one.click("#go")
        job = current(studio)
        set_values(two, alpha=2, steps=10)
        two.click("#go")
        two.wait_for_selector(".state:has-text('Waiting: 1 run is before yours.')")
        two.click("#halt")
        two.wait_for_selector(".state:has-text('Cancelled')")
        assert not job.over
        two.click("#go")
        two.wait_for_selector(".state:has-text('Waiting')")
        one.click("#halt")
        two.wait_for_selector(".state.done")
        assert "tt.Tilted(model, 2.0, kernel=tt.tweedie)" in two.locator("#python").inner_text()
        assert "tt.Tilted(model, 4.0, kernel=tt.tweedie)" in one.locator("#python").inner_text()
        assert "Cancelled" in one.locator("#said").inner_text()
        assert one.locator("#links a").count() == 0


def test_a_bad_value_is_told_beside_its_field_and_goes_when_mended(house, browser):
    url, studio = house
    with opened(browser, url) as page:
        set_values(page, alpha=-3, particles=2.5)
        page.click("#go")
        page.wait_for_selector("#alpha:has-text('Give a number from 0 to 100.')")
        assert "Give a whole number from 1 to 200,000." in page.locator("#particles").inner_text()
        assert "Give" not in page.locator("#steps").inner_text()
        assert not studio.jobs
        set_values(page, alpha=3, particles=20, steps=3)
        page.click("#go")
        page.wait_for_selector(".state.done")
        assert "Give a" not in page.locator("#form").inner_text()
        choose(page, "model", "Six states")
        choose(page, "sampler", "Any order")
        page.click("#go")
        page.wait_for_selector("#sampler:has-text('nothing masked to reveal')")


def test_an_error_of_the_run_is_a_message(house, browser, tmp_path):
    (tmp_path / "t.json").write_text('{"p0": [1, 1], "likelihood": [0, 0]}')
    with opened(browser, house[0]) as page:
        choose(page, "model", "My own")
        page.wait_for_selector("#path")
        set_values(page, path=tmp_path / "t.json")
        page.click("#go")
        page.wait_for_selector("[role=alert]:has-text('zero everywhere')")
        assert "Traceback" not in page.content()
        assert page.locator("#go").is_enabled()


def test_hostile_names_are_text_and_nothing_more(house, browser, tmp_path):
    name = HOSTILE.replace("/", "")
    (tmp_path / f"{name}.json").write_text(json.dumps(OWN))
    (tmp_path / f"{name}2.json").write_text("[")
    with opened(browser, house[0]) as page:
        choose(page, "model", "My own")
        page.wait_for_selector("#path")
        set_values(page, path=HOSTILE)
        page.click("#go")
        page.wait_for_selector("#path:has-text('There is nothing at this path')")
        set_values(page, path=tmp_path / f"{name}2.json")
        page.click("#go")
        page.wait_for_selector("[role=alert]:has-text('cannot be read as JSON')")
        assert "<img src=x" in page.locator("[role=alert]").inner_text()
        set_values(page, path=tmp_path / f"{name}.json", particles=20, steps=5)
        page.click("#go")
        harmless(page)


def test_a_page_that_asked_another_host_would_be_caught(house, browser):
    with pytest.raises(AssertionError, match="127"), opened(browser, house[0]) as page:
        page.evaluate("fetch('http://127.0.0.1:9/x').catch(() => 0)")


@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}])
def test_points_and_digits_are_shown_in_the_dark_and_on_a_phone(house, browser, own_nets, options):
    with opened(browser, house[0], **options) as page:
        choose(page, "model", "Points in the plane")
        page.wait_for_selector("#condition:has-text('where x₁ was seen')")
        set_values(page, particles=30, steps=10, condition=0.5)
        page.click("#go")
        page.wait_for_selector(".state.done")
        assert page.locator(".pane svg.cloud").count() == 3
        assert "has no points in the plane" in page.locator("#shell").inner_text()
        choose(page, "model", "My own")
        page.wait_for_selector("#path")
        set_values(page, path=own_nets, condition=1, particles=6, populations=2, steps=4)
        page.click("#go")
        page.wait_for_selector(".pane.run .tiles img")
        page.wait_for_selector(".state.done")
        assert f"tt.load('{own_nets}')" in page.locator("#python").inner_text()
        assert f"truetilt sample {own_nets} --condition 1" in page.locator("#shell").inner_text()
        assert page.locator(".pane.run .tiles img").count() == page.locator(".pane.plain .tiles img").count() == 12
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 23, 24)"
        assert dark == ("color_scheme" in options)


def test_the_form_has_the_order_of_its_record():
    assert list(RunForm._fields)[:5] == ["model", "path", "process", "condition", "prompt"]
    assert forms.devices()[0] == "cpu"

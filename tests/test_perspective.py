"""The Perspective client against a server here that answers, stalls, fails and refuses as the real one may."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

import truetilt as tt
from truetilt.metrics.perspective import KEY, Perspective, PerspectiveError, read_cache
from truetilt.metrics.polite import Gate, Manners, retry_after

SECRET = "k3y-that-nobody-sees"


def scores(**values):
    return {
        "attributeScores": {name: {"summaryScore": {"value": v, "type": "PROBABILITY"}} for name, v in values.items()}
    }


def failure(code, message, **details):
    return code, {"error": {"code": code, "message": message, "details": [details] if details else []}}, {}


def answer(value=0.25):
    return 200, scores(TOXICITY=value), {}


class Server:
    """Gives the prepared answers in order, then the last one for ever, and keeps what it was asked."""

    def __init__(self):
        self.answers, self.asked, self.headers, self.times = [answer()], [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.times.append(time.monotonic())
                outer.headers.append(dict(self.headers))
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                reply = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                code, body, headers = reply() if callable(reply) else reply
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/v1alpha1/comments:analyze"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


class Clock:
    """A gate's clock that does not wait, and remembers how long it should have."""

    def __init__(self):
        self.time, self.slept = 0.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds

    def gate(self):
        return Gate(self.sleep, lambda: self.time)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def client(server, clock=None, **options):
    return Perspective(address=server.address, gate=(clock or Clock()).gate(), **options)


def test_asks_what_the_api_is_asked(server):
    server.answers = [(200, scores(TOXICITY=0.25, INSULT=0.5), {})]
    found = client(server, attributes=("TOXICITY", "INSULT")).scores(["a kind word"])
    assert found.tolist() == [[0.25, 0.5]]
    assert found.dtype == torch.float64
    assert server.asked == [
        {
            "comment": {"text": "a kind word"},
            "languages": ["en"],
            "requestedAttributes": {"TOXICITY": {}, "INSULT": {}},
            "doNotStore": True,
        }
    ]
    assert server.headers[0]["X-Goog-Api-Key"] == SECRET


def test_is_a_judge_of_two_classes(server):
    server.answers = [answer(0.2), answer(0.75)]
    torch.testing.assert_close(client(server)(["a", "b"]).exp(), torch.tensor([[0.8, 0.2], [0.25, 0.75]]).double())
    assert client(server).scores([]).shape == (0, 1)


def test_waits_as_long_as_the_server_says(server):
    server.answers = [(429, {}, {"Retry-After": "17"}), answer(0.5)]
    clock = Clock()
    assert client(server, clock).scores(["a"]).tolist() == [[0.5]]
    assert clock.slept == [17]
    assert len(server.asked) == 2


def test_pauses_double_and_replay(server):
    server.answers = [failure(500, "down"), failure(503, "down"), failure(502, "down"), failure(500, "down"), answer()]
    first, again = Clock(), Clock()
    client(server, first, manners=Manners(rate=1e6)).scores(["a"])
    assert len(first.slept) == 4
    for number, slept in enumerate(first.slept):
        assert 0.5 * 2**number <= slept <= 2**number
    server.answers = [failure(500, "down")] * 4 + [answer()]
    client(server, again, manners=Manners(rate=1e6)).scores(["a"])
    assert again.slept == first.slept


def test_gives_up_and_says_why(server):
    server.answers = [failure(500, f"down, {SECRET}")]
    with pytest.raises(PerspectiveError, match=r"text 0: no answer in 3 tries.*500 down") as error:
        client(server, manners=Manners(retries=2)).scores(["a"])
    assert len(server.asked) == 3
    assert SECRET not in str(error.value)


def test_does_not_wait_for_ever(server):
    server.answers = [(429, {}, {"Retry-After": "86400"})]
    with pytest.raises(PerspectiveError, match="asks to wait 86400 s"):
        client(server).scores(["a"])


def test_tries_again_after_silence_and_after_half_an_answer(server):
    def silence():
        time.sleep(0.4)
        return answer(0.9)

    server.answers = [silence, (200, b'{"attri', {"Content-Length": "100"}), answer(0.1)]
    assert client(server, manners=Manners(timeout=0.15)).scores(["a"]).tolist() == [[0.1]]
    assert len(server.asked) == 3


def test_no_server_is_an_error_that_names_no_key(server):
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(PerspectiveError, match="no answer in 2 tries") as error:
        client(server, manners=Manners(retries=1)).scores(["a"])
    assert SECRET not in str(error.value)


BAD_KEY = failure(400, f"API key not valid: {SECRET}.", reason="API_KEY_INVALID")
LANGUAGE = failure(400, "Attribute does not support", errorType="LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE")
MOVED = (302, b"", {"Location": "http://127.0.0.1:9/elsewhere"})


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (BAD_KEY, "refused the key.*PERSPECTIVE_API_KEY"),
        (failure(403, "disabled"), "refused the key"),
        (LANGUAGE, "text 0: its language.*language='en'"),
        (failure(400, "odd"), r"text 0 was refused \(400: odd\)"),
        ((404, b"<html>", {}), "text 0 was refused .404"),
        (MOVED, "text 0 was refused .302"),
        ((200, b"<html>", {}), "lacks the score"),
        ((200, scores(INSULT=0.5), {}), "lacks the score of one of TOXICITY"),
        ((200, scores(TOXICITY=1.5), {}), "not between 0 and 1"),
    ],
)
def test_a_refusal_is_final_and_keeps_the_key_to_itself(server, reply, words):
    server.answers = [reply]
    with pytest.raises(PerspectiveError, match=words) as error:
        client(server, language=None).scores(["a"])
    assert len(server.asked) == 1
    assert "languages" not in server.asked[0]
    assert SECRET not in str(error.value)


def test_keeps_to_the_rate(server):
    clock = Clock()
    asking = client(server, clock, manners=Manners(rate=4.0))
    asking.scores(["a", "b", "c"])
    asking.scores(["d"])
    assert clock.slept == [0.25, 0.25, 0.25]


def test_keeps_to_the_rate_by_the_real_clock(server):
    Perspective(address=server.address, manners=Manners(rate=20.0)).scores(["a", "b", "c", "d"])
    assert server.times[-1] - server.times[0] > 0.12  # three times 1/20 s, less what a connection may vary


def test_goes_on_where_it_was(server, tmp_path):
    cache = tmp_path / "new" / "answers.jsonl"
    server.answers = [answer(0.1), answer(0.2), failure(403, "quota")]
    with pytest.raises(PerspectiveError):
        client(server, cache=cache).scores(["a", "b", "c"])
    assert len(cache.read_text().splitlines()) == 2
    server.answers = [answer(0.3)]
    assert client(server, cache=cache).scores(["a", "b", "c", "a"]).flatten().tolist() == [0.1, 0.2, 0.3, 0.1]
    assert [asked["comment"]["text"] for asked in server.asked] == ["a", "b", "c", "c"]
    assert SECRET not in cache.read_text()


def test_the_cache_knows_texts_by_digest_and_question(server, tmp_path):
    cache = tmp_path / "answers.jsonl"
    server.answers = [answer(0.1), (200, scores(INSULT=0.9), {})]
    assert client(server, cache=cache).scores(["a private word"]).tolist() == [[0.1]]
    assert client(server, cache=cache, attributes=("INSULT",)).scores(["a private word"]).tolist() == [[0.9]]
    assert "private" not in cache.read_text()
    assert len(read_cache(cache)) == 2


def test_a_line_cut_short_is_asked_again(server, tmp_path):
    cache = tmp_path / "answers.jsonl"
    server.answers = [answer(0.1), answer(0.2)]
    client(server, cache=cache).scores(["a", "b"])
    whole = cache.read_bytes()
    cache.write_bytes(whole[:-9])
    server.answers = [answer(0.7)]
    assert client(server, cache=cache).scores(["a", "b"]).flatten().tolist() == [0.1, 0.7]
    assert read_cache(cache) == {client(server).digest("a"): (0.1,), client(server).digest("b"): (0.7,)}
    cache.write_bytes(b"nonsense\n" + whole)
    with pytest.raises(tt.InvalidInput, match="line 1 is not an answer"):
        client(server, cache=cache).scores(["a"])


def test_repr_hides_the_key(server):
    assert SECRET not in repr(client(server))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ""}, "PERSPECTIVE_API_KEY"),
        ({"key": "broken\nkey"}, "copy it again"),
        ({"attributes": "TOXICITY"}, "tuple of names"),
        ({"attributes": ()}, "tuple of names"),
        ({"address": "http://example.org/"}, "unencrypted"),
    ],
)
def test_bad_settings_are_refused_at_once(monkeypatch, options, words):
    monkeypatch.setenv(KEY, SECRET)
    with pytest.raises(tt.InvalidInput, match=words) as error:
        Perspective(**options)
    assert "broken" not in str(error.value)


def test_no_key_in_the_environment(monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(tt.InvalidInput, match="put yours into the environment"):
        Perspective()


@pytest.mark.parametrize(("name", "value"), [("rate", 0), ("timeout", -1), ("longest", float("inf")), ("retries", -1)])
def test_bad_manners(name, value):
    with pytest.raises(tt.InvalidInput, match=name):
        Manners(**{name: value})


@pytest.mark.parametrize(("text", "words"), [(" \n", "text 1 is empty"), ("é" * 10_241, "text 1 has 20482 bytes")])
def test_what_the_server_would_refuse_is_not_sent(server, text, words):
    with pytest.raises(tt.InvalidInput, match=words):
        client(server).scores(["fine", text])
    assert server.asked == []


def test_retry_after_is_a_number_or_a_date():
    assert retry_after(None) == retry_after("") == retry_after("soon") == retry_after("-3") == 0
    assert retry_after("2.5") == 2.5
    assert 28 < retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)) <= 30
    assert retry_after(format_datetime(datetime.now(UTC) - timedelta(seconds=30), usegmt=True)) == 0

"""A client of the Perspective API: scores of comments from 0 to 1, such as TOXICITY, from a server that judges them.

It keeps to the rate, waits when told to, tries again when the server fails, and remembers every answer in a file, so
that a run cut short goes on where it was. The file holds digests, not the texts. The key is sent as a header and
appears in no address, error or repr.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import torch
from torch import Tensor

from ..storage import read_bytes, write_with
from ..types import InvalidInput, TruetiltError
from .polite import BUSY, Gate, Manners, retry_after

KEY = "PERSPECTIVE_API_KEY"
ADDRESS = "https://commentanalyzer.googleapis.com/v1alpha1/comments:analyze"
LONGEST = 20_480  # bytes of a comment, the server's own limit


class PerspectiveError(TruetiltError, RuntimeError):
    """The server refused, or could not be reached; the message says what it said, and never the key."""


@dataclass(frozen=True)
class Perspective:
    """Scores of texts by the Perspective API; a judge of two classes, with and without the first attribute.

    The key is that of the environment, PERSPECTIVE_API_KEY, unless given. `language` None lets the server guess.
    """

    attributes: tuple[str, ...] = ("TOXICITY",)
    language: str | None = "en"
    cache: Path | None = None
    manners: Manners = field(default_factory=Manners)
    address: str = ADDRESS
    key: str = field(default_factory=lambda: os.environ.get(KEY, ""), repr=False)
    gate: Gate = field(default_factory=Gate, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidInput(f"the Perspective API needs a key; put yours into the environment as {KEY}")
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise InvalidInput(f"the key in {KEY} holds blanks or characters no key has; copy it again")
        if isinstance(self.attributes, str) or not self.attributes:
            raise InvalidInput(f"attributes is {self.attributes!r}; give a tuple of names, such as ('TOXICITY',)")
        where = urlsplit(self.address)
        if where.scheme != "https" and where.hostname not in ("localhost", "127.0.0.1"):
            raise InvalidInput(f"the address {self.address} would send the key unencrypted; give one of https")

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Log-probabilities [n, 2] of lacking and having the first attribute."""
        score = self.scores(texts)[:, 0]
        return torch.stack([torch.log1p(-score), score.log()], -1)

    def scores(self, texts: Sequence[str]) -> Tensor:
        """Scores [n, attributes] from 0 to 1, float64."""
        return torch.tensor(list(self.each(texts)), dtype=torch.float64).reshape(-1, len(self.attributes))

    def each(self, texts: Sequence[str]) -> Iterator[tuple[float, ...]]:
        """The scores of one text after another; every answer is on disk before it is given."""
        for number, text in enumerate(texts):
            _check_text(number, text)
        known = read_cache(self.cache) if self.cache else {}
        for number, text in enumerate(texts):
            name = self.digest(text)
            if name not in known:
                known[name] = self._ask(number, text)
                if self.cache:
                    append(self.cache, {"digest": name, "scores": dict(zip(self.attributes, known[name], strict=True))})
            yield known[name]

    def digest(self, text: str) -> str:
        """What stands for a text, the attributes asked of it and its language in the file."""
        question = json.dumps([text, self.attributes, self.language])
        return hashlib.sha256(question.encode()).hexdigest()

    def _ask(self, number: int, text: str) -> tuple[float, ...]:
        """One text's scores, in as many tries as manners allow."""
        body = {
            "comment": {"text": text},
            "requestedAttributes": {name: {} for name in self.attributes},
            "doNotStore": True,
            **({"languages": [self.language]} if self.language else {}),
        }
        limits, failure = self.manners, ""
        for tried in range(limits.retries + 1):
            self.gate.pass_through(limits.rate)
            answer = self._post(number, body)
            if isinstance(answer, bytes):
                return _scores(answer, self.attributes)
            failure, asked = answer
            if asked > limits.longest:
                raise PerspectiveError(
                    f"the server asks to wait {asked:.0f} s and Manners.longest is {limits.longest:.0f}; come back "
                    "later: what is answered is in the cache"
                )
            if tried < limits.retries:
                self.gate.sleep(limits.wait(tried, asked))
        raise PerspectiveError(f"text {number}: no answer in {limits.retries + 1} tries; at last: {failure}")

    def _post(self, number: int, body: dict[str, Any]) -> bytes | tuple[str, float]:
        """The answer; or, where it is worth trying again, what failed and the seconds the server asks to wait."""
        headers = {"Content-Type": "application/json", "X-Goog-Api-Key": self.key}
        request = Request(self.address, json.dumps(body).encode(), headers, method="POST")
        try:
            with build_opener(_NoRedirect).open(request, timeout=self.manners.timeout) as answer:
                return answer.read()
        except HTTPError as error:
            with error:
                said = self._hidden(_said(error))
            if error.code not in BUSY:
                raise PerspectiveError(_refusal(number, error.code, said)) from None
            return f"{error.code} {said}", retry_after(error.headers.get("Retry-After"))
        except (OSError, HTTPException) as error:  # no route, a dropped line, no answer in time
            return f"{type(error).__name__}: {error}", 0.0

    def _hidden(self, message: str) -> str:
        """A message without the key, should the server repeat it."""
        return message.replace(self.key, "[key]")


class _NoRedirect(HTTPRedirectHandler):
    """The key goes to nobody else."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def read_cache(path: Path) -> dict[str, tuple[float, ...]]:
    """Scores by digest; a last line that was cut short is taken out of the file."""
    if not path.is_file():
        return {}
    lines = read_bytes(path).splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        whole = b"".join(lines[:-1])
        write_with(path, lambda temporary: _write(temporary, whole))
        lines.pop()
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found[row["digest"]] = tuple(float(score) for score in row["scores"].values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"{path}, line {number} is not an answer; take it out, or name another cache") from error
    return found


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def append(path: Path, row: dict[str, Any]) -> None:
    """One more line, in one write, on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, (json.dumps(row, allow_nan=False) + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_text(number: int, text: str) -> None:
    if not text.strip():
        raise InvalidInput(f"text {number} is empty, and the server scores none of these; leave it out")
    if len(text.encode()) > LONGEST:
        raise InvalidInput(f"text {number} has {len(text.encode())} bytes and the server takes {LONGEST}; shorten it")


def _scores(answer: bytes, attributes: Sequence[str]) -> tuple[float, ...]:
    try:
        told = json.loads(answer)["attributeScores"]
        found = tuple(float(told[name]["summaryScore"]["value"]) for name in attributes)
    except (KeyError, TypeError, ValueError) as error:
        raise PerspectiveError(f"the server's answer lacks the score of one of {', '.join(attributes)}") from error
    if not all(0 <= score <= 1 for score in found):
        raise PerspectiveError(f"the server's scores {found} are not between 0 and 1")
    return found


def _said(error: HTTPError) -> str:
    """The server's own words, with the kinds of error it names."""
    try:
        told = json.load(error)["error"]
        kinds = [kind for detail in told.get("details", ()) for kind in _kinds(detail)]
        return " ".join([str(told.get("message", "")), *kinds]).strip()
    except (ValueError, KeyError, TypeError, AttributeError, OSError, HTTPException):
        return str(error.reason)


def _kinds(detail: dict[str, Any]) -> list[str]:
    return [str(detail[name]) for name in ("errorType", "reason") if name in detail]


def _refusal(number: int, code: int, said: str) -> str:
    if code in (401, 403) or "API_KEY" in said or "API key" in said:
        return f"the server refused the key ({code}: {said}); check {KEY}, and that the API is enabled for it"
    if "LANGUAGE" in said:
        return f"text {number}: its language has no such attribute ({code}: {said}); name one, such as language='en'"
    return f"text {number} was refused ({code}: {said})"

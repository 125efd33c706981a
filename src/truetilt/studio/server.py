"""The web server of the studio: it listens on this machine only, unless asked otherwise, and serves pages and reports.

A content security policy lets pages load nothing from elsewhere, and requests from other sites are refused.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.user_functions import raised

log = logging.getLogger(__name__)
LOCAL = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'self'"
)
_QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_SSR_MODE": "False"}


class Guard:
    """ASGI middleware: requests for another host or from another site are refused; all responses carry the policy."""

    def __init__(self, app: Any, hosts: tuple[str, ...]) -> None:
        self.app, self.hosts = app, hosts  # no hosts: any

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        host, origin = told.get("host", ""), told.get("origin")
        foreign = origin is not None and origin.split("://")[-1] != host
        unknown = bool(self.hosts) and re.sub(r":\d+$", "", host).strip("[]") not in self.hosts
        if foreign or unknown:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"this server answers its own pages only"})
            return

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
                if not scope["path"].startswith("/report/"):  # reports have a stricter policy of their own
                    extra.append((b"content-security-policy", POLICY.encode("latin-1")))
                message = message | {"headers": [*message.get("headers", ()), *extra]}
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:  # of a request that no page of ours makes
            log.warning("a request was not answered (%s%s)", raised(error), _at(error))
            with suppress(Exception):  # the answer has begun
                await send(
                    {"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"text/plain")]}
                )
                await send({"type": "http.response.body", "body": b"this request cannot be answered"})


def application(folder: Path, hosts: tuple[str, ...] = LOCAL, rewards: Sequence[str] = ()) -> tuple[Any, Any]:
    """The web application, and the studio behind it; reports are written into a folder, rewards are `file.py:name`."""
    for key, value in _QUIET.items():
        os.environ[key] = value
    try:
        import gradio as gr
    except ImportError as e:
        raise InvalidInput("the studio needs gradio; install it with: pip install 'truetilt[ui]'") from e
    from fastapi import FastAPI
    from fastapi.responses import FileResponse, PlainTextResponse
    from gradio import queueing, routes, utils

    from .page import blocks
    from .sessions import Studio
    from .steer_choices import EXAMPLES, named_rewards

    studio, known = Studio(folder), {**named_rewards(rewards), **EXAMPLES}
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/report/{token}")
    def report(token: str) -> Any:
        path = folder / f"{token}.html"
        if not re.fullmatch(r"[\w-]{8,64}", token) or not path.is_file():
            return PlainTextResponse("This report is gone; run it again.", status_code=404)
        return FileResponse(path, media_type="text/html; charset=utf-8")

    for module in (queueing, routes, utils):  # say in a line of the log what was wrong with a request
        vars(module)["traceback"] = _NoTraceback()
    app = gr.mount_gradio_app(
        app, blocks(studio, known), path="/", theme=_theme(gr), css=_asset("studio.css"), footer_links=[],
        run_history=False, show_error=False, ssr_mode=False, mcp_server=False, pwa=False, enable_monitoring=False,
        max_file_size=1,
    )  # fmt: skip
    return Guard(app, hosts), studio


def serve(host: str, port: int, say: Callable[[str], None], browser: bool, rewards: Sequence[str] = ()) -> None:
    """Serve until interrupted. A host other than localhost lets others in: they can start runs and read named paths."""
    with ExitStack() as open_things:
        listening = open_things.enter_context(_listening(host, port))
        folder = Path(open_things.enter_context(tempfile.TemporaryDirectory(prefix="truetilt-studio-")))
        os.environ["GRADIO_TEMP_DIR"] = str(folder / "gradio")
        app, studio = application(folder, LOCAL if host in LOCAL else (), rewards)
        open_things.callback(_end, studio)
        import uvicorn

        said = logging.StreamHandler()
        said.setFormatter(_OneLine())
        logging.getLogger().handlers[:] = [said]

        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        say(f"studio: {url} (Ctrl-C ends it)")
        if host not in LOCAL:
            say("note: whoever reaches this address can run models and name files here; there is no password")
        if browser:
            webbrowser.open(url)  # the socket is already open, so the page waits for the server
        uvicorn.Server(uvicorn.Config(app, log_level="critical", log_config=None, timeout_graceful_shutdown=1)).run(
            [listening]
        )


class _OneLine(logging.Formatter):
    """A record in one line of bounded length, its error without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        words = record.getMessage() + ("" if error is None else f" ({raised(error)}{_at(error)})")
        line = f"{record.levelname.lower()}: {' '.join(words.split())[:1000]}"
        return line.encode("utf-8", "backslashreplace").decode()


def _at(error: BaseException | None) -> str:
    """Where an error was raised, for those who report it."""
    frames = traceback.extract_tb(None if error is None else error.__traceback__)
    return f", {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


class _NoTraceback:
    """In place of the module `traceback` in gradio, which prints one for every request that is not of its form."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self, *_: Any, **__: Any) -> None:
        error = sys.exception()
        log.warning("a request was not answered (%s%s)", raised(error or ValueError()), _at(error))


def _end(studio: Any) -> None:
    """Stop what runs. What does not heed it (a function of the user's that hangs) ends with the process, at once."""
    if not studio.pool.close():
        shutil.rmtree(studio.folder, ignore_errors=True)
        os.write(2, b"error: stopped\n")
        os._exit(130)


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as e:
        raise InvalidInput(f"cannot listen on {host} port {port} ({e}); give another --port or --host") from e


def _theme(gr: Any) -> Any:
    """System fonts only: none is downloaded."""
    sans = ("Inter", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
    mono = ("ui-monospace", "JetBrains Mono", "SF Mono", "Menlo", "Consolas", "monospace")
    return gr.themes.Base(primary_hue="emerald", neutral_hue="stone", font=sans, font_mono=mono, radius_size="sm")


def _asset(name: str) -> str:
    return (files("truetilt.studio") / "assets" / name).read_text(encoding="utf-8")

"""The web server of the studio: it listens on this machine only, unless asked otherwise, and serves pages and reports.

A content security policy lets pages load nothing from elsewhere, and requests from other sites are refused.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput

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

        await self.app(scope, receive, sending)


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
        open_things.callback(studio.pool.close)
        import uvicorn

        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        say(f"studio: {url} (Ctrl-C ends it)")
        if host not in LOCAL:
            say("note: whoever reaches this address can run models and name files here; there is no password")
        if browser:
            webbrowser.open(url)  # the socket is already open, so the page waits for the server
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)).run([listening])


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

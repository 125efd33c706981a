"""The command line: options, messages, exit codes. Imported by nobody."""

from .main import app, main

__all__ = ["app", "main"]

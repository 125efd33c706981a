"""The command line: options, messages, exit codes. No other folder imports it."""

from .main import app, main

__all__ = ["app", "main"]

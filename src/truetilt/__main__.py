"""`python -m truetilt` and `truetilt`: the command line, which an interrupt ends in one line from its first moment.

Nothing else is imported before a handler of SIGINT stands: torch takes seconds, and an import that is broken off
half-way cannot be unwound. So an interrupt during an import ends the process at once; any other is a KeyboardInterrupt,
and SIGTERM a SystemExit, so that what is half written is removed.
"""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Entry point of `truetilt`."""
    _open_closed()
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        from .cli.main import main as run

        run()
    except KeyboardInterrupt:
        _stop()
    except OSError as error:  # stdout is full: nothing more can be said there
        _unsaid(error)
    finally:
        _flush()


def _open_closed() -> None:
    """Where stdin, stdout or stderr are closed, open something: else the next file that is opened is taken for it.

    What is written to stdout fails then, as it should; messages are dropped.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) < 3:
        os.set_inheritable(number, True)
        if number == 1:
            sys.stdout = open(1, "w")  # noqa: SIM115
        elif number == 2:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.stderr = open(2, "w")  # noqa: SIM115
    os.close(number)


def _interrupted(number: int, frame: FrameType | None) -> None:
    importing, writing = False, False
    while frame is not None:
        importing |= frame.f_code.co_filename.startswith("<frozen importlib")
        writing |= frame.f_code.co_name in ("write_with", "write_folder")  # has something to tidy up
        frame = frame.f_back
    if importing and not writing:
        _stop(128 + number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    os.write(2, b"error: stopped\n")
    raise SystemExit(128 + number)


def _stop(code: int = 130) -> None:
    os.write(2, b"error: stopped\n")
    os._exit(code)


def _flush() -> None:
    """What is still to be said is said now: where stdout is full or closed, that is one line and no traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _unsaid(error)


def _unsaid(error: OSError) -> None:
    os.write(2, f"error: {error.filename or 'stdout'}: {error.strerror}\n".encode("utf-8", "backslashreplace"))
    os._exit(1)


if __name__ == "__main__":
    main()

"""Parts that all commands share: common options, one-line errors, progress on stderr, results on stdout."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

Quick = Annotated[bool, typer.Option("--quick", help="Fewer targets and samples: at most a few minutes.")]
BackboneFile = Annotated[str | None, typer.Option("--structure", help="proteinmpnn: the backbone, PDB or mmCIF.")]
OpenResidues = Annotated[
    str | None,
    typer.Option("--open", help='proteinmpnn: residues to design, "39-41,54", "A10-20,B7"; all if not given.'),
]
BackboneWeights = Annotated[
    str | None, typer.Option("--weights", help="proteinmpnn: vanilla (if not given), soluble, or a .pt file.")
]
DesignedChains = Annotated[
    str | None, typer.Option("--chains", help="proteinmpnn: chains that are designed; all if not given.")
]
FixedResidues = Annotated[str | None, typer.Option("--fixed", help="proteinmpnn: residues that keep their letters.")]
ForbiddenLetters = Annotated[
    str | None,
    typer.Option(
        "--forbid", help='proteinmpnn: letters that only come where the file has them; "C": no new cysteines.'
    ),
]
TiedResidues = Annotated[
    str | None,
    typer.Option("--tied", help='proteinmpnn: what shares one letter, "A=B", "A10=B10" or "A10-20=B10-20".'),
]
Prompt = Annotated[
    str | None,
    typer.Option(help='Of a folder of transformers: the text that comes first, or one with "[MASK:8]" gaps.'),
]
Length = Annotated[int | None, typer.Option(help="Of a folder of transformers: tokens after the prompt; 32.", min=1)]
Fix = Annotated[
    str | None,
    typer.Option(help="molecules: a fragment that is kept, SMILES; stars are open ends, '*c1ccc(*)cc1'."),
]
Trusted = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the code that lies beside the weights: read it first.")
]
Seed = Annotated[int, typer.Option(help="Seed of the run; the same seed gives the same bits.", min=0)]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda or cuda:N.")]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json and figure.png; runs/NAME if not given.")]
Every = Annotated[
    int | None, typer.Option("--checkpoint-every", help="Save every so many steps; `truetilt resume` goes on.", min=1)
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, everything else on stderr.")]


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """The options that every experiment of the paper has; a subclass adds its own."""

    quick: Quick = False
    seed: Seed = 0
    device: Device = "cpu"
    out: Out = None
    as_json: Json = False

    @property
    def more(self) -> dict[str, Any]:
        """The experiment's own options, by name."""
        return {}


def command_of(options: type[ExperimentOptions], work: Callable[[Any], None]) -> Callable[..., None]:
    """A typer command whose options are the fields of a dataclass, its own before those of `ExperimentOptions`.

    `work` is called with an instance that holds the values given.
    """

    def command(**values: Any) -> None:
        work(options(**values))

    kinds, shared = get_type_hints(options, include_extras=True), ExperimentOptions.__dataclass_fields__
    named = sorted(fields(options), key=lambda field: field.name in shared)
    given = {one.name: Parameter.empty if one.default is MISSING else one.default for one in named}
    listed = [Parameter(name, Parameter.KEYWORD_ONLY, default=given[name], annotation=kinds[name]) for name in given]
    vars(command).update(__signature__=Signature(listed), __annotations__={name: kinds[name] for name in given})
    return command


def device(name: str) -> str:
    """The name of a device, if torch can allocate on it."""
    import torch

    try:
        if torch.device(name).type not in ("cpu", "cuda"):
            raise RuntimeError("only cpu and cuda are supported")
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ValueError, OverflowError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise typer.BadParameter(f"cannot compute on {name!r} ({reason}); use --device cpu") from e
    return name


def show(
    result: dict[str, Any],
    columns: tuple[str, ...],
    folder: Path,
    as_json: bool,
    files: tuple[str, str] = ("result.json", "figure.png"),
    lines: list[dict[str, str]] | None = None,
) -> None:
    """The result on stdout: JSON, texts or a table; its files on stderr. Only the first rank prints.

    The table has the result's rows, or other lines that are given.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    from rich.console import Console
    from rich.table import Column, Table

    texts = () if as_json else result.get("texts", ())
    if as_json:
        typer.echo(json.dumps(result, allow_nan=False))
    for found in texts:
        typer.echo(str(found["text"]).encode("utf-8", "replace").decode("utf-8"))
    table = Table(*(Column(name, overflow="fold", no_wrap=place == 0) for place, name in enumerate(columns)))
    for row in result["rows"] if lines is None else lines:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console(stderr=as_json or "texts" in result, width=None if sys.stdout.isatty() else _WIDEST).print(table)
    for note in result.get("notes", ()):
        typer.echo(f"note: {note}", err=True)
    written = [str(folder / name) for name in (*result.get("files", ()), *files)]
    typer.echo(f"written: {', '.join(written[:-1])} and {written[-1]}", err=True)
    if "log_z" in result:
        typer.echo(f"log Z here is {result['log_z']}", err=True)
    for line in result.get("verdict", ()):
        typer.echo(line, err=True)
    if "page" in result:
        typer.echo(f"open in a browser: {Path(result['page']).as_uri()}", err=True)
        return
    for saved in result.get("saved_runs", [folder] if (folder / "particles.json").is_file() else []):
        typer.echo(f"look at it: truetilt report {saved}", err=True)


_WIDEST = 400  # table width if the output is not a terminal, where nothing is cut


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class progress:
    """A progress bar on stderr; hidden if stderr is not a terminal, and on all ranks but the first."""

    def __init__(self, total: int, title: str) -> None:
        from tqdm import tqdm

        hidden = None if os.environ.get("RANK", "0") == "0" else True
        self.bar = tqdm(total=total, desc=title, file=sys.stderr, disable=hidden, leave=False)

    def __enter__(self) -> Any:
        return self.bar.update

    def reach(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        self.bar.total = total
        self.bar.update(done - self.bar.n)

    def say(self, line: str) -> None:
        """Print a line on stderr, above the bar."""
        self.bar.write(line, file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        self.bar.close()


_OUT_OF_MEMORY = re.compile(r"not enough memory|out of memory|can't allocate|Storage size|overflow", re.IGNORECASE)
_NAMED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)  # of a wrong name
_LONGEST = 1000  # characters of an error message, at most


def warn_in_a_line() -> None:
    """From now on a warning is one line on stderr, without its source line."""

    def say(message: Warning | str, *_: Any) -> None:
        typer.echo(f"note: {' '.join(str(message).split())}", err=True)

    vars(warnings).update(showwarning=say)


class OneLineErrors:
    """Context manager that turns an error into one line on stderr and an exit code, without a traceback."""

    def __init__(
        self,
        stopped: str = "stopped; the finished jobs are kept, and the same command goes on from there",
        folder: Path | None = None,
    ) -> None:
        self.resume = "" if folder is None else f" (`truetilt resume {folder}`)"
        self.stopped = (
            stopped if folder is None else f"stopped; `truetilt resume {folder}` goes on from the last checkpoint"
        )

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyboardInterrupt):  # possibly during the import of torch: import nothing more
            _fail(self.stopped, 130)
        if error is None or isinstance(error, SystemExit | typer.Exit | typer.BadParameter):
            return
        from ..core.errors import FunctionFailed, InvalidInput, Stopped, TruetiltError

        if isinstance(error, InvalidInput):
            _fail(str(error), 1 if isinstance(error, FunctionFailed) else 2)
        if isinstance(error, Stopped):
            _fail(f"{error}{self.resume}", 143)
        if isinstance(error, TruetiltError):
            _fail(str(error), 1)
        if isinstance(error, OSError):
            _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 2 if error.errno in _NAMED else 1)
        if isinstance(error, UnicodeEncodeError):
            _fail("a name or a text holds half a character (a lone surrogate); write it in UTF-8", 2)
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))):
            _fail(f"memory ran out ({error or type(error).__name__}); take fewer particles, populations or steps", 1)
        from ..commands.python_file import line_of
        from ..core.user_functions import raised

        if isinstance(error, Exception) and (line := line_of(error)):  # of a file of the user's
            _fail(f"{raised(error)}{line}", 1)


def _fail(message: str, code: int) -> NoReturn:
    """Print one line of bounded length on stderr, and exit with the code."""
    line = " ".join(message.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 4 :]}"
    typer.echo("error: " + line.encode("utf-8", "backslashreplace").decode("utf-8"), err=True)
    raise typer.Exit(code)

"""What a release must pass: sdist and wheel are built and checked, the wheel works in an environment of its own.

python proofs/release.py    builds into dist/; all else happens in a temporary folder, with nothing but PyPI

The wheel is built from the sdist, so that what is missing there shows. In an empty environment, away from this folder,
the wheel is installed without extras, the command answers, and the README's Python prints what the README says.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 100e6  # bytes of a file, PyPI's own limit
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"# -> (.*)$", re.MULTILINE)


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a new environment with some packages, at the versions of constraints.txt."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    call(python, *install, *packages)
    return python


def call(python: Path, *words: str, cwd: Path = ROOT) -> str:
    """What a command prints; it must not fail. Nothing of this folder is on its path."""
    done = subprocess.run([python, "-P", *words], cwd=cwd, text=True, stdout=subprocess.PIPE, env=clean())
    if done.returncode:
        sys.exit(f"failed with {done.returncode}: python {' '.join(words)}\n{done.stdout}")
    return done.stdout


def clean() -> dict[str, str]:
    """This environment without what would lead Python elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def build(folder: Path) -> list[Path]:
    """The sdist, the wheel made of it, in dist/; checked as PyPI would check them."""
    tools = environment(folder / "tools", "build", "twine")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    call(tools, "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT))
    made = sorted((ROOT / "dist").iterdir())
    call(tools, "-m", "twine", "check", "--strict", *map(str, made))
    for path in made:
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
        if path.stat().st_size > LIMIT:
            sys.exit(f"{path.name} is larger than {LIMIT / 1e6:.0f} MB, which PyPI refuses")
    return made


def run_examples(page: Path) -> int:
    """Every Python block of a page in order, in one namespace; each must print what the page says. Returns how many."""
    namespace: dict[str, object] = {"__name__": "readme"}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for source in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, page, "exec", dont_inherit=True), namespace)
        if out.getvalue().splitlines() != SHOWN.findall(source):
            sys.exit(f"{page.name} promises {SHOWN.findall(source)} and this was printed:\n{out.getvalue()}")
    return len(blocks)


def main() -> None:
    if sys.argv[1:2] == ["--examples"]:
        print(f"{run_examples(Path(sys.argv[2]))} examples of {sys.argv[2]} print what they say")
        return
    with tempfile.TemporaryDirectory(prefix="truetilt-release-") as name:
        folder = Path(name)
        wheel = next(path for path in build(folder) if path.suffix == ".whl")
        python = environment(folder / "empty", str(wheel))
        version = call(python, "-m", "truetilt", "--version", cwd=folder).strip()
        if f"-{version}-" not in wheel.name:
            sys.exit(f"{wheel.name} says that it is {version}")
        call(python, "-m", "truetilt", "--help", cwd=folder)
        where = call(python, "-c", "import truetilt; print(truetilt.__file__)", cwd=folder)
        if str(folder.resolve()) not in str(Path(where.strip()).resolve()):
            sys.exit(f"truetilt was taken from {where}, not from the wheel")
        print(call(python, __file__, "--examples", str(ROOT / "README.md"), cwd=folder), end="")
    print(f"truetilt {version} can be released")


if __name__ == "__main__":
    main()

"""The pages run: every Python block in order, one namespace a page, and what a `print` shows is what the page says."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import unicodedata
from pathlib import Path

import pytest

import truetilt as tt
from truetilt.commands.steer import SteerRequest, steer_named

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"# -> (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def blocks(text: str) -> list[str]:
    """Python blocks, each below as many empty lines as stand above it, so that a traceback names the page's line."""
    return ["\n" * (text[: m.start(1)].count("\n")) + m[1] for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"page_{page.stem}"}
    for source in blocks(page.read_text(encoding="utf-8")):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, page, "exec", dont_inherit=True), namespace)
        assert out.getvalue().splitlines() == SHOWN.findall(source)


def test_the_file_of_the_tutorial_can_be_steered_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mine.py`, as docs/steer.md has it, by the names that its command has."""
    page = (ROOT / "docs" / "steer.md").read_text(encoding="utf-8")
    (file,) = [block for block in blocks(page) if block.lstrip().startswith("# mine.py")]
    model, reward = re.findall(r"^truetilt steer (\S+) --reward (\S+) --strength 3 ", page, re.MULTILINE)[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", None)  # gone again afterwards
    Path("mine.py").write_text(file, encoding="utf-8")
    told = steer_named(SteerRequest(model, reward, 3.0, calls=100), tmp_path / "runs", lambda what, share: None)
    assert sum(draw["count"] for draw in told["draws"]) == 16
    assert all(draw["reward"] == sum(map(draw["text"].count, "GC")) for draw in told["draws"])


def test_the_pages_hold_what_is_looked_for() -> None:
    """As many blocks, shown answers and links as plain counting finds."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert len(PAGES) > 15
    assert sum(len(blocks(text)) for text in texts) == sum(text.count("\n```python\n") for text in texts) > 20
    assert sum(len(SHOWN.findall(block)) for text in texts for block in blocks(text)) > 20
    assert sum(len(LINK.findall(text)) for text in texts) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_on_the_page_exist(page: Path) -> None:
    used = set(re.findall(r"\btt\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8")))
    assert used <= set(tt.__all__)


def anchors(page: Path) -> set[str]:
    """What the site calls the headings of a page: ASCII letters, dashes for spaces."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = [
        unicodedata.normalize("NFKD", h).encode("ascii", "ignore").decode()
        for h in re.findall(r"^#+ (.*)$", text, re.M)
    ]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))):
        there = (page.parent / target).resolve() if target else page
        assert there.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_menu() -> None:
    menu = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(menu) == sorted(p.name for p in PAGES if p.parent.name == "docs")


HOUSE = Path(tt.__file__).parent
FLOORS = {path.name for path in HOUSE.iterdir() if (path / "__init__.py").is_file()}
GUIDES = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in (
    "principles", "glossary", "extend", "math", "performance", "beyond", "api", "index",
))]  # fmt: skip
BUILT = {"dist/", "site/", "runs/"}  # what make leaves
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]*)+(?:\.py)?|[a-z_]+(?:\.[a-zA-Z_]+)+)`")


def there(name: str) -> bool:
    """Whether `folder/`, `folder/module`, `folder/module.py` or `folder.module.thing` is in the package or by it."""
    if "/" in name:
        return any((home / (name + end)).exists() for home in (HOUSE, ROOT) for end in ("", ".py"))
    parts = name.removeprefix("truetilt.").split(".")
    if parts[0] not in FLOORS:
        return True  # a field, a method, a file: not a module of ours
    thing: object = importlib.import_module(f"truetilt.{parts[0]}")
    for k, part in enumerate(parts[1:], start=2):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(".".join(["truetilt", *parts[:k]]))
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


@pytest.mark.parametrize("page", GUIDES)
def test_modules_named_on_the_page_exist(page: str) -> None:
    named = set(NAMED.findall((ROOT / page).read_text(encoding="utf-8"))) - BUILT
    assert sorted(name for name in named if not there(name)) == []


def test_places_that_are_gone_are_noticed() -> None:
    assert not any(
        map(there, ("jumps/", "experiments/", "smc/types", "exact/flow_.py", "core.nowhere", "smc.sampler.no"))
    )
    assert all(map(there, ("core/types", "exact/", "targets/moves.py", "exact.flow.push", "tests/test_docs.py")))


FORMULA = re.compile(r"[∝∫ΣΠ√]|\^[{α(]|_[{t]\(")  # what a formula typed as code looks like


def test_formulas_are_set_not_typed_as_code() -> None:
    for page in [page for page in PAGES if page.parent.name == "docs"]:
        text = page.read_text(encoding="utf-8")
        typed = [block for block in re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S) if FORMULA.search(block)]
        assert typed == [], page.name
        assert text.count("$$") % 2 == 0
        plain = re.sub(r"^(```|\$\$).*?^\1$|`[^`\n]*`", "", text, flags=re.M | re.S)
        assert [line for line in plain.split("\n\n") if line.count("$") % 2] == [], page.name


def test_the_formulas_need_no_network() -> None:
    """What sets them lies beside the pages: script, style and every font, and nothing asks another address."""
    docs = ROOT / "docs"
    listed = re.findall(r"^  - (assets/\S+)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {Path(name).suffix for name in listed} == {".css", ".js"}
    for name in listed:
        text = (docs / name).read_text(encoding="utf-8")
        assert not re.search(r"url\(['\"]?(https?:)?//|@import|XMLHttpRequest|import\(", text), name
        for font in re.findall(r"url\(([^)]*)\)", text):
            assert (docs / name).parent.joinpath(font).is_file(), font
    katex = docs / "assets" / "katex"
    assert (katex / "LICENSE").is_file()
    assert sum(file.stat().st_size for file in katex.rglob("*") if file.is_file()) < 1_500_000

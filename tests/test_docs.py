"""The pages run: every Python block in order, one namespace a page, and what a `print` shows is what the page says."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import unicodedata
from pathlib import Path

import pytest

import truetilt as tt

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


def test_the_dictionary_of_symbols_names_real_things() -> None:
    """The table in math.md: a name in code in the third column, its module in the fourth."""
    rows = [line.split("|")[3:5] for line in (ROOT / "docs" / "math.md").read_text(encoding="utf-8").splitlines()
            if re.search(r"\| `[a-z_.]+` \|$", line)]  # fmt: skip
    assert len(rows) > 20
    for names, room in rows:
        home = importlib.import_module(f"truetilt.{room.strip(' `')}")
        for name in re.findall(r"`([\w.]+)`", names):
            thing: object = home
            for part in name.split("."):
                assert hasattr(thing, part) or part in getattr(thing, "__annotations__", {}), f"{room} has no {name}"
                thing = getattr(thing, part, None)

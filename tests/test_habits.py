"""What is written down twice agrees: the version, the Pythons, the tools' versions; and what is declared is used."""

import ast
import re
import tomllib
from datetime import date
from functools import cache
from pathlib import Path

import pytest
import yaml

import truetilt as tt

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
IMPORTED_AS = {"pyyaml": "yaml", "pytest-xdist": "xdist", "pytest-timeout": "pytest_timeout", "scikit-learn": "sklearn"}
TOOLS = {"lint", "docs", "release", "dev"}  # extras of programs that are run, not imported
PLUGINS = {"pytest-xdist", "pytest-timeout"}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins():
    lines = [line for line in read("constraints.txt").splitlines() if line and not line.startswith("#")]
    return dict(line.lower().replace("_", "-").split("==") for line in lines)


def name_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_the_version_has_one_source_and_the_others_agree():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/truetilt/__init__.py"
    cited = yaml.safe_load(read("CITATION.cff"))
    newest, day = RELEASE.findall(read("CHANGELOG.md"))[0]
    assert tt.__version__ == newest == str(cited["version"])
    assert str(cited["date-released"]) == day


def test_the_changelog_begins_with_what_is_unreleased_and_goes_back_in_time():
    text = read("CHANGELOG.md")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    released = RELEASE.findall(text)
    assert len(released) == len(heads) - 1, "a release is written: ## [1.2.3] - 2026-01-31"
    days = [date.fromisoformat(day) for _, day in released]
    assert days == sorted(days, reverse=True)


def test_the_workflows_try_the_pythons_that_the_package_names():
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    jobs = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_the_hooks_have_the_versions_of_the_constraints():
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    asked = [tool for hook in hooks for tool in hook.get("additional_dependencies", ())]
    assert {name_of(tool) for tool in asked} == {"ruff", "codespell"}
    assert all(tool == f"{name_of(tool)}=={pins()[name_of(tool)]}" for tool in asked)


def test_what_sends_an_interrupt_is_run_as_a_background_job():
    """Such a job ignores it: `make test` runs these tests as one, and a test that is not marked would not be."""
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for one in ast.walk(ast.parse(text)):
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                words = [ast.unparse(part) for part in (*one.decorator_list, *one.body)]
                sends = any("signal.SIG" + "INT" in part for part in words)
                assert sends == ("pytest.mark.interrupt" in words), f"{path.name}: {one.name}"
    assert "trap '' INT; $(BIN)/pytest -m 'interrupt and not prove'" in read("Makefile")


def requirements():
    extras = PROJECT["project"]["optional-dependencies"]
    found = {name_of(r) for r in PROJECT["project"]["dependencies"]}
    return found | {name_of(r) for extra, rs in extras.items() if extra not in TOOLS for r in rs} - PLUGINS


@cache
def imported():
    """Top-level names that the package and its tests import, also by name: needed("x"), importorskip("x")."""
    names = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                names.add(str(node.args[0].value))
    return {"tensorboard" if "tensorboard" in name else name.split(".")[0] for name in names}


@pytest.mark.parametrize("requirement", sorted(requirements()))
def test_what_is_required_is_imported(requirement):
    assert IMPORTED_AS.get(requirement, requirement.replace("-", "_")) in imported()


def test_every_lower_bound_is_below_what_is_tested():
    extras = PROJECT["project"]["optional-dependencies"]
    for requirement in [*PROJECT["project"]["dependencies"], *(r for rs in extras.values() for r in rs)]:
        low, tested = re.search(r">=([\d.]+)", requirement), pins().get(name_of(requirement))
        if low and tested:
            numbers = [tuple(int(n) for n in re.findall(r"\d+", version)) for version in (low[1], tested)]
            assert numbers[0] <= numbers[1], requirement

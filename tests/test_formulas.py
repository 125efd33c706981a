"""Formulas of docstrings, written as text between dollars, are readable TeX for the site (docs/formulas.py)."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KATEX = ROOT / "docs" / "assets" / "katex" / "katex.min.js"


def _formulas():
    """The module, which is loaded by path since docs/ is no package."""
    spec = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "formulas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


formulas = _formulas()
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings():
    """Every docstring of the package as (file:line, text)."""
    for path in sorted((ROOT / "src" / "truetilt").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
            if words:
                yield f"{path.relative_to(ROOT)}:{node.body[0].lineno}", words


def written():
    """Every formula of a docstring as (file:line, formula)."""
    return [
        (place, found["formula"])
        for place, words in docstrings()
        for found in formulas.FORMULA.finditer(words)
        if found["code"] is None
    ]


def test_every_formula_of_a_docstring_is_readable():
    unreadable = []
    for place, formula in written():
        try:
            formulas.tex(formula)
        except formulas.Unreadable as problem:
            unreadable.append(f"{place}: {problem}")
    assert unreadable == []
    assert len(written()) > 150


def test_every_dollar_of_a_docstring_has_a_partner():
    left = {place: formulas.FORMULA.sub("", words) for place, words in docstrings()}
    assert [place for place, words in left.items() if "$" in words] == []


def test_katex_sets_every_formula(browser):
    """As the site does, but with errors raised instead of printed in red; a wrong variant is refused."""
    page = browser.new_page()
    page.add_script_tag(path=str(KATEX))
    render = "(tex) => katex.renderToString(tex, {throwOnError: true, strict: 'error'}).length"
    every = sorted({formulas.tex(formula) for _, formula in written()})
    assert all(page.evaluate(f"(all) => all.map({render})", every))
    with pytest.raises(Exception, match="KaTeX parse error"):
        page.evaluate(render, r"\alpha_{")
    page.close()


@pytest.mark.parametrize(
    ("formula", "tex"),
    [
        ("pi ~ p0(x) p(zeta|x)^alpha", r"\pi \propto p_{0} ( x ) \, p ( \zeta \mid x )^{\alpha}"),
        ("e^-sigma", r"e ^{-\sigma}"),
        ("sum_k alpha_k log_hold", r"\sum_{k} \alpha_{k} \, \mathtt{log\_hold}"),
        ("|x|", r"\lvert x \rvert"),
        ("t -> s", r"t \to s"),
        ("sigma_min <= w~", r"\sigma_{\mathrm{min}} \le \tilde{w}"),
    ],
)
def test_the_notation(formula, tex):
    assert re.sub(r"\s+", "", formulas.tex(formula)) == re.sub(r"\s+", "", tex)


@pytest.mark.parametrize("wrong", ["", "p(x", "p x)", "p(x]", "a & b", "|x", r"\alpha", "x^", "1e5"])
def test_what_the_notation_does_not_know_is_refused(wrong):
    """Wrong variants: nothing, unbalanced brackets, other signs, TeX itself, a power of nothing, a float."""
    with pytest.raises(formulas.Unreadable):
        formulas.tex(wrong)


def test_code_and_prose_stay_as_they_are():
    assert formulas.typeset("costs `$HOME` and $t -> s$") == r"costs `$HOME` and $t \to s$"

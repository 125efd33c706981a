r"""Formulas of docstrings, which are plain text between dollars, turned into TeX for the API page (see mkdocs.yml).

`help` prints `$pi ~ p(zeta|x)^alpha$`; mkdocstrings gets `$\pi \propto p(\zeta \mid x)^{\alpha}$`, which the site sets
like any other formula. The notation:

    alpha, phi, eps, inf        Greek letters, infinity        p0, x_t, sigma_min, x_(a_i)     indices
    e^x, e^-x, e^(x + y)        powers                         sum_k, prod, int, log, grad     operators
    E[f(X) | x], |x|, sqrt(x)   means, sizes, roots            ~, *, ->, !=, <=                proportional, times, ...
    w~                          w with a tilde                 reward, log_hold                words, names of code
"""

from __future__ import annotations

import re

try:
    from griffe import Docstring, Extension, Object
except ImportError:  # where no documentation is built, tests read formulas without it
    Extension = object

GREEK = "alpha beta gamma delta zeta eta theta kappa lambda mu nu xi pi rho sigma tau psi omega"
LETTERS = {name: rf"\{name}" for name in GREEK.split()}
LETTERS |= {"phi": r"\varphi", "eps": r"\varepsilon", "inf": r"\infty", "E": r"\mathbb{E}"}
OPERATORS = {name: rf"\{name}" for name in ("log", "exp", "cos", "sum", "prod", "int")}
OPERATORS |= {"log2": r"\log_{2}", "grad": r"\nabla"}
SIGNS = {"~": r"\propto", "->": r"\to", "!=": r"\neq", "<=": r"\le", ">=": r"\ge", "<": r"\lt", ">": r"\gt"}
SIGNS |= {"*": r"\cdot", ".": r"\cdot"} | {sign: sign for sign in "=+-/,"}
OPENERS = {"(": "(", "[": "[", "^(": "^{", "_(": "_{", "sqrt(": r"\sqrt{"}
CLOSERS = {"(": ")", "[": "]", "^{": "}", "_{": "}", r"\sqrt{": "}"}

NAME = r"[A-Za-z]+\d*~?(?:_[A-Za-z0-9]+)*"
NUMBER = r"\d+(?:\.\d+)?(?!\d|e\d)"
TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<operator>(?:log2|log|exp|cos|grad|(?:sum|prod|int)(?:_[A-Za-z]\d?)?)(?!\w))"
    rf"|(?P<opener>sqrt\(|[\^_]\(|[(\[])|(?P<closer>[)\]])|(?P<power>\^-?(?:{NAME}|{NUMBER}))"
    rf"|(?P<name>{NAME})|(?P<number>{NUMBER})|(?P<bar>\|)|(?P<sign>->|[!<>]=|[~=<>+*/,.-])"
)
FORMULA = re.compile(r"(?P<code>`[^`]*`)|\$(?P<formula>[^$]*)\$")


class Unreadable(ValueError):
    """The notation has no such formula."""


def letter(text: str) -> str | None:
    """A letter, a Greek one, or one with a number or a tilde; None for a word."""
    sign, tilde, number = re.fullmatch(r"([A-Za-z]*)(?=\d*(~?))(\d*)~?", text).groups()
    if len(sign) > 1 and sign not in LETTERS:
        return None
    sign = LETTERS.get(sign, sign)
    sign = rf"\tilde{{{sign}}}" if tilde else sign
    return f"{sign}_{{{number}}}" if sign and number else sign or number


def word(text: str) -> str:
    """A word, a name of code, or a differential."""
    if re.fullmatch(r"d[A-Za-z]", text):
        return rf"\mathrm{{d}}{text[1]}"
    if text in OPERATORS or not re.fullmatch(r"[A-Za-z]{2,}(_[A-Za-z]+)*", text):
        raise Unreadable(f"{text!r} is neither a letter nor a word")
    return rf"\mathtt{{{text}}}".replace("_", r"\_") if "_" in text else rf"\mathrm{{{text}}}"


def name(text: str) -> str:
    """A letter or a word with its indices: sigma_min, p_zeta, x0_d, mean_k."""
    head, *indices = text.split("_")
    sign = letter(head)
    if sign is None:  # only letters are indices of a word: log_hold is one name
        while indices and letter(indices[0]) is None:
            head += "_" + indices.pop(0)
        sign = word(head)
    elif indices and (numbered := re.fullmatch(r"(.*)_\{(\d+)\}", sign)):
        sign, indices = numbered[1], [numbered[2], *indices]
    below = ",".join(letter(index) or word(index) for index in indices)
    return f"{sign}_{{{below}}}" if below else sign


def operator(text: str) -> str:
    head, _, index = text.partition("_")
    return OPERATORS[head] + (f"_{{{letter(index)}}}" if index else "")


def power(text: str) -> str:
    minus, exponent = re.fullmatch(r"\^(-?)(.*)", text).groups()
    return f"^{{{minus}{exponent if exponent[0].isdigit() else name(exponent)}}}"


SET = {"operator": operator, "power": power, "name": name, "number": str, "sign": SIGNS.get, "opener": OPENERS.get}


def tex(formula: str) -> str:
    """The TeX of a formula in the notation above; raises `Unreadable` for any other."""
    out, opened, place = [], [], 0
    spaced = operand = False  # whether a space, or something that may be a factor, was just read
    while place < len(formula):
        token = TOKEN.match(formula, place)
        if token is None:
            raise Unreadable(f"{formula[place:]!r} in {formula!r}")
        kind, text, place = token.lastgroup, token[0], token.end()
        if kind == "space":
            spaced = True
            continue
        if spaced and operand and kind in ("name", "number", "opener"):
            out.append(r"\,")
        if kind == "closer":
            if not opened or CLOSERS.get(opened[-1], "|").replace("}", ")") != text:
                raise Unreadable(f"{text!r} closes nothing in {formula!r}")
            out.append(CLOSERS[opened.pop()])
        elif kind == "bar" and not operand:
            opened.append(r"\lvert")
            out.append(r"\lvert")
        elif kind == "bar":
            inside = opened[-1:] == [r"\lvert"]
            out.append(r"\rvert" if inside else r"\mid")
            del opened[len(opened) - inside :]
        else:
            out.append(SET[kind](text))
            opened += [OPENERS[text]] if kind == "opener" else []
        operand = kind in ("name", "number", "power", "closer") or text == "." or out[-1] == r"\rvert"
        spaced = False
    if opened or not out:
        raise Unreadable(f"{formula!r} is empty or not closed")
    return " ".join(out)


def typeset(text: str) -> str:
    """A docstring with its formulas as TeX; code stays as it is."""
    return FORMULA.sub(lambda found: found[0] if found["code"] else f"${tex(found['formula'])}$", text)


class Formulas(Extension):
    """The extension of griffe that hands typeset docstrings to mkdocstrings."""

    def on_object(self, *, obj: Object, **kwargs: object) -> None:
        docstring: Docstring | None = obj.docstring
        if docstring is not None:
            docstring.value = typeset(docstring.value)

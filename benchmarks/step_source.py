"""What the code that runs a step is made of: lines, getattr, lambdas, packed tuples, state at module level.

PYTHONPATH=src python benchmarks/step_source.py
PYTHONPATH=/tmp/old/src python benchmarks/step_source.py     the same of another commit (git archive 4830b54 src)

Reads the source of every file that a step enters (the four cases of step_trace.py). A packed tuple is a parameter that
its function takes apart (`a, b = parameter`). State at module level is what a module binds to a container or cache that
can change, or names in a `global` statement; `lru_cache` of pure functions and constant tables do not count. Lines of
code are those without comments, docstrings and blank lines.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

from step_trace import PACKAGE, cases, third_step

STATEFUL = {"Last", "ContextVar", "deque", "OrderedDict", "defaultdict", "WeakKeyDictionary", "dict", "list", "set"}


def counted(tree: ast.Module) -> Counter[str]:
    """The counts of one file."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        found["getattr"] += isinstance(node, ast.Call) and name_of(node.func) == "getattr"
        found["lambdas"] += isinstance(node, ast.Lambda)
        found["module state"] += len(node.names) if isinstance(node, ast.Global) else 0
        found["packed tuples"] += packed(node) if isinstance(node, ast.FunctionDef) else 0
    found["module state"] += sum(binds_state(node) for node in tree.body)
    return found


def lines_of_code(text: str, tree: ast.Module) -> int:
    """Lines that hold code: all but blank ones, comments and docstrings."""
    holders = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    firsts = [node.body[0] for node in holders if ast.get_docstring(node) is not None]
    told = {line for first in firsts for line in range(first.lineno, (first.end_lineno or first.lineno) + 1)}
    lines = {number: line.strip() for number, line in enumerate(text.splitlines(), start=1)}
    return sum(number not in told and bool(line) and not line.startswith("#") for number, line in lines.items())


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def packed(function: ast.FunctionDef) -> int:
    """How many parameters the function takes apart."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    given = {one.arg for one in every}
    taken = {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Name)
    }
    return len(given & taken)


def binds_state(node: ast.stmt) -> bool:
    """Whether a statement binds a name to something that can change: a call of a class that keeps state.

    A name that is declared a `Mapping` or a `Sequence` is a constant table.
    """
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(("Mapping", "Sequence")):
        return False
    return isinstance(value, ast.Call) and name_of(value.func) in STATEFUL


def main() -> dict[str, int]:
    entered = {file for case in cases().values() for file, _ in third_step(*case).calls}
    total: Counter[str] = Counter({"files": len(entered)})
    for file in sorted(entered):
        text = (Path(PACKAGE) / file).read_text()
        tree = ast.parse(text)
        total += counted(tree) + Counter({"lines": len(text.splitlines()), "lines of code": lines_of_code(text, tree)})
    every = [path.read_text() for path in Path(PACKAGE).rglob("*.py")]
    states = sum(counted(ast.parse(text))["module state"] for text in every)
    names = ("files", "lines", "lines of code", "getattr", "lambdas", "packed tuples")
    return {name: total[name] for name in names} | {"module state, whole package": states}


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))

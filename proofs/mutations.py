"""Small faults put into source code on purpose: every single change of an expression that a test ought to notice.

Only executable code is changed: docstrings, annotations, decorators, strings and what a `raise` says are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import copy
from typing import NamedTuple

OPERATORS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
_PAIRS = "min max,minimum maximum,amin amax,argmin argmax,cummin cummax,any all,sum mean,floor round,exp log"
NAMES = {a: b for pair in _PAIRS.split(",") for one, two in [pair.split()] for a, b in ((one, two), (two, one))}
_LEFT_ALONE = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)


class Mutation(NamedTuple):
    """One change: where it is, the code it changes before and after, and how to make it in the tree it was found in."""

    line: int
    before: str
    after: str
    make: Callable[[], None]


class Mutant(NamedTuple):
    """A change of one module, by the number that `mutations` gives it."""

    module: str
    line: int
    number: int
    change: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.change} #{self.number}"


class Task(NamedTuple):
    """A mutant, the tests it is put to, and how long they usually take."""

    mutant: Mutant
    tests: list[str]
    seconds: float


def mutations(tree: ast.Module) -> Iterator[Mutation]:
    """Every change that can be made to a module, always in the same order; make at most one in a tree."""
    for parent, name, index, node in _expressions(tree):
        for new in _changes(parent, name, node):
            new = ast.fix_missing_locations(ast.copy_location(copy(new), node))
            before, after = ast.unparse(node), ast.unparse(new)
            if before != after:
                yield Mutation(node.lineno, before, after, _put(parent, name, index, new))


def mutant_tree(source: str, number: int) -> ast.Module:
    """The module with its change of that number made, every line where it was."""
    tree = ast.parse(source)
    list(mutations(tree))[number].make()
    return ast.fix_missing_locations(tree)


def mutated(source: str, number: int) -> str:
    """The source with its change of that number made; comments are lost."""
    return ast.unparse(mutant_tree(source, number))


def _put(parent: ast.AST, name: str, index: int | None, new: ast.AST) -> Callable[[], None]:
    if index is None:
        return lambda: setattr(parent, name, new)
    return lambda: getattr(parent, name).__setitem__(index, new)


def _expressions(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """Every expression (and augmented assignment) below a node, with the place that holds it."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, _LEFT_ALONE) or _is_type(child):
                continue
            if isinstance(child, ast.expr | ast.AugAssign):
                yield node, name, index, child
            if not _is_negative(child):
                yield from _expressions(child)


def _is_negative(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def _is_type(node: ast.AST) -> bool:
    """Module-level names of types, such as `Ramp = Callable[...]`, and `__all__`: no code that computes."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    return node.targets[0].id == "__all__" or (node.targets[0].id[0].isupper() and not node.targets[0].id.isupper())


def _changes(parent: ast.AST, name: str, node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may be changed to."""
    if name == "test" or (name == "ifs" and isinstance(parent, ast.comprehension)):
        yield ast.Constant(False)
        if not isinstance(parent, ast.While):
            yield ast.Constant(True)
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield ast.Compare(node.left, [OPERATORS[type(op)]()], node.comparators)
        case ast.Compare(ops=[first, *rest]) if rest and type(first) in OPERATORS:
            yield ast.Compare(node.left, [OPERATORS[type(first)](), *rest], node.comparators)
            yield ast.Compare(node.left, [first, OPERATORS[type(rest[0])](), *rest[1:]], node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(OPERATORS[type(node.op)](), node.values)
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
            if isinstance(node.op, ast.Add | ast.Sub) and "log_" in ast.unparse(node):
                yield from (node.left, node.right)  # a term dropped
        case ast.AugAssign() if type(node.op) in OPERATORS:
            yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            yield ast.Constant(-2 if value == 1 else 1 - value)  # of the last axis, the one before
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + (1 if node.col_offset % 2 else -1))  # one of the two, always the same
        case ast.Slice():
            if node.lower is not None and not isinstance(node.lower, ast.Constant):
                yield ast.Slice(ast.BinOp(node.lower, ast.Add(), ast.Constant(1)), node.upper, node.step)
            if node.upper is not None and not isinstance(node.upper, ast.Constant):
                yield ast.Slice(node.lower, ast.BinOp(node.upper, ast.Sub(), ast.Constant(1)), node.step)
        case ast.Tuple(elts=[one, two, *rest]) if isinstance(parent, ast.Return):
            yield ast.Tuple([two, one, *rest], ast.Load())
        case ast.Call():
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[ast.AST]:
    """Another function of a pair, and the first two arguments in the wrong order."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        yield ast.Call(ast.Attribute(node.func.value, NAMES[node.func.attr], ast.Load()), node.args, node.keywords)
    elif isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield ast.Call(ast.Name(NAMES[node.func.id], ast.Load()), node.args, node.keywords)
    ordered = ast.unparse(node.func) not in ("isinstance", "min", "max", "getattr")
    if ordered and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)

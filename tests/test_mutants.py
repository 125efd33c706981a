"""The mutation tester of proofs/: what it changes, what it leaves alone, and that each change is one change."""

import ast
from pathlib import Path
from runpy import run_path

import pytest

proof = run_path(str(Path(__file__).parents[1] / "proofs/mutations.py"))
mutated, mutations = proof["mutated"], proof["mutations"]

SOURCE = '''
"""A page about 1 < 2."""
Ramp = Callable[[float], float]
__all__ = ["f"]


@dataclass(frozen=True)
class A:
    """Holds 3."""

    size: int = 3


def f(a: Literal[1], flag: bool = True) -> Literal[2]:
    """1 + 1"""
    if not a < 0:
        raise InvalidInput(f"{a + 1} is more than {1}")
    return log_p - log_q, min(a, 5), x[..., a:]
'''


def changes(source):
    return {(found.before, found.after) for found in mutations(ast.parse(source))}


def test_every_kind_of_change_is_made():
    assert changes(SOURCE) == {
        ("3", "2"),  # a default
        ("True", "False"),
        ("not a < 0", "False"),  # a condition
        ("not a < 0", "True"),
        ("not a < 0", "a < 0"),
        ("a < 0", "a <= 0"),
        ("0", "1"),
        ("(log_p - log_q, min(a, 5), x[..., a:])", "(min(a, 5), log_p - log_q, x[..., a:])"),
        ("log_p - log_q", "log_p + log_q"),
        ("log_p - log_q", "log_p"),
        ("log_p - log_q", "log_q"),
        ("min(a, 5)", "max(a, 5)"),
        ("5", "6"),
        ("a:", "a + 1:"),
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [("a == b", "a != b"), ("a and b", "a or b"), ("a * b", "a / b"), ("f(a, b)", "f(b, a)"), ("~a", "a")],
)
def test_a_change_is_made_in_the_source(one, other):
    assert mutated(f"y = {one}", 0) == f"y = {other}"


def test_each_change_is_another_program():
    count = len(list(mutations(ast.parse(SOURCE))))
    programs = {mutated(SOURCE, number) for number in range(count)}
    assert len(programs) == count
    assert ast.unparse(ast.parse(SOURCE)) not in programs

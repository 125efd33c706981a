"""The proofs of the code itself: small faults, each of which is one change, and comparisons that notice a change."""

import ast
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
import torch

import truetilt as tt
from problems import table

PROOFS = Path(__file__).parents[1] / "proofs"
proof = run_path(str(PROOFS / "mutations.py"))
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


def test_files_that_move_do_not_leave_the_tester_without_faults(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PROOFS), *sys.path])
    tester = run_path(str(PROOFS / "mutants.py"))
    found = tester["all_mutants"](None)
    assert len(found) == len({mutant.name for mutant in found}) > 4500
    tester["TARGETS"]["nowhere/*"] = 10
    with pytest.raises(SystemExit, match=r"nowhere/\* has 0 mutants left of 10"):
        tester["all_mutants"](None)


hashes = run_path(str(PROOFS / "hashes.py"))
NOTHING = {"renamed": {}, "changed on purpose": {}}


def differences(before, now, **notes):
    return hashes["compared"](before, now, NOTHING | notes)


def test_a_run_that_differs_is_told_by_its_part():
    before = {
        "a run": {"particles": "0123456789abcdef", "story": "1. Importance.\n2. Twisted."},
        "other": {"words": "x"},
    }
    assert differences(before, before) == []
    now = {"a run": {"particles": "fedcba9876543210", "story": "1. Importance.\n2. Annealed."}, "new": {"words": "x"}}
    assert differences(before, now) == [
        "a run: particles was 0123456789abcdef, is fedcba9876543210",
        "a run: story\n    -2. Twisted.\n    +2. Annealed.",
        "other: is gone",
    ]
    listed = {"a run: particles": "why", "a run: story": "why", "other": "why"}
    assert differences(before, now, **{"changed on purpose": listed}) == []


def test_names_are_mapped_in_words_and_in_the_names_of_runs():
    before = {"of StepWork": {"settings": '"name": "StepWork",\n "gone": 3,'}}
    now = {"of RunLog": {"settings": '"name": "RunLog",'}}
    assert len(differences(before, now)) == 1
    renamed = {r"\bStepWork\b": "RunLog", r'\n "gone": .*$': ""}
    assert differences(before, now, renamed=renamed) == []


def test_every_field_of_a_result_its_settings_and_its_words_are_compared():
    model = table(tt.Masking, 3, 2).model()
    result = tt.run(tt.Tilted(model, 3.0), tt.uniform_grid(4), particles=8, populations=2, snapshots=2)
    recorded = hashes["recorded"]
    right = recorded(result)
    assert right == recorded(result)
    assert {"counts", "snapshot_particles", "settings", "trust", "spent", "log Z"} <= right.keys()
    spoiled = {
        "log_weights": -result.log_weights,
        "counts": result.counts + 1,
        "snapshot_particles": 2 - result.snapshot_particles,
        "settings": result.settings | {"weights": "other"},
        "particles": result.particles.roll(1, -1),
    }
    for name, value in spoiled.items():
        changed = recorded(replace(result, **{name: value}))
        assert name in [part for part in right if right[part] != changed[part]]
    assert recorded(torch.tensor([0.0])) != recorded(torch.tensor([-0.0])) != recorded(torch.tensor([0.0]).double())


FAULTS = (  # one line of the code each, the suite that ends otherwise by it, and in which part
    (
        "targets/any_order.py",
        "self.strayed.pick(drawn).sum(-1)",
        "-self.strayed.pick(drawn).sum(-1)",
        "tables",
        "log_w",
    ),
    ("smc/trust.py", "Not seen here: the error", "Unseen: the error", "chain", "trust"),
    ("core/evaluation.py", "self.evaluations += states", "self.evaluations += states + 1", "chain", "counts"),
    ("cli/terminal.py", "Seed of the run;", "Seed of a run;", "help", "words"),
    ("rewards/calls.py", "it must be finite and not 0", "it has to be finite and not 0", "calls", "words"),
    ("steering/findings.py", "Twice the budget would buy", "Two budgets would buy", "steer", "story"),
)


@pytest.mark.prove  # a minute of one core: five suites, of the tree as it is and with the faults
@pytest.mark.timeout(1200)
def test_a_changed_line_is_noticed(tmp_path):
    """A weight's sign, a line of trust, a count, a help text, a message and a story."""
    for name in ("src", "tests"):
        shutil.copytree(PROOFS.parent / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROOFS, tmp_path / "proofs", ignore=shutil.ignore_patterns("*.json*", "__pycache__"))
    for file, right, wrong, _, _ in FAULTS:
        path = tmp_path / "src/truetilt" / file
        assert right in path.read_text()
        path.write_text(path.read_text().replace(right, wrong, 1))
    for suite in sorted({suite for _, _, _, suite, _ in FAULTS}):
        told = differences(hashes["in_a_process"](suite), hashes["in_a_process"](suite, tmp_path / "proofs/hashes.py"))
        for file, _, _, where, part in FAULTS:
            assert where != suite or any(f": {part}" in one for one in told), file

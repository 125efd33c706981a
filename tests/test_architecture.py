"""The house as its imports show it: one way, and no forbidden words."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import truetilt as tt

ROOT = Path(tt.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.rglob("*.py"))
}
RANKS = (  # folders and modules from the lowest to the highest: each imports itself and what stands before it
    *("core", "diffusion", "smc", "runtime", "rewards", "targets", "feynman_kac", "continuous", "exact", "twists"),
    "baselines",
    "testing",
    *("viz", "proteins", "models", "antibodies", "molecules", "metrics", "training", "result", "api"),
    *("distributed", "steering"),
    *("commands", "paper", "studio", "cli", "__main__"),
)
ONLY = {  # stricter than its rank: all that a folder may import of ours
    "core": set(),
    "diffusion": {"core"},
    "smc": {"core"},
    "runtime": {"core", "smc"},
    "rewards": {"core"},
    "continuous": {"core", "diffusion", "targets"},
    "exact": {"core", "diffusion", "smc", "runtime", "targets"},
    "twists": {"core", "diffusion", "smc", "runtime", "rewards", "targets", "exact"},
    "baselines": {"core", "diffusion", "smc", "rewards", "targets", "twists"},
    "testing": {"core", "diffusion", "smc", "runtime", "targets", "exact"},
    "viz": {"core", "smc", "runtime", "continuous"},
    "proteins": {"core", "diffusion", "viz"},
    "models": {"core", "diffusion", "smc", "runtime", "viz"},
    "antibodies": {"core", "diffusion", "targets", "viz", "models"},
    "molecules": {"core", "diffusion", "rewards", "viz", "models"},
}
RANDOM = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "normal", "bernoulli", "multinomial"}
each_module = pytest.mark.parametrize("module", MODULES)


def room(module):
    """The folder or file a module lives in."""
    return module.split(".")[0]


def imports(module):
    """Modules of ours that a module imports, wherever in the file, as dotted names below truetilt."""
    package = module.split(".")[:-1]
    found = set()
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            if node.level:
                base = package[: len(package) - node.level + 1]
                found |= {".".join([*base, name]) for name in names}
            elif room(node.module) == "truetilt":
                found.add(node.module.removeprefix("truetilt").lstrip("."))
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("truetilt.") for a in node.names if room(a.name) == "truetilt"}
    return found - {"__version__"}


def imported_rooms(module):
    return {room(name) for name in imports(module)}


def calls(module):
    """The names called in a module: print, torch.rand, ..."""
    return [(ast.unparse(node.func), node) for node in ast.walk(MODULES[module]) if isinstance(node, ast.Call)]


def test_the_reader_of_imports_sees_them():
    assert imports("diffusion.processes") >= {"diffusion.kernels", "core.types"}
    assert imports("smc.sampler") >= {"core.types", "smc.resampling", "smc.shards"}
    assert imports("exact.flow") >= {"targets.on_clock", "smc.resampling", "exact.tables"}


def test_every_folder_and_module_has_a_rank():
    assert {room(module) for module in MODULES} - {"__init__"} == set(RANKS)
    assert set(ONLY) <= set(RANKS)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__"])
def test_imports_go_one_way(module):
    """A folder imports itself and lower ones: nobody imports the command line, only it the studio and the paper."""
    own = room(module)
    lower = ONLY.get(own, set(RANKS[: RANKS.index(own)]))
    assert imported_rooms(module) - {own, "__all__"} <= lower


def test_the_order_is_seen_to_be_broken():
    """A wrong variant: the sampler that knew a target would be noticed."""
    assert "targets" not in ONLY["smc"]
    assert RANKS.index("targets") > RANKS.index("smc")


def test_no_two_modules_import_each_other():
    reach = {module: imports(module) & MODULES.keys() for module in MODULES}
    for _ in MODULES:
        reach = {module: seen.union(*(reach[name] for name in seen)) for module, seen in reach.items()}
    assert [module for module, seen in reach.items() if module in seen] == []


TERMINAL = {"cli", "paper"}
ENTRIES = {  # python -m truetilt...; and what `tt.steer` shows of its progress
    "commands.real_digits", "training.__main__", "training.prepare", "training.bundle", "steering.progress",
}  # fmt: skip
PRINTS = {"print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.writelines", "sys.stderr.writelines"}


def printing(module):
    """Lines that print, by `print` or by writing to standard output or standard error."""
    return [node.lineno for name, node in calls(module) if name in PRINTS]


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) not in TERMINAL and name not in ENTRIES])
def test_only_the_command_line_and_the_paper_print(module):
    assert printing(module) == []


def test_what_prints_is_seen():
    assert {module for module in MODULES if room(module) not in TERMINAL and printing(module)} == ENTRIES


def reads_tensors_alone(name, node):
    """torch.load with weights_only=True, which opens no pickle that would run anything."""
    only = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "weights_only"]
    return name == "torch.load" and only == ["True"]


@each_module
def test_no_forbidden_words(module):
    found = [(name, node) for name, node in calls(module) if not reads_tensors_alone(name, node)]
    names = {name.split(".")[-1] for name, _ in found} | {name for name, _ in found}
    assert not names & {"nan_to_num", "torch.load", "torch.manual_seed", "torch.seed", "pickle.load", "pickle.loads"}
    assert [node.lineno for node in ast.walk(MODULES[module]) if isinstance(node, ast.Assert)] == []


def random_calls(module):
    """Calls of torch's and numpy's generators."""
    torch_draws = {f"torch.{name}" for name in RANDOM}
    return [(n, node) for n, node in calls(module) if n in torch_draws or n.startswith(("np.random.", "random."))]


def test_calls_of_generators_are_seen():
    drawing = [module for module in MODULES if random_calls(module)]
    assert drawing
    assert {room(module) for module in drawing} <= {"commands", "paper"}


@each_module
def test_nothing_is_drawn_from_a_global_generator(module):
    seeded = ("np.random.default_rng", "np.random.SeedSequence")
    for name, node in random_calls(module):
        assert "generator" in {keyword.arg for keyword in node.keywords} or name.startswith(seeded)
        assert node.args, f"{name} without a seed"


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) not in {"commands", "paper"}])
def test_the_library_draws_from_its_stream_alone(module):
    assert random_calls(module) == []
    assert not any(name.endswith("manual_seed") for name, _ in calls(module))


@each_module
def test_nothing_is_handed_over_behind_the_back(module):
    """What a step needs is passed to it: no context variable, no `global`."""
    assert not any(name.endswith("ContextVar") for name, _ in calls(module))
    assert [node.lineno for node in ast.walk(MODULES[module]) if isinstance(node, ast.Global)] == []


@each_module
def test_every_module_says_what_the_room_holds(module):
    assert ast.get_docstring(MODULES[module])


@pytest.mark.parametrize("name", tt.__all__)
def test_every_public_name_resolves_and_says_what_it_is(name):
    thing = getattr(tt, name)
    if name != "__version__":
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{name}(")  # what dataclasses write when nobody else does


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tt.no_such_name


@pytest.mark.parametrize("module", ["truetilt", "truetilt.cli.main"])
def test_importing_does_not_wait_for_torch(module):
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_cdf_is_inverted_in_one_place():
    assert [module for module in MODULES if any(name.endswith("nextafter") for name, _ in calls(module))] == [
        "core.logits"
    ]

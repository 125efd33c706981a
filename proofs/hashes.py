"""Hashed runs: whether a change of the code changed a bit of any answer.

Floating-point results differ between machines, so hashes are compared between two states of the code on one machine:

python proofs/hashes.py                      hash every run with the code as it is
python proofs/hashes.py --against REVISION   and with the code of that commit; exit code 1 if an unlisted one differs

Runs that changed on purpose are listed in proofs/hashes.json, with the reason and both hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
FIELDS = ("particles", "log_weights", "times", "ess", "log_z_path", "ancestors", "moved", "accepted")
Case = Callable[[], Iterator[tuple[str, object]]]


def digest(result: object) -> str:
    """16 hexadecimal digits of every tensor a result holds."""
    found = hashlib.sha256()
    for name in FIELDS:
        tensor = getattr(result, name).detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return found.hexdigest()[:16]


def tables() -> Iterator[tuple[str, object]]:
    """Every target, kernel, resampler, coupling and kind of move on tables of three sites and of three tokens."""
    import torch

    import truetilt as tt

    def table(process: type, length: int) -> tt.Table:
        generator = torch.Generator().manual_seed(4)
        p0, likelihood = (torch.rand((3,) * length, generator=generator, dtype=torch.float64) for _ in range(2))
        return tt.Table(process(3), p0, likelihood)

    both = {"masking": table(tt.Masking, 3), "uniform": table(tt.Uniform, 2)}
    clock, reveals = tt.uniform_grid(8), tt.masked_fraction_grid(both["masking"].process.schedule, 3)
    sizes = {"particles": 37, "populations": 2, "seed": 5}
    for name, problem in both.items():
        model = problem.model()
        for kernel in (tt.euler, tt.tweedie, tt.tau_leaping):
            made = {
                "tempered": tt.Tempered(model, 2.0, kernel=kernel),
                "tilted": tt.Tilted(model, 3.0, kernel=kernel),
                "steered": tt.Steered(model, model.potential, 2.0, kernel=kernel),
                "unweighted": tt.Unweighted(model, model.conditional, kernel=kernel),
            }
            for kind, fk in made.items():
                yield f"{name}, {kind}, {kernel.__name__}", tt.run(fk, clock, **sizes)
        yield f"{name}, tt.sample", tt.sample(model, 2.0, num_inference_steps=8, **sizes)
        yield f"{name}, tt.sample, beta = 1", tt.sample(model, 2.0, 1.0, num_inference_steps=8, **sizes)
    model = both["masking"].model()
    for scheme in (tt.multinomial, tt.stratified, tt.systematic, tt.residual, tt.ssp, tt.never):
        yield f"resampling, {scheme.__name__}", tt.run(tt.Tempered(model, 3.0, 2.0), clock, resample=scheme, **sizes)
    resamplers = {"partial": tt.partial(tt.stratified, 0.5), "adaptive": tt.adaptive(tt.ssp, 0.95)}
    for name, resample in resamplers.items():
        yield f"resampling, {name}", tt.run(tt.Tempered(model, 3.0, 2.0), clock, resample=resample, **sizes)
    any_order, tilted = tt.AnyOrder(model, 3.0), tt.Tilted(model, 4.0)
    for couple in (tt.independent, tt.systematic_draws, tt.stratified_draws):
        yield f"any order, {couple.__name__}", tt.run(any_order, reveals, couple=couple, **sizes)
    yield "any order, adapted sites", tt.run(tt.AnyOrder(model, 3.0, choose=tt.adapted_sites), reveals, **sizes)
    yield "tt.reveal, two sites, guided", tt.reveal(model, 3.0, 1.5, sites_per_step=2, **sizes)
    ramp = tt.pilot(tilted, clock, particles=32, seed=1)
    yield "pilot", tt.run(tt.Tilted(model, 4.0, ramp=ramp), clock, **sizes)
    moves = {"gibbs": (any_order, tt.Gibbs(any_order), reveals), "block": (any_order, tt.Block(any_order, 2), reveals)}
    for name, (fk, kernel, grid) in moves.items():
        often = tt.Rejuvenation(kernel, each_step=1, after_resampling=2, at_end=2)
        yield f"moves, {name}", tt.run(fk, grid, resample=tt.multinomial, moves=often, **sizes)
    metropolis = tt.Rejuvenation(tt.Metropolis(tilted), each_step=1)
    yield "moves, metropolis", tt.run(tilted, clock, resample=tt.systematic, moves=metropolis, **sizes)
    yield "chunks of one", tt.run(tt.Tempered(model, 3.0, 2.0), clock, chunk=1, **sizes)


def chain() -> Iterator[tuple[str, object]]:
    """A Markov chain of twelve sites."""
    import torch

    import truetilt as tt

    generator = torch.Generator().manual_seed(2)
    first, step, emission = (
        torch.rand(shape, generator=generator, dtype=torch.float64) for shape in ((4,), (11, 4, 4), (12, 4))
    )
    model = tt.Chain(tt.Masking(4), first, step, emission).model()
    fk, grid = tt.AnyOrder(model, 3.0), tt.masked_fraction_grid(model.process.schedule, 12)
    moves = tt.Rejuvenation(tt.Gibbs(fk, tt.systematic_scan), each_step=1, at_end=12)
    yield "chain, any order with moves", tt.run(fk, grid, particles=40, populations=2, seed=3, moves=moves)
    yield "chain, tempered", tt.sample(model, 2.0, 1.0, particles=40, num_inference_steps=12, seed=3)


def digits() -> Iterator[tuple[str, object]]:
    """The embedded U-Net and its potential."""
    import truetilt as tt

    nets = tt.load("mnist")
    sizes = {"particles": 4, "populations": 2, "num_inference_steps": 3, "seed": 1}
    yield "digits, tilted", tt.sample(nets.model(4), 3.0, **sizes)
    yield "digits, tempered", tt.sample(nets.model(4, "cfg"), 3.0, 1.5, **sizes)
    yield "digits, deft", tt.sample(nets.model(4, "deft"), 2.0, **sizes)


def text() -> Iterator[tuple[str, object]]:
    """The embedded text nets: classes and any order."""
    import truetilt as tt

    nets = tt.load("tiny-reviews")
    sizes = {"particles": 4, "populations": 2, "seed": 1}
    yield "text, tilted", tt.sample(nets.model("positive"), 3.0, num_inference_steps=4, **sizes)
    yield "text, tempered", tt.sample(nets.model("positive", "cfg"), 2.0, 1.0, num_inference_steps=4, **sizes)
    yield "text, any order", tt.reveal(nets.model("negative", "cfg"), 2.0, sites_per_step=16, **sizes)


def vectors() -> Iterator[tuple[str, object]]:
    """A diffusion of real vectors, by every weight."""
    import truetilt as tt
    from truetilt import continuous as c

    mixture = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    model = c.Observed(c.VP(1.0, 20.0), mixture, c.Observation([0.8], (0,), 1.0)).model()
    for name, fk in {"tilted": c.Tilted(model, 3.0), "tempered": c.Tempered(model, 2.0)}.items():
        yield f"vectors, {name}", tt.run(fk, tt.uniform_grid(12), particles=33, populations=2, seed=4)


def ranks() -> Iterator[tuple[str, object]]:
    """Two gloo ranks: one population over both, and populations on each."""
    import truetilt as tt

    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*worker, __file__, "--rank", folder], check=True, capture_output=True, env=_environment())
        for name in ("sharded", "populations"):
            yield f"ranks, {name}", tt.Result.load(Path(folder) / name)


def on_a_rank(folder: Path) -> None:
    """What each rank of `ranks` runs; the first one saves."""
    import torch

    import truetilt as tt
    from truetilt import distributed

    generator = torch.Generator().manual_seed(4)
    p0, likelihood = (torch.rand(3, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    fk, grid = tt.Tempered(tt.Table(tt.Masking(3), p0, likelihood).model(), 3.0, 2.0), tt.uniform_grid(8)
    here = distributed.world()
    found = {
        "sharded": distributed.run_sharded(fk, grid, particles=37, seed=5),
        "populations": distributed.run_populations(fk, grid, particles=8, populations=5, seed=5),
    }
    for name, result in found.items():
        if here.rank == 0:
            result.save(folder / name)
    distributed.leave()


def commands() -> Iterator[tuple[str, object]]:
    """What `truetilt sample` writes, of a table and of each embedded bundle."""
    import truetilt as tt

    table = {"p0": [[0.3, 0.1, 0.0], [0.1, 0.2, 0.1], [0.0, 0.1, 0.1]]}
    table["likelihood"] = [[0.1, 0.9, 0.5], [0.6, 0.2, 0.8], [0.5, 0.4, 0.7]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.json"
        path.write_text(json.dumps(table))
        asked = {
            "table": [str(path), "--alpha", "3"],
            "table, uniform": [str(path), "--alpha", "3", "--process", "uniform", "--steps", "20"],
            "digits": ["mnist", "--condition", "4", "--alpha", "3", "--steps", "2"],
            "texts": ["tiny-reviews", "--condition", "positive", "--alpha", "2", "--steps", "2"],
        }
        for name, words in asked.items():
            out = str(Path(folder) / name)
            command = [
                sys.executable,
                "-c",
                "from truetilt.cli import main; main()",
                "sample",
                *words,
                "--out",
                out,
            ]
            subprocess.run(command, check=True, capture_output=True, env=_environment())
            yield f"truetilt sample, {name}", tt.Result.load(out)


def studio() -> Iterator[tuple[str, object]]:
    """What the studio runs at first for each model, and the plain guidance beside it."""
    from truetilt.studio import form as forms
    from truetilt.studio import plans, problems

    if hasattr(forms, "first_form"):
        first_form, problem_of = forms.first_form, problems.problem_of
    else:  # the code of an earlier commit
        first_form, problem_of = forms.first_wish, problems.posed

    for model, steps in {"nine": 8, "six": 8, "mnist": 2, "tiny-reviews": 2}.items():
        form = first_form(model)._replace(particles=4, populations=2, steps=steps)
        problem = problem_of(form)
        told = plans.options(problem, form)
        yield f"studio, guidance, {model}", plans.guidance(problem, form).run(**told)
        yield f"studio, {form.sampler}, {model}", plans.plan(problem, form).run(**told)


SUITES: dict[str, Case] = {
    "tables": tables,
    "chain": chain,
    "digits": digits,
    "text": text,
    "vectors": vectors,
    "ranks": ranks,
    "commands": commands,
    "studio": studio,
}


def hashes(names: list[str]) -> dict[str, str]:
    """The hash of every run of these suites, with the truetilt that is imported."""
    import torch

    torch.set_num_threads(1)
    return {name: digest(result) for suite in names for name, result in SUITES[suite]()}


def _environment(source: Path | None = None) -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **own} | ({} if source is None else {"PYTHONPATH": str(source)})


def hashes_of(revision: str, names: list[str]) -> dict[str, str]:
    """The hashes that the code of a commit gives, read with this file."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "truetilt"
        subprocess.run(["git", "-C", HERE, "worktree", "add", "--detach", "-q", tree, revision], check=True)
        try:
            command = [sys.executable, __file__, *names, "--json"]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=_environment(tree / "src")).stdout
            return json.loads(told)
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", tree], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", help=f"which suites: {', '.join(SUITES)} (default: all)")
    parser.add_argument("--against", metavar="REVISION", help="compare with the code of this commit")
    parser.add_argument("--json", action="store_true", help="print the hashes as JSON")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return on_a_rank(given.rank)
    names = given.suites or list(SUITES)
    if unknown := set(names) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    now = hashes(names)
    if given.json:
        return print(json.dumps(now, indent=1))
    before = hashes_of(given.against, names) if given.against else {}
    listed = json.loads((HERE / "hashes.json").read_text())["changed on purpose"]
    surprises = 0
    for name, value in now.items():
        old = before.get(name, value)
        told = "" if old == value else f"  was {old}: {listed.get(name, {}).get('reason', 'NOT LISTED')}"
        surprises += old != value and name not in listed
        print(f"{value}  {name}{told}")
    print(f"{len(now)} runs on {platform.processor() or platform.machine()}, {surprises} changed without a reason")
    sys.exit(int(surprises > 0))


if __name__ == "__main__":
    main()

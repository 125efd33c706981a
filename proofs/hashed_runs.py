"""Runs of the sampler that `hashes.py` compares: tables, chains, vectors, networks that come along, ranks, results."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import truetilt as tt
from truetilt import continuous as c
from truetilt import testing

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # tiny networks in the real file formats
Runs = Iterator[tuple[str, object]]
SIZES = {"particles": 37, "populations": 2, "seed": 5}


def table(process: type, length: int) -> tt.Table:
    """A table of three tokens, p0 and likelihood at random."""
    generator = torch.Generator().manual_seed(4)
    p0, likelihood = (torch.rand((3,) * length, generator=generator, dtype=torch.float64) for _ in range(2))
    return tt.Table(process(3), p0, likelihood)


MASKED, UNIFORM = table(tt.Masking, 3), table(tt.Uniform, 2)
CLOCK, REVEALS = tt.uniform_grid(8), tt.masked_fraction_grid(MASKED.process.schedule, 3)


def tables() -> Runs:
    """Every target, kernel, resampler, coupling and kind of move on tables of three sites and of three tokens."""
    for name, problem in {"masking": MASKED, "uniform": UNIFORM}.items():
        model = problem.model()
        for kernel in (tt.euler, tt.tweedie, tt.tau_leaping):
            made = {
                "tempered": tt.Tempered(model, 2.0, kernel=kernel),
                "tilted": tt.Tilted(model, 3.0, kernel=kernel),
                "steered": tt.Steered(model, model.potential, 2.0, kernel=kernel),
                "unweighted": tt.Unweighted(model, model.conditional, kernel=kernel),
            }
            for kind, fk in made.items():
                yield f"{name}, {kind}, {kernel.__name__}", tt.run(fk, CLOCK, **SIZES)
        yield f"{name}, tt.sample", tt.sample(model, 2.0, num_inference_steps=8, **SIZES)
        yield f"{name}, tt.sample, beta = 1", tt.sample(model, 2.0, 1.0, num_inference_steps=8, **SIZES)
        given = {"num_inference_steps": 8, **SIZES}
        yield f"{name}, tt.sample, kernel given", tt.sample(model, 4.0, 1.5, kernel=tt.euler, **given)
        yield f"{name}, alpha = 0", tt.sample(model, 0.0, 0.0, **given)
        guided = tt.Guided(problem.process, model.base, model.conditional, 2.5)
        yield f"{name}, guidance", tt.run(tt.Unweighted(model, guided), CLOCK, **SIZES)
        log_value = partial(_log_value, problem.process.states)
        scores: dict[str, object] = {
            "predictor": tt.Predictor(problem.process, model.base, model.potential),
            "taylor": tt.Taylor(problem.process, model.base, log_value),
            "local temperature": tt.LocalTemperature(problem.process, model.base, 0.8),
        }
        if problem is MASKED:
            draws = {"completions": 4, "seed": 3}
            scores["monte carlo"] = tt.MonteCarloGuidance(problem.process, model.base, model.potential, 2.0, **draws)
        for kind, score in scores.items():
            yield f"{name}, {kind}", tt.run(tt.Unweighted(model, score), CLOCK, **SIZES)
        by = tt.Taylor(problem.process, model.base, log_value)
        yield (
            f"{name}, steered by taylor",
            tt.run(tt.Steered(model, model.potential, 2.0, proposal=by), CLOCK, **SIZES),
        )
    yield from _parts_of_a_run(MASKED.model())
    yield from _limits()


def _log_value(states: int, onehot: torch.Tensor, t: float) -> torch.Tensor:
    """A differentiable value of one-hot states that is not linear."""
    weight = torch.linspace(-1, 1, states * onehot.shape[-2], dtype=onehot.dtype).reshape(onehot.shape[-2:])
    return torch.tanh((onehot * weight).sum((-1, -2))) + t


def _parts_of_a_run(model: tt.Model) -> Runs:
    for scheme in (tt.multinomial, tt.stratified, tt.systematic, tt.residual, tt.ssp, tt.never):
        yield f"resampling, {scheme.__name__}", tt.run(tt.Tempered(model, 3.0, 2.0), CLOCK, resample=scheme, **SIZES)
    resamplers = {"partial": tt.partial(tt.stratified, 0.5), "adaptive": tt.adaptive(tt.ssp, 0.95)}
    for name, resample in resamplers.items():
        yield f"resampling, {name}", tt.run(tt.Tempered(model, 3.0, 2.0), CLOCK, resample=resample, **SIZES)
    any_order, tilted = tt.AnyOrder(model, 3.0), tt.Tilted(model, 4.0)
    for couple in (tt.independent, tt.systematic_draws, tt.stratified_draws):
        yield f"any order, {couple.__name__}", tt.run(any_order, REVEALS, couple=couple, **SIZES)
    yield "any order, adapted sites", tt.run(tt.AnyOrder(model, 3.0, choose=tt.adapted_sites), REVEALS, **SIZES)
    yield "any order, alpha = 0.4", tt.run(tt.AnyOrder(model, 0.4), REVEALS, **SIZES)
    yield "any order, its own grid", tt.run(tt.AnyOrder(model, 2.0, order=(2, 0, 1)), **SIZES)
    yield "tt.reveal, two sites, guided", tt.reveal(model, 3.0, 1.5, sites_per_step=2, **SIZES)
    yield "tt.reveal, a ramp", tt.reveal(model, 3.0, ramp=tt.Power(2.0), **SIZES)
    ramp = tt.pilot(tilted, CLOCK, particles=32, seed=1)
    yield "pilot", tt.run(tt.Tilted(model, 4.0, ramp=ramp), CLOCK, **SIZES)
    yield "pilot, its ramp", ramp
    yield "a schedule of beta", tt.run(tt.Tempered(model, 2.0, lambda t: 2 * t), CLOCK, **SIZES)
    yield "a ramp at the end", tt.run(tt.Tilted(model, 3.0, tt.at_end), CLOCK, **SIZES)
    moves = {
        "gibbs": (any_order, tt.Gibbs(any_order), REVEALS),
        "block": (any_order, tt.Block(any_order, 2), REVEALS),
        "gibbs backward": (any_order, tt.Gibbs(any_order, tt.backward_scan), REVEALS),
        "gibbs in turn": (any_order, tt.Gibbs(any_order, tt.systematic_scan), REVEALS),
    }
    for name, (fk, kernel, grid) in moves.items():
        often = tt.Rejuvenation(kernel, each_step=1, after_resampling=2, at_end=2)
        yield f"moves, {name}", tt.run(fk, grid, resample=tt.multinomial, moves=often, **SIZES)
    pairs = tt.Rejuvenation(tt.Pair(any_order), at_end=3)
    yield "moves, pairs", tt.run(any_order, REVEALS, moves=pairs, **SIZES)
    metropolis = tt.Rejuvenation(tt.Metropolis(tilted), each_step=1)
    yield "moves, metropolis", tt.run(tilted, CLOCK, resample=tt.systematic, moves=metropolis, **SIZES)
    yield "chunks of one", tt.run(tt.Tempered(model, 3.0, 2.0), CLOCK, chunk=1, **SIZES)
    yield "chunks of what fits", tt.run(tt.Tempered(model, 3.0, 2.0), CLOCK, chunk="auto", **SIZES)
    yield "a later population", tt.run(tilted, CLOCK, first_population=7, **SIZES)


def _limits() -> Runs:
    """Infinitely many particles, exactly; and the Kolmogorov forward equation."""
    for name, problem in {"masking": MASKED, "uniform": UNIFORM}.items():
        model, states = problem.model(), problem.process.states
        for kind, fk in {"tempered": tt.Tempered(model, 2.0), "tilted": tt.Tilted(model, 3.0)}.items():
            yield f"limit, {name}, {kind}", tt.flow(fk, CLOCK, states, problem.length)
    model = MASKED.model()
    yield "limit, any order", tt.flow(tt.AnyOrder(model, 3.0), REVEALS, 4, 3)
    begin = torch.eye(64, dtype=torch.float64)[-1]
    yield "forward equation", tt.forward_equation(MASKED.process, model.base, begin, CLOCK)
    exact = {"target": MASKED.target(2.0), "tilted": MASKED.log_z_tilted(3.0), "tempered": MASKED.log_z_tempered(3.0)}
    yield "exact, a table", {name: torch.as_tensor(value) for name, value in exact.items()}


def chain_of(length: int = 12) -> tt.Chain:
    generator = torch.Generator().manual_seed(2)
    shapes = ((4,), (length - 1, 4, 4), (length, 4))
    return tt.Chain(tt.Masking(4), *(torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes))


def chain() -> Runs:
    """A Markov chain of twelve sites."""
    made = chain_of()
    model = made.model()
    fk, grid = tt.AnyOrder(model, 3.0), tt.masked_fraction_grid(model.process.schedule, 12)
    moves = tt.Rejuvenation(tt.Gibbs(fk, tt.systematic_scan), each_step=1, at_end=12)
    yield "chain, any order with moves", tt.run(fk, grid, particles=40, populations=2, seed=3, moves=moves)
    yield "chain, tempered", tt.sample(model, 2.0, 1.0, particles=40, num_inference_steps=12, seed=3)
    blocks = tt.Rejuvenation(tt.Block(fk, 3), at_end=3)
    yield "chain, blocks", tt.run(fk, grid, particles=20, populations=2, seed=3, moves=blocks)
    law = tt.ChainLaw(torch.ones(4), torch.rand(4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(12, 4))
    yield "chain, its law", {"log z": torch.tensor(float(law.log_z)), "marginals": law.marginals()}


def digits() -> Runs:
    """The embedded U-Net and its potential."""
    nets = tt.load("mnist")
    sizes = {"particles": 4, "populations": 2, "num_inference_steps": 3, "seed": 1}
    yield "digits, tilted", tt.sample(nets.model(4), 3.0, **sizes)
    yield "digits, tempered", tt.sample(nets.model(4, "cfg"), 3.0, 1.5, **sizes)
    yield "digits, deft", tt.sample(nets.model(4, "deft"), 2.0, **sizes)


def text() -> Runs:
    """The embedded text nets: classes, any order, gaps and moves; and a small net of one's own."""
    nets = tt.load("tiny-reviews")
    sizes = {"particles": 4, "populations": 2, "seed": 1}
    yield "text, tilted", tt.sample(nets.model("positive"), 3.0, num_inference_steps=4, **sizes)
    yield "text, tempered", tt.sample(nets.model("positive", "cfg"), 2.0, 1.0, num_inference_steps=4, **sizes)
    yield "text, any order", tt.reveal(nets.model("negative", "cfg"), 2.0, sites_per_step=16, **sizes)
    drawn = tt.sample(nets.model("negative"), 2.0, num_inference_steps=3, **sizes).draw(2)
    yield "text, decoded", "\n".join(nets.decode(drawn))
    yield "text, judged", nets.judge(nets.decode(drawn))
    words = [*nets.encode("The film was"), None, None, None, *nets.encode(" and I left.")]
    given = [*words, *[nets.tokenizer.end] * (nets.length - len(words))]
    filled = nets.model("positive", given=given)
    yield "text, gaps", tt.sample(filled, 2.0, num_inference_steps=3, **sizes)


def bundles() -> Runs:
    """Molecules, proteins and antibodies, by tiny networks in the real file formats."""
    yield from _molecules()
    yield from _proteins()
    yield from _antibodies()


def _molecules() -> Runs:
    from tiny_molecules import tiny_molecules
    from truetilt.molecules.rewards import qed

    nets = tiny_molecules()
    sizes = {"particles": 12, "populations": 2, "seed": 2}
    yield "molecules, base", tt.sample(nets.model(), 0.0, 0.0, num_inference_steps=4, **sizes)
    value = nets.reward(lambda molecule: float(molecule.GetNumAtoms()))
    yield "molecules, steered", tt.steer(nets.model(), value, 1.5, calls=40, evaluations=3000, populations=4)
    row = nets.rows(["CN", "CCO"])
    yield "molecules, rows", {"rows": row, "read": nets.decode(row)}
    kept = replace(nets, given=(1, None, None), fragment="C")
    yield "molecules, a fragment kept", tt.sample(kept.model(), 0.0, 0.0, num_inference_steps=2, **sizes)
    by = tt.Composed(nets.model(), reward=nets.reward(qed), strength=2.0, twist=nets.twist(qed, 2.0))
    yield "molecules, twisted by the potential", tt.run(by, **sizes)
    embedded = tt.load("molecules")
    found = tt.run(tt.Composed(embedded.model()), particles=3, seed=4)
    yield "molecules, embedded", found
    yield "molecules, embedded, spelled", "\n".join(embedded.decode(found.particles[0]))


def _proteins() -> Runs:
    from tiny_protein import pdb, structure, write_weights

    with tempfile.TemporaryDirectory() as folder:
        one = write_weights(Path(folder) / "one.pt")
        other = write_weights(Path(folder) / "other.pt", seed=1)
        file = Path(folder) / "x.pdb"
        file.write_text(pdb(structure("MKTAYIAKQR", "MKTAYIAKQR")))
        sizes = {"particles": 8, "populations": 2, "seed": 3}
        protein = tt.load("proteinmpnn", structure=file, open="A3-5,A8", weights=one)
        yield "protein, base", tt.run(tt.Composed(protein.model(), order=protein.order), **sizes)
        found = tt.run(tt.AnyOrder(protein.model(condition=other), 2.0, order=protein.order), **sizes)
        yield "protein, two networks", found
        yield "protein, FASTA", protein.fasta(found.draw(2))
        told = {"log p": protein.log_prob(found.draw(3)), "recovery": protein.recovery(found.draw(3))}
        yield "protein, log p", told
        tied = tt.load("proteinmpnn", structure=file, open="A3-5,B3-5", tied="A=B", forbid="C", weights=one)
        yield "protein, tied", tt.run(tt.Composed(tied.model(), order=tied.order), **sizes)
        yield "protein, shown", f"{protein!r}\n{tied!r}\n{protein.sites}"
        aromatic = tt.Reward(lambda s: sum(map(s.count, "FWY")), tokenizer=protein.sequence, one_at_a_time=True)
        yield "protein, steered", tt.steer(protein.model(), aromatic, 1.0, calls=60, evaluations=2000, populations=4)


def _antibodies() -> Runs:
    from antibody_nets import write_antiberty
    from truetilt.antibodies.redesign import load_antiberty
    from truetilt.core.fasta import tokens_of

    with tempfile.TemporaryDirectory() as folder:
        nets = load_antiberty(batch=8, folder=write_antiberty(Path(folder)))
    redesign = tt.Redesign(nets, tokens_of("QVQLKWSGPE"), (1, 4, 6), (2, 5))
    sizes = {"particles": 6, "populations": 2, "seed": 1}
    found = tt.run(redesign.target(alpha=2.0, pull=0.7, sharpness=1.3), **sizes)
    yield "antibody, redesigned", found
    yield "antibody, spelled", "\n".join(redesign.spell(found.draw(3)))
    yield "antibody, changes", redesign.changes(found.draw(3))
    yield "antibody, annealed", tt.run(redesign.annealed(alpha=2.0, pull=0.7), **sizes)
    yield "antibody, species", nets.log_species(["QVQLKW", "MKTAY"])
    yield "antibody, shown", f"{nets!r}\n{redesign!r}"


def vectors() -> Runs:
    """Diffusions of real vectors, by every weight, process and kernel."""
    mixture = c.GaussianMixture([0.3, 0.7], [[-1.0], [1.2]], 0.5)
    seen = c.Observation([0.8], (0,), 1.0)
    model = c.Observed(c.VP(1.0, 20.0), mixture, seen).model()
    sizes, grid = {"particles": 33, "populations": 2, "seed": 4}, tt.uniform_grid(12)
    made = {"tilted": c.Tilted(model, 3.0), "tempered": c.Tempered(model, 2.0)}
    made |= {"girsanov": c.Girsanov(model, 2.0, 1.5), "leaned": c.Tilted(model, 3.0).leaned()}
    made |= {"steered": c.Steered(model, model.potential, 2.0), "unweighted": c.Unweighted(model, model.base)}
    guided = c.Guided(model.base, model.conditional, 2.0)
    made |= {"guided": c.Unweighted(model, guided)}
    made |= {"predictor": c.Unweighted(model, c.Predictor(model.base, model.potential, 1.0))}
    made |= {kernel.__name__: c.Tilted(model, 2.0, kernel=kernel) for kernel in (c.exponential, c.heun)}
    for process in (c.SubVP(1.0, 20.0), c.VE(0.01, 10.0)):
        of_it = c.Observed(process, mixture, seen).model()
        made |= {type(process).__name__: c.Tempered(of_it, 2.0, 1.0)}
    for name, fk in made.items():
        yield f"vectors, {name}", tt.run(fk, grid, **sizes)
    points = torch.linspace(-6, 6, 80, dtype=torch.float64)
    yield "vectors, limit", c.line_flow(c.Tilted(model, 3.0), grid, points)


def results() -> Runs:
    """What is asked of a result: draws, error bars, unions, files, resumed runs, verdicts of runs that are bad."""
    model = MASKED.model()
    tilted = tt.Tilted(model, 4.0)
    found = tt.run(tilted, CLOCK, snapshots=4, particles=20, populations=4, seed=2)
    yield "result, snapshots", found
    yield "result, draws", {"draw": found.draw(7, seed=1), "independent": found.draw_independent(seed=1)}
    yield "result, log Z", str(found.log_z_interval(0.9))
    alone = tt.run(tilted, CLOCK, resample=tt.multinomial, particles=40, seed=2)
    yield "result, by genealogy", str(alone.log_z_interval(by=tt.genealogy()))
    yield "result, an expectation", str(found.expectation_interval(lambda x: x.double()))
    yield "result, a probability", str(found.expectation_interval(lambda x: (x[:, :1] == 1).double()))
    other = tt.run(tilted, CLOCK, particles=20, populations=2, seed=9)
    yield "result, a union", tt.Result.union([found, other])
    yield "result, a union with itself", tt.Result.union([other, other])
    yield "result, one population", tt.run(tilted, CLOCK, particles=30, seed=2)
    yield "result, few particles", tt.run(tt.Tempered(model, 8.0, 0.0), CLOCK, particles=4, populations=16, seed=2)
    worst = tt.run(tt.Tempered(model, 40.0, 0.0), CLOCK, particles=4, resample=tt.never, seed=2)
    yield "result, no resampling", worst
    with tempfile.TemporaryDirectory() as folder:
        found.save(folder, tt.Numbers())
        yield "result, saved and read", tt.Result.load(folder)
        names = sorted(path.name for path in Path(folder).iterdir())
        yield "result, its files", "\n".join([*names, (Path(folder) / "view.json").read_text()])
        page = found.report(Path(folder) / "run.html", tt.Numbers(), "A run").read_text(encoding="utf-8")
    yield "result, its report", seen_of(page)
    yield from _resumed(tilted)
    yield "fingerprints, what is alike", _alike(model)
    yield "testing, a resampler", testing.check_resampler(tt.systematic, 5)
    yield "testing, a kernel", testing.check_kernel(tt.tweedie, tt.Masking(3))
    yield "testing, a score", testing.check_score(model.base, tt.Masking(3), 3)
    yield "testing, a potential", testing.check_potential(model.potential, tt.Masking(3), 3)


def _alike(model: tt.Model) -> dict[str, str]:
    """Which values have the fingerprint of the first, by which runs that resume know what is theirs."""
    from truetilt.core.fingerprints import fingerprint

    first = tt.Tilted(model, 2.0)
    others = {
        "built again": tt.Tilted(MASKED.model(), 2.0),
        "another exponent": tt.Tilted(model, 2.5),
        "another ramp": tt.Tilted(model, 2.0, tt.Power(1.0)),
        "another table": tt.Tilted(table(tt.Masking, 2).model(), 2.0),
        "another kernel": tt.Tilted(model, 2.0, kernel=tt.tau_leaping),
        "another target": tt.Tempered(model, 2.0),
    }
    return {name: str(fingerprint(other) == fingerprint(first)) for name, other in others.items()}


def _resumed(fk: tt.Tilted) -> Runs:
    """A run that is interrupted, and goes on."""
    moves = tt.Rejuvenation(tt.Metropolis(fk), each_step=1)
    options = {"moves": moves, "snapshots": [0, 3, 8], "checkpoint_every": 2, **SIZES}

    def stop(done: int, total: int, info: object) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        try:
            tt.run(fk, CLOCK, checkpoint=folder, callback_on_step_end=stop, **options)
        except KeyboardInterrupt:
            yield "checkpoint, its files", "\n".join(sorted(path.name for path in Path(folder).rglob("*")))
        yield "checkpoint, resumed", tt.run(fk, CLOCK, checkpoint=folder, **options)
        try:
            tt.run(fk, CLOCK, checkpoint=folder, **options | {"seed": 6})
        except tt.TruetiltError as error:
            yield "checkpoint, another run's", str(error).replace(folder, "FOLDER")


def seen_of(page: str) -> str:
    """The words of a page, and a digest of what a browser is given besides."""
    import hashlib
    import re

    pieces = re.findall(r"<(?:script|style)\b.*?</(?:script|style)>|data:[^\"')]{100,}", page, re.DOTALL)
    words = page
    for piece in pieces:
        words = words.replace(piece, " ")
    words = re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]+>", "\n", words))
    return words + "\n" + "\n".join(hashlib.sha256(piece.encode()).hexdigest()[:16] for piece in pieces)


def ranks() -> Runs:
    """Two gloo ranks: one population over both, and populations on each."""
    with tempfile.TemporaryDirectory() as folder:
        worker = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*worker, __file__, folder], check=True, capture_output=True)
        for name in ("sharded", "populations"):
            yield f"ranks, {name}", tt.Result.load(Path(folder) / name)


def on_a_rank(folder: Path) -> None:
    """What each rank of `ranks` runs; the first one saves."""
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


if __name__ == "__main__":
    on_a_rank(Path(sys.argv[1]))

"""Runs towards a reward that `hashes.py` compares: `tt.steer`, composed and annealed targets, twists, baselines."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from hashed_runs import CLOCK, MASKED, REVEALS, SIZES, UNIFORM, Runs, chain_of

import truetilt as tt

MODEL, OTHER = MASKED.model(), UNIFORM.model()
LENGTH = 8
PROCESS = tt.Masking(4)
GRID = tt.masked_fraction_grid(PROCESS.schedule, LENGTH)


def ones(x: torch.Tensor) -> torch.Tensor:
    """A reward: how often token 1 occurs, and a little for the first token."""
    return (x == 1).sum(-1).double() + 0.1 * x[:, 0]


def pairs(x: torch.Tensor) -> torch.Tensor:
    """A reward of neighbours that forbids some states."""
    return torch.where(x[:, 0] == 3, -math.inf, (x[:, 1:] == x[:, :-1]).sum(-1).double())


def guess(x: torch.Tensor, t: float) -> torch.Tensor:
    """A twist that is not quite right, on masked states too."""
    return (x == 1).sum(-1).double() + 0.5 * (x == MASKED.process.mask).sum(-1)


def letters() -> tt.Model:
    """A chain of eight letters."""
    steps = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])
    law = tt.ChainLaw(torch.ones(4), steps, torch.zeros(LENGTH, 4))
    return tt.Model(PROCESS, LENGTH, tt.ChainScore(PROCESS, law))


def gc(word: str) -> int:
    """A reward of strings."""
    return word.count("G") + word.count("C")


def spelled(**options: object) -> tt.Reward:
    """The same as a `tt.Reward`, with an empty cache."""
    return tt.Reward(gc, tokenizer="ACGT", one_at_a_time=True, **options)


def steer() -> Runs:
    """`tt.steer` by every route, within several budgets, from a reward or a condition, and resumed."""
    small = {"evaluations": 3000, "populations": 4, "seed": 1}
    yield "steer, a table", tt.steer(MODEL, ones, 2.0, **small)
    yield "steer, a uniform table", tt.steer(OTHER, ones, 2.0, **small)
    yield "steer, a condition", tt.steer(MODEL, alpha=4.0, **small)
    yield "steer, a condition, uniform", tt.steer(OTHER, alpha=2.0, **small)
    for route in ("importance", "twisted", "annealed", "annealed from base"):
        given = {"calls": 2000, "evaluations": 60_000, "route": route, "populations": 4}
        yield f"steer, {route}", _or_refused(letters(), pairs, 1.5, **given)
    large = small | {"evaluations": 60_000}
    edges = replace(chain_of(6).model(), potential=None)
    for route in (None, "adapted", "annealed"):
        yield f"steer, edge ratios, {route}", _or_refused(edges, alpha=3.0, route=route, **large)
    model = letters()
    yield "steer, letters", tt.steer(model, spelled(highest=LENGTH), 2.0, calls=500, seed=3)
    yield "steer, letters, few calls", tt.steer(model, spelled(), 3.0, calls=40)
    yield "steer, forbidding", tt.steer(model, pairs, 1.5, calls=300, evaluations=30_000, populations=4)
    yield "steer, away from a reward", tt.steer(model, ones, -1.0, calls=300, populations=4)
    yield "steer, at random", tt.steer(model, ones, 1.0, calls=200, order="random", populations=4)
    order = tuple(reversed(range(LENGTH)))
    yield "steer, in an order", tt.steer(model, ones, 1.0, calls=200, order=order, populations=4)
    yield "steer, in few steps", tt.steer(model, ones, 1.0, calls=200, num_inference_steps=3, populations=4)
    twist = tt.learn_twist(model, ones, 1.0, calls=200, draws=60, seed=2)
    yield "steer, a twist given", tt.steer(model, ones, 1.0, calls=200, twist=twist, populations=4)
    yield from _interrupted(model)


def _or_refused(*given: object, **options: object) -> object:
    """The answer, or why this route cannot give one."""
    try:
        return tt.steer(*given, **options)
    except tt.TruetiltError as error:
        return str(error)


def _interrupted(model: tt.Model) -> Runs:
    """Stopped in the third stage, and called again; how it tells its progress."""
    told: list[str] = []

    def stop(what: str, share: float) -> None:
        if len(told) > 12 and share > 0.3:
            raise KeyboardInterrupt
        told.append(f"{share:.3f} {what}")

    options = {"calls": 400, "populations": 4, "seed": 5}
    with tempfile.TemporaryDirectory() as folder:
        try:
            tt.steer(model, spelled(), 2.0, progress=stop, checkpoint=folder, **options)
        except KeyboardInterrupt:
            yield "steer, interrupted", "\n".join(told)
        again: list[str] = []
        found = tt.steer(
            model, spelled(), 2.0, progress=lambda what, share: again.append(what), checkpoint=folder, **options
        )
        yield "steer, resumed", found
        yield "steer, resumed, told", "\n".join(again).replace(folder, "FOLDER")
        try:
            tt.steer(model, spelled(), 2.5, checkpoint=folder, **options)
        except tt.TruetiltError as error:
            yield "steer, another's folder", str(error).replace(folder, "FOLDER")


def composed() -> Runs:
    """Composed, sharpened, annealed and steered targets with every move."""
    both = [(MODEL.conditional, 1.5), (MODEL.base, 0.5)]
    made = {
        "base": tt.Composed(MODEL),
        "sharper": tt.Composed(MODEL, sharpness=1.4),
        "two conditions": tt.Composed(MODEL, conditions=both),
        "reward": tt.Composed(MODEL, reward=ones, strength=1.5),
        "twist": tt.Composed(MODEL, reward=ones, strength=1.5, twist=guess),
        "all": tt.Composed(
            MODEL,
            sharpness=1.2,
            conditions=both,
            reward=ones,
            strength=0.7,
            twist=guess,
            candidates=2,
            ramp=tt.Power(1.0),
        ),
        "in an order": tt.Composed(MODEL, conditions=both[:1], order=(2, 0, 1)),
        "adapted sites": tt.Composed(MODEL, conditions=both[:1], choose=tt.adapted_sites),
        "sharpened": tt.sharpened(MODEL, 2.0, 1.3),
        "lookahead": tt.Composed(MODEL, reward=ones, twist=tt.Lookahead(MODEL, ones, 1.0, completions=3, seed=1)),
    }
    for name, fk in made.items():
        yield f"composed, {name}", tt.run(fk, REVEALS, **SIZES)
    yield "composed, two sites a step", tt.run(made["reward"], tt.masked_fraction_grid(PROCESS.schedule, 2), **SIZES)
    goal = made["twist"]
    kernels = {
        "gibbs": tt.Gibbs,
        "gibbs in turn": partial(tt.Gibbs, scan=tt.systematic_scan),
        "metropolis": partial(tt.Metropolis, surrogate=guess),
        "block": partial(tt.Block, size=2),
        "pair": tt.Pair,
        "whole": partial(tt.WholeSequence, log_prob=_log_p0),
    }
    for name, kernel in kernels.items():
        yield f"annealed, {name}", tt.run(tt.Annealed(goal, 3, kernel=kernel), **SIZES)
    yield "annealed, shares", tt.run(tt.Annealed(goal, (0.2, 0.5, 1.0, 1.0)), **SIZES)
    yield "annealed, a start", tt.run(tt.Annealed(goal, 2, start_from=made["sharper"], floor=-1.0), **SIZES)
    schedule = tt.pilot(tt.Annealed(goal, 4), particles=32, seed=2)
    yield "annealed, its pilot", schedule
    yield "annealed, piloted", tt.run(tt.Annealed(goal, schedule), **SIZES)
    moves = {"metropolis": tt.Metropolis(goal), "whole": tt.WholeSequence(goal, _log_p0), "block": tt.Block(goal, 2)}
    for name, kernel in moves.items():
        again = tt.Rejuvenation(kernel, at_end=2)
        yield f"composed, moves, {name}", tt.run(goal, REVEALS, moves=again, **SIZES)
    for name, problem in {"masking": MODEL, "uniform": OTHER}.items():
        for at in (tt.Power(2.0), tt.at_end):
            fk = tt.Steered(problem, ones, 1.5, at)
            yield f"steered, {name}, {plain_name(at)}", tt.run(fk, CLOCK, **SIZES)
    kept = tt.Reward(ones, vocabulary=3)
    run = tt.run(tt.Composed(MODEL, reward=kept), REVEALS, **SIZES)
    yield "reward, counted", run
    yield "reward, its calls", {"calls": kept.calls, "distinct": kept.distinct, "shown": repr(kept)}
    yield "reward, used again", tt.recycled(kept, _log_p0, 1.5).weights
    noise = torch.Generator().manual_seed(1)
    noisy = tt.Reward(lambda x: ones(x) + torch.rand(len(x), generator=noise), vocabulary=3, noisy=True)
    yield "reward, noisy", tt.run(tt.Steered(MODEL, noisy, 1.0, tt.at_end), CLOCK, **SIZES)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers"
        for turn in ("first", "second"):
            asked = tt.Reward(ones, vocabulary=3, cache_file=file)
            asked(torch.tensor([[0, 1, 2], [1, 1, 1], [0, 1, 2]]))
            yield f"reward, from a file, {turn}", {"calls": asked.calls, "distinct": asked.distinct}
            asked.close()


def plain_name(ramp: object) -> str:
    """What a ramp is called."""
    return getattr(ramp, "__name__", repr(ramp))


def _log_p0(x: torch.Tensor) -> torch.Tensor:
    return MASKED.p0.log()[tuple(x.unbind(-1))]


def twists() -> Runs:
    """Twists: learned by each family, saved, looked ahead; and runs that they lead."""
    model = letters()
    some = torch.tensor([[0, 1, 2, 3, 4, 4, 4, 4], [4] * 8, [1] * 8, [4, 2, 4, 2, 4, 2, 4, 2]])
    families = {
        "default": None,
        "linear": tt.PairTables(0),
        "neighbours": tt.PairTables(1),
        "network": tt.SmallNetwork(width=8, seed=1),
        "kriging": tt.Kriging(),
    }
    for name, family in families.items():
        options = {} if family is None else {"family": family}
        twist = tt.learn_twist(model, pairs, 1.0, calls=160, draws=50, seed=4, order=range(LENGTH), **options)
        told = {"values": twist(some, 0.5), "held out": twist.held_out, "tried": twist.tried, "spent": twist.spent}
        yield f"twist, {name}", told
        fk = tt.Composed(model, reward=pairs, twist=twist, order=range(LENGTH))
        yield f"twist, {name}, led", tt.run(fk, GRID, **SIZES)
    with tempfile.TemporaryDirectory() as folder:
        twist.save(Path(folder) / "twist")
        yield "twist, saved and read", tt.LearnedTwist.load(Path(folder) / "twist")(some, 0.5)
    once = tt.learn_twist(model, ones, 1.0, calls=80, draws=40, refits=0)
    yield "twist, by a uniform order", {"values": once(some, 0.3), "at a site": once.site_values(some, _first(some), 1)}
    rewards = torch.tensor([[0.0, 1.0, 2.0], [-math.inf, 0.0, 1.0]], dtype=torch.float64)
    for average in (tt.soft_mean, tt.plain_mean):
        yield f"twist, {average.__name__}", average(rewards, 2.0)
    ahead = tt.Lookahead(model, ones, 1.0, completions=4, average=tt.plain_mean, lowest=-5.0, seed=3)
    yield "twist, lookahead", ahead(some, 0.5)


def _first(x: torch.Tensor) -> torch.Tensor:
    """The first masked site of each row, or the first."""
    return (x == PROCESS.mask).int().argmax(-1)


def jumps() -> Runs:
    """Continuous time by jumps, particle Gibbs and conditional sweeps."""
    hit = tt.FirstHitting(MODEL, 3.0, 1.5)
    yield "jumps, first hitting", tt.run(hit, tt.uniform_grid(4), **SIZES)
    yield "jumps, adapted", tt.run(tt.FirstHitting(MODEL, 2.0, None), tt.uniform_grid(3), **SIZES)
    for guide in (tt.rate_level, tt.posterior_level):
        fk = tt.FirstHitting(MODEL, 2.0, 2.0, guide)
        yield f"jumps, {guide.__name__}", tt.run(fk, (1.0, 0.4, 0.0), **SIZES)
    times = tt.poisson_times(UNIFORM.process, 40.0, 3)
    yield "jumps, candidate times", times
    for beta in (None, 1.0):
        yield f"jumps, uniformised, beta {beta}", tt.run(tt.Uniformised(OTHER, 2.0, times, beta), times.grid, **SIZES)
    yield "jumps, a least bound", tt.least_bound(OTHER, 2.0, torch.tensor([[0, 1], [2, 2]]), 0.5)
    tilted = tt.Tilted(MODEL, 3.0)
    for lineage in (tt.keep_lineage, tt.ancestor_sampling):
        options = {"particles": 5, "chains": 6, "seed": 2, "lineage": lineage}
        found = tt.particle_gibbs(tilted, CLOCK, sweeps=3, **options)
        yield f"particle Gibbs, {lineage.__name__}", _swept(found)
        more = tt.particle_gibbs(tilted, CLOCK, found.last, sweeps=2, first_sweep=3, **options)
        yield f"particle Gibbs, {lineage.__name__}, gone on", _swept(more)
    anywhere = tt.particle_gibbs(tt.AnyOrder(MODEL, 3.0), REVEALS, particles=4, chains=5, sweeps=2)
    yield "particle Gibbs, any order", _swept(anywhere)
    path = tt.conditional_smc(tilted, CLOCK, None, (3, 4), (tt.Stream(1), 0), tt.Rule(0.7))
    yield "conditional SMC", {"states": path.states, "end": path.end}


def _swept(found: tt.Sweeps) -> dict[str, object]:
    return {"states": found.states, "movement": found.movement, "path": found.last.states}


def baselines() -> Runs:
    """Every baseline by name within a budget, as `truetilt compare` runs them; and ways of drawing the base."""
    from truetilt.baselines.base_draws import in_clock_time
    from truetilt.baselines.fk_steering import fk_steering
    from truetilt.baselines.methods import TITLES, Contest, run_method
    from truetilt.core.budget import Budget, BudgetTooSmall

    model = letters()
    for name, title in TITLES.items():
        contest = Contest(model, spelled(), 1.5, Budget(calls=300, evaluations=20_000), 2)
        found = run_method(name, contest)
        yield f"baseline, {name}", found._asdict() | {"title": title, "weights": found.weights}
        try:
            run_method(name, contest._replace(budget=Budget(calls=1, evaluations=3)))
        except BudgetTooSmall as error:
            yield f"baseline, {name}, too little", str(error)
    found = fk_steering(model, ones, 1.0, budget=Budget(calls=400), walk=partial(in_clock_time, steps=6), seed=1)
    yield "baseline, in clock time", found


def public() -> Runs:
    """Public networks by tiny checkpoints in the real format: every family, prompts, gaps, folders, rewards."""
    from public_nets import bert, bert_tokenizer, esm2, esm_tokenizer, families

    with tempfile.TemporaryDirectory() as folder:
        for name, (net, tokenizer) in families(Path(folder)).items():
            said = {} if tokenizer is not None else {"length": 12}
            bundle = tt.from_transformers(net, tokenizer, **said)
            model = bundle.model(length=5)
            found = tt.sample(model, 0.0, 0.0, num_inference_steps=5, particles=4, populations=2, seed=1)
            yield f"public, {name}", found
            yield f"public, {name}, decoded", "\n".join([repr(bundle), *bundle.decode(found.draw(3))])
        nets, kept = Path(folder) / "nets", {"particles": 6, "populations": 2, "num_inference_steps": 4, "seed": 1}
        for name, net, words in (("protein", esm2(), esm_tokenizer(Path(folder))), ("text", bert(), bert_tokenizer())):
            net.save_pretrained(nets / name)
            words.save_pretrained(nets / name)
        text = tt.load(nets / "text")
        yield "public, after a prompt", tt.sample(text.model("the film", length=4), 2.0, 1.0, **kept)
        yield "public, around gaps", tt.sample(text.model("the [MASK:2] was [MASK]"), 1.5, 1.0, **kept)
        protein = tt.load(nets / "protein")
        helix = tt.Reward(lambda word: word.count("W"), tokenizer=protein, one_at_a_time=True)
        found = tt.steer(protein.model("MK", length=4), helix, 2.0, calls=120, populations=4)
        yield "public, steered", found
        yield "public, FASTA", protein.fasta(found.draw(3))

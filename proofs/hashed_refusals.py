"""Bad calls and bad command lines, whose messages `hashes.py` compares: each is refused, early and in words."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from hashed_commands import called, make_inputs
from hashed_runs import MASKED, UNIFORM, Runs, chain_of

import truetilt as tt
from truetilt import continuous as c
from truetilt import distributed as d  # noqa: F401, named in CALLS
from truetilt import testing  # noqa: F401, named in CALLS

NAN, INF = math.nan, math.inf
MODEL, UMODEL, CHAIN = MASKED.model(), UNIFORM.model(), chain_of(5).model()
BARE = tt.Model(tt.Masking(3), 3, MODEL.base)
GRID, REVEALS, FOUR = tt.uniform_grid(4), tt.masked_fraction_grid(tt.LogLinear(), 3), torch.full((3, 3), 0.5)
TILTED, ANY = tt.Tilted(MODEL, 2.0), tt.AnyOrder(MODEL, 2.0)
REAL = c.Observed(c.VP(), c.GaussianMixture([1.0], [[0.0]], 1.0), c.Observation([0.5], (0,), 1.0)).model()
X = torch.tensor([[3, 3, 3], [0, 3, 1]])


def ones(x: torch.Tensor) -> torch.Tensor:
    """A reward that is right."""
    return (x == 1).sum(-1).double()


def constant(value: float) -> Any:
    """A reward, or a potential, of one value at every state."""
    return lambda x, t=0.0: torch.full(x.shape[:-1], value, dtype=torch.float64)


def late(value: float) -> Any:
    """A conditional score that is spoiled from the middle on."""

    def score(x: torch.Tensor, t: float) -> Any:
        logits = MODEL.conditional(x, t)
        return logits if t > 0.5 else logits.with_rows(logits.rows * value)

    return score


def raises(x: torch.Tensor) -> torch.Tensor:
    """A reward with a fault of its own."""
    raise KeyError("of my own")


COMPOSED = tt.Composed(MODEL, reward=ones)
RESULT = tt.run(TILTED, GRID, particles=8, populations=3)
ALONE = tt.run(TILTED, GRID, particles=8)
LETTERS = tt.Reward(lambda word: word.count("G"), tokenizer="ACGT", one_at_a_time=True)
TWIST = tt.learn_twist(MODEL, ones, calls=60, draws=30, refits=0)
PATH = tt.particle_gibbs(TILTED, GRID, particles=4, chains=2, sweeps=1).last
CALLS = r"""
tt.sample(MODEL, -1.0)
tt.sample(MODEL, NAN)
tt.sample(MODEL, 1e12)
tt.sample(MODEL, "two")
tt.sample(MODEL, 2.0, -0.5)
tt.sample(MODEL, 2.0, lambda t: -t)
tt.sample(MODEL, 0.0, 1.0)
tt.sample(BARE, 2.0)
tt.sample(MASKED, 2.0)
tt.sample(None, 2.0)
tt.sample(tt.Masking(3), 2.0)
tt.sample(REAL, 2.0)
tt.sample(MODEL, 2.0, kernel="euler")
tt.sample(MODEL, 2.0, kernel=lambda x: x)
tt.sample(MODEL, 2.0, particles=0)
tt.sample(MODEL, 2.0, particles=2.5)
tt.sample(MODEL, 2.0, particles=10**12)
tt.sample(MODEL, 2.0, populations=0)
tt.sample(MODEL, 2.0, populations=True)
tt.sample(MODEL, 2.0, seed=-1)
tt.sample(MODEL, 2.0, seed=2**63)
tt.sample(MODEL, 2.0, num_inference_steps=0)
tt.sample(MODEL, 2.0, num_inference_steps=10**6)
tt.sample(MODEL, 2.0, first_population=-1)
tt.sample(MODEL, 2.0, chunk=0)
tt.sample(MODEL, 2.0, chunk="all")
tt.sample(MODEL, 2.0, resample="systematic")
tt.sample(MODEL, 2.0, resample=lambda log_w: log_w)
tt.sample(MODEL, 2.0, resample=lambda log_w, u: log_w)
tt.sample(MODEL, 2.0, couple="systematic")
tt.sample(MODEL, 2.0, couple=tt.systematic)
tt.sample(MODEL, 2.0, moves=tt.Gibbs(ANY))
tt.sample(MODEL, 2.0, moves=tt.Rejuvenation(tt.Gibbs(ANY), each_step=1))
tt.sample(MODEL, 2.0, snapshots=-1)
tt.sample(MODEL, 2.0, snapshots=[0, 500])
tt.sample(MODEL, 2.0, snapshots="all")
tt.sample(MODEL, 2.0, watch=3)
tt.sample(MODEL, 2.0, callback_on_step_end=lambda: None)
tt.sample(MODEL, 2.0, checkpoint=3)
tt.sample(MODEL, 2.0, checkpoint="/dev/null/x")
tt.sample(MODEL, 2.0, checkpoint="kept", checkpoint_every=0)
tt.sample(MODEL, 2.0, shard=1)
tt.sample(MODEL, 2.0, steps=10)
tt.sample(MODEL, 2.0, partciles=10)
tt.sample(MODEL, 2.0, n_particles=10)
tt.sample(MODEL)
tt.run(TILTED, 50)
tt.run(TILTED, ())
tt.run(TILTED, (1.0, 0.5, 0.7, 0.0))
tt.run(TILTED, (1.0, NAN, 0.0))
tt.run(TILTED, (0.9, 0.0))
tt.run(TILTED, (1.0, 0.1))
tt.run(TILTED)
tt.run(MODEL, GRID)
tt.run(ones, GRID)
tt.run(TILTED, GRID, steps=3)
tt.run(ANY, GRID, moves=tt.Rejuvenation(tt.Gibbs(tt.AnyOrder(MODEL, 3.0)), each_step=1))
tt.run(ANY, REVEALS, moves=tt.Rejuvenation(tt.Pair(ANY), each_step=1))
tt.run(TILTED, GRID, moves=tt.Rejuvenation(tt.Metropolis(TILTED), each_step=-1))
tt.run(tt.Steered(MODEL, constant(NAN)), GRID, particles=5)
tt.run(tt.Steered(MODEL, constant(INF)), GRID, particles=5)
tt.run(tt.Steered(MODEL, constant(-INF), ramp=tt.at_end), GRID, particles=5)
tt.run(tt.Steered(MODEL, constant(-INF)), GRID, particles=5)
tt.run(tt.Steered(MODEL, lambda x, t: torch.zeros(x.shape)), GRID, particles=5)
tt.run(tt.Steered(MODEL, lambda x, t: "much"), GRID, particles=5)
tt.run(tt.Steered(MODEL, lambda x, t: [[1, 2], [3]]), GRID, particles=5)
tt.run(tt.Tempered(tt.Model(MODEL.process, 3, MODEL.base, late(NAN)), 2.0), GRID, particles=5)
tt.run(tt.Tempered(tt.Model(MODEL.process, 3, MODEL.base, late(-INF)), 2.0), GRID, particles=5)
tt.run(tt.Unweighted(MODEL, lambda x, t: torch.zeros(*x.shape, 3)), GRID, particles=5)
tt.run(tt.Unweighted(MODEL, lambda x, t: tt.SiteLogits.of(torch.zeros(*x.shape, 4))), GRID, particles=5)
tt.run(tt.Unweighted(MODEL, lambda x, t: tt.SiteLogits.of(torch.zeros(1, 3, 3))), GRID, particles=5)
tt.run(tt.Tempered(MODEL, 2.0, lambda t: -1.0 if t == 0.5 else 1.0), GRID, particles=3)
tt.run(tt.Tilted(MODEL, 2.0, lambda u: 0.5), GRID)
tt.run(tt.Annealed(COMPOSED, 2), GRID)
tt.run(tt.Composed(UMODEL, reward=ones), GRID)
tt.run(tt.FirstHitting(UMODEL, 2.0), GRID)
tt.run(tt.Uniformised(UMODEL, 2.0, tt.Candidates((1.0, 0.5, 0.0), (1e-6,))), (1.0, 0.5, 0.0))
tt.reveal(UMODEL, 2.0)
tt.reveal(BARE, 2.0)
tt.reveal(MODEL, 2.0, sites_per_step=0)
tt.reveal(MODEL, 2.0, sites_per_step=9)
tt.reveal(MODEL, 2.0, order=(0, 1))
tt.reveal(MODEL, 2.0, order=(0, 0, 1))
tt.reveal(MODEL, 2.0, ramp=3)
tt.reveal(MODEL, 2.0, steps=3)
tt.Model("masking", 3, MODEL.base)
tt.Model(tt.Masking(3), 0, MODEL.base)
tt.Unweighted(tt.Model(tt.Masking(3), 3, None), None)
tt.Model(tt.Masking(3), 3, lambda x: x)
tt.Model(tt.Masking(3), 3, MODEL.base, potential=ones)
tt.Model(tt.Masking(3), 3, MODEL.base, device="cuda:99")
tt.Model(tt.Masking(3), 3, MODEL.base, log_p_condition=1.0)
tt.Masking(0)
tt.Masking(2.5)
tt.Masking(3, "cosine")
tt.Uniform(1)
tt.LogLinear(0.0)
tt.Cosine(2.0)
tt.Geometric(1.0, 0.5)
tt.Table(tt.Masking(3), -FOUR, FOUR)
tt.Table(tt.Masking(3), FOUR * NAN, FOUR)
tt.Table(tt.Masking(3), FOUR, FOUR * INF)
tt.Table(tt.Masking(3), FOUR * 0, FOUR)
tt.Table(tt.Masking(3), FOUR, FOUR * 0)
tt.Table(tt.Masking(3), torch.eye(3), 1 - torch.eye(3))
tt.Table(tt.Masking(3), FOUR, FOUR[:2])
tt.Table(tt.Masking(3), torch.ones(4, 4), torch.ones(4, 4))
tt.Table(tt.Masking(3), "p0", FOUR)
tt.Chain(tt.Masking(3), torch.ones(3), torch.ones(4, 3, 3), torch.ones(4, 3))
tt.ChainLaw(torch.ones(3), torch.ones(2, 3, 3), torch.ones(9, 3))
MASKED.target(-1.0)
MASKED.log_z_tilted("two")
tt.uniform_grid(0)
tt.uniform_grid(10**12)
tt.masked_fraction_grid(tt.LogLinear(), 0)
tt.masked_fraction_grid("cosine", 3)
tt.flow(TILTED, GRID, 3, 2)
tt.flow(TILTED, GRID, 4, 60)
tt.forward_equation(tt.Masking(3), MODEL.base, "x", GRID)
tt.Tempered(MODEL, -1.0)
tt.Tempered(BARE, 2.0)
tt.Tilted(BARE, 2.0)
tt.Tilted(tt.Model(MODEL.process, 3, MODEL.base, MODEL.conditional), 2.0)
tt.Tilted(MODEL, 2.0, tt.Power(-1.0))
tt.Steered(MODEL, "reward")
tt.Steered(MODEL, ones, NAN)
tt.Steered(MODEL, ones, 1.0, proposal=3)
tt.Unweighted(MODEL, None)
tt.AnyOrder(UMODEL, 2.0)
tt.AnyOrder(MODEL, 2.0, order=(3, 1, 0))
tt.AnyOrder(MODEL, 2.0, choose="adapted")
tt.run(tt.AnyOrder(MODEL, 2.0, 1.0, choose=lambda *given: None), REVEALS)
tt.Composed(MODEL, sharpness=0.0)
tt.Composed(MODEL, conditions=[MODEL.conditional])
tt.Composed(MODEL, conditions=[(MODEL.conditional, NAN)])
tt.Composed(MODEL, strength=NAN)
tt.Composed(MODEL, reward=ones, strength="strong")
tt.Composed(MODEL, reward=ones, twist=3)
tt.Composed(MODEL, reward=ones, candidates=0)
tt.Composed(MODEL, reward=ones, order=(0, 1))
tt.Composed(MODEL, ones)
tt.sharpened(MODEL, 2.0, -1.0)
tt.Annealed(TILTED, 3)
tt.Annealed(COMPOSED, 0)
tt.Annealed(COMPOSED, (0.5, 0.2, 1.0))
tt.Annealed(COMPOSED, (0.5, 0.9))
tt.Annealed(COMPOSED, 2, start_from=TILTED)
tt.Annealed(COMPOSED, 2, kernel=tt.euler)
tt.Annealed(COMPOSED, 2, floor=NAN)
tt.pilot(TILTED)
tt.pilot(TILTED, 50)
tt.pilot(tt.Tempered(MODEL, 2.0), GRID)
tt.pilot(TILTED, GRID, fall=2.0)
tt.pilot(tt.AnyOrder(MODEL, 2.0))
tt.Guided(tt.Masking(3), MODEL.base, MODEL.conditional, -1.0)
tt.Guided(tt.Masking(3), MODEL.base, None, 1.0)
tt.PosteriorScore(tt.Masking(3), None)
tt.run(tt.Unweighted(MODEL, tt.PosteriorScore(tt.Masking(3), lambda x, t: torch.zeros(*x.shape, 7))), GRID)
tt.PosteriorScore(tt.Masking(3), lambda x, t: torch.zeros(3))(X, 0.5)
tt.run(tt.Unweighted(MODEL, tt.PosteriorScore(tt.Masking(3), lambda x, t: torch.full((*x.shape, 3), NAN))), GRID)
tt.LocalTemperature(tt.Masking(3), MODEL.base, 0.0)
tt.Taylor(tt.Masking(3), MODEL.base, MODEL.base)
tt.Taylor(tt.Uniform(3), MODEL.base, lambda onehot, t: onehot.sum((1, 2)))
tt.Predictor(tt.Masking(5), MODEL.base, MODEL.potential)
tt.MonteCarloGuidance(tt.Uniform(3), UMODEL.base, UMODEL.potential)
tt.MonteCarloGuidance(tt.Masking(3), MODEL.base, MODEL.potential, completions=0)
tt.Gibbs(ANY, scan="random")
tt.Metropolis(tt.Tempered(MODEL, 2.0))
tt.Block(ANY, 0)
tt.Block(ANY, 9)
tt.Pair(ANY, apart=0)
tt.WholeSequence(COMPOSED, log_prob=3)
tt.Rejuvenation(tt.Gibbs(ANY))
tt.Rejuvenation(tt.Gibbs(ANY), each_step=0.5)
tt.Rejuvenation("gibbs", at_end=1)
tt.partial(tt.systematic, 0.0)
tt.partial("systematic", 0.5)
tt.adaptive(tt.systematic, 1.5)
tt.genealogy(lag=-1)
tt.Power(NAN)
tt.particle_gibbs(TILTED, 50)
tt.particle_gibbs(TILTED, GRID, particles=1)
tt.particle_gibbs(TILTED, GRID, sweeps=0)
tt.particle_gibbs(TILTED, GRID, "path")
tt.particle_gibbs(TILTED, GRID, PATH, chains=3)
tt.particle_gibbs(TILTED, tt.uniform_grid(9), PATH)
tt.particle_gibbs(TILTED, GRID, threshold=2.0)
tt.conditional_smc(TILTED, GRID, None, (2,), (tt.Stream(0), 0))
tt.Candidates((1.0, 0.0), (1.0, 2.0))
tt.poisson_times(tt.Uniform(3), -1.0, 0)
tt.least_bound(UMODEL, 2.0, X, 0.5)
tt.Uniformised(MODEL, 2.0, tt.Candidates((1.0, 0.5, 0.0), (1.0,)))
tt.Reward("count")
tt.Reward(ones, tokenizer=3)
tt.Reward(ones, vocabulary=0)
tt.Reward(ones, timeout=-1.0)
tt.Reward(ones, workers=-1)
tt.Reward(ones, highest=INF)
tt.Reward(ones, noisy="yes")
tt.Reward(raises)(torch.zeros(1, 3, dtype=torch.int64))
tt.Reward(lambda x: x)(torch.zeros(1, 3, dtype=torch.int64))
tt.Reward(lambda x: x.sum(-1) * NAN)(torch.zeros(1, 3, dtype=torch.int64))
tt.Reward(lambda x: x.sum(-1) + INF)(torch.zeros(1, 3, dtype=torch.int64))
tt.Reward(ones, vocabulary=3)(X)
tt.Reward(ones)(torch.zeros(2, 3))
tt.Reward(ones, highest=1.0)(torch.ones(1, 3, dtype=torch.int64))
LETTERS(torch.full((1, 4), 4))
LETTERS.spell("ACGT")
tt.recycled(ones, ones)
tt.recycled(tt.Reward(ones), ones)
tt.steer(ones, MODEL)
tt.steer(MASKED, ones)
tt.steer(MODEL)
tt.steer(MODEL, ones, alpha=2.0)
tt.steer(MODEL, ones, 0.0)
tt.steer(MODEL, ones, NAN)
tt.steer(MODEL, "reward")
tt.steer(MODEL, ones, evaluations=0)
tt.steer(MODEL, ones, evaluations=10)
tt.steer(MODEL, ones, calls=-5)
tt.steer(MODEL, ones, calls=1)
tt.steer(MODEL, ones, route="best")
tt.steer(MODEL, ones, order="sideways")
tt.steer(MODEL, ones, order=(0, 0, 1))
tt.steer(MODEL, ones, populations=1)
tt.steer(MODEL, ones, twist=3)
tt.steer(MODEL, ones, progress=3)
tt.steer(MODEL, ones, seed=1.5)
tt.steer(MODEL, ones, budget=100)
tt.steer(MODEL, ones, num_inference_steps=0)
tt.steer(MODEL, constant(NAN), evaluations=2000)
tt.steer(MODEL, raises, evaluations=2000)
tt.steer(BARE, alpha=2.0)
tt.steer(REAL, ones)
tt.steer(CHAIN, tt.Reward(len, tokenizer="ACG", one_at_a_time=True), calls=100)
tt.learn_twist(UMODEL, ones, calls=100)
tt.learn_twist(MODEL, ones, calls=1)
tt.learn_twist(MODEL, ones, calls=100, draws=0)
tt.learn_twist(MODEL, ones, 0.0, calls=100)
tt.learn_twist(MODEL, constant(-INF), calls=100, draws=30)
tt.learn_twist(MODEL, ones, calls=100, family="tables")
tt.learn_twist(MODEL, ones, calls=100, family=[])
tt.PairTables(-1)
tt.PairTables(1, ridge=-1.0)
tt.SmallNetwork(width=0)
tt.Kriging(depth=NAN)
tt.LearnedTwist.load("nowhere/at/all")
TWIST(torch.zeros(2, 9, dtype=torch.int64), 0.5)
tt.Lookahead(MODEL, ones, completions=0)
tt.Lookahead(UMODEL, ones)
tt.soft_mean("rewards", 1.0)
RESULT.draw(0)
RESULT.draw(10**12)
RESULT.draw_independent(seed=-1)
RESULT.expectation(3)
RESULT.expectation(lambda x: x[:1])
RESULT.expectation_interval(lambda x: x.double() * NAN)
RESULT.log_z_interval(1.5)
RESULT.log_z_interval(by=tt.genealogy())
ALONE.log_z_interval()
RESULT.log_z_less(0.5, NAN)
RESULT.report(3)
RESULT.report("run.html", view=tt.Disks(3))
RESULT.save("/dev/null/x")
tt.Result.load("nowhere/at/all")
tt.Result.union([])
tt.Result.union([RESULT, 3])
tt.Result.union([RESULT, tt.run(TILTED, tt.uniform_grid(5), particles=8)])
tt.Result(1, 2, 3, 4, 5, 6)
tt.load("nothing-of-the-kind")
tt.load("mnist", "cuda:99")
tt.load("mnist").model(11)
tt.load("mnist").model(4, "guess")
tt.load("tiny-reviews").model("happy")
tt.load("tiny-reviews").encode(3)
tt.load("proteinmpnn")
tt.load("mnist", structure="x.pdb")
tt.from_pretrained("nowhere/at/all")
tt.from_transformers("nowhere/at/all")
tt.from_transformers(torch.nn.Linear(2, 2), "ACGT")
tt.SEDDConfig(0, 6, 16, 1, 2, 16)
tt.SEDD(tt.SEDDConfig(11, 6, 15, 1, 2, 16))
tt.Text(torch.nn.Linear(2, 2), tt.Masking(3))
tt.prompted(MODEL.base, length=0)
tt.Infill(MODEL.base, (1, 2, 3))
tt.train_tokenizer("a text", 300)
tt.load_tokenizer("nowhere")
tt.Images(0, 4)
tt.Disks(0)
tt.SequenceLogo("")
c.VP(2.0, 1.0)
c.GaussianMixture([0.5, -0.6], [[0.0], [1.0]], 1.0)
c.GaussianMixture([1.0], [[0.0]], 0.0)
c.Observation([0.8], (3,), -1.0)
c.Tilted(REAL, -1.0)
c.Tilted(MODEL, 2.0)
c.Steered(REAL, ones)
c.Diffusion(c.VP(), 0, REAL.base)
d.particle_shard(0)
d.run_sharded(TILTED, GRID, particles=0)
d.run_populations(TILTED, GRID, populations=0)
testing.check_resampler(lambda log_w, u: tt.systematic(log_w * 2, u), 4)
testing.check_resampler(3)
testing.check_kernel(tt.tweedie, tt.Masking)
testing.check_score(MODEL.conditional, tt.Masking(3), 2)
testing.check_potential(MODEL.potential, tt.Masking(3), 2)
tt.Sparse
tt.FeynmanKac
"""
LINES = """
nothing
sample
sample nothing.json
sample broken.json
sample p0.json
sample table.json --alpha -1
sample table.json --alpha nan
sample table.json --alpha 2 --beta -1
sample table.json --particles 0
sample table.json --steps x
sample table.json --steps 0
sample table.json --seed -1
sample table.json --device tpu
sample table.json --device cuda:99
sample table.json --process gaussian
sample table.json --condition 1
sample table.json --out table.json/below
sample table.json --prompt ACGT
sample table.json --sharpness 2
sample digits
sample digits --condition 7
sample digits --condition good
sample reviews --condition happy
sample reviews --condition good --sharpness 2 --temperature 0.5
sample text --prompt [MASK:99]
sample text --condition good
sample molecules --reward beauty
sample molecules --reward logp=many
sample molecules --fix C(C
sample proteinmpnn
sample proteinmpnn --structure nothing.pdb --weights one.pt
sample proteinmpnn --structure x.pdb --open 99 --weights one.pt
sample proteinmpnn --structure x.pdb --open 3-5 --weights nothing.pt
sample mine.py:nothing
sample nothing.py:model
sample mine.py:model --alpha 2
infill nothing-to-fill --model reviews
infill [MASK:0] --model reviews
infill [MASK:2] --model nothing
infill [MASK:2] --model digits
report nothing
report digits
report table.json
resume nothing
resume digits
steer table.json
steer table.json --reward mine.py:tokens --alpha 2
steer table.json --reward mine.py:nothing
steer table.json --reward mine.py
steer table.json --reward mine.py:tokens --calls 0
steer table.json --reward mine.py:tokens --evaluations 5
steer table.json --reward mine.py:tokens --strength 0
steer table.json --reward mine.py:tokens --route best
steer p0.json --alpha 2
steer mine.py:letters --reward mine.py:letters
compare mine.py:model
compare mine.py:model --reward mine.py:letters --methods magic
compare mine.py:model --reward mine.py:letters --seeds 0
train
train unconditional
train magic --config plan.json
train unconditional --config nothing.json
train conditional --config plan.json
train unconditional --config plan.json --data nowhere
humanise nothing.fa
humanise ab.fa --unseen 9
reproduce
reproduce figure9
reproduce figure1 --seed -1
reproduce tfbind8 --data nowhere
reproduce gb1 --data nowhere
reproduce humanise --data nowhere
reproduce sentiment --quick --only [
reproduce infill --model nothing
studio --port 0
studio --port 99999999
demo --digits 1
demo --device tpu
"""


_UNSETTLED = (  # what differs from run to run: addresses, and the memory that is free
    (re.compile(r" at 0x[0-9a-f]+"), ""),
    (re.compile(r"[0-9.,]+ [KMGTPE]?i?B[^;]* are free"), "MEMORY are free"),
)


def calls() -> Runs:
    """Each line of `CALLS`, and what it is refused with."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in CALLS.strip().splitlines():
            try:
                words = f"no error, but {type(eval(line)).__name__}"
            except Exception as error:
                words = f"{type(error).__name__}: {error}"
            for pattern, instead in _UNSETTLED:
                words = pattern.sub(instead, words)
            yield line, words


def lines() -> Runs:
    """Each command line of `LINES`, with its exit code and what it prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        make_inputs(folder)
        for line in LINES.strip().splitlines():
            yield f"truetilt {line}", called(line.split(), folder)

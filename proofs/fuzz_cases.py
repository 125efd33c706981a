"""What `fuzz_calls` calls: valid calls of the public API, and what is done with what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot
import numpy as np
import torch
from fuzz_junk import (
    ANY,
    CANDIDATES,
    CHAIN,
    COMPOSED,
    DIGITS,
    FIGURES,
    GRID,
    LEARNED,
    LETTERS,
    LIKELIHOOD,
    LOG_W,
    MASKED,
    MIXTURE,
    MODEL,
    MOLECULES,
    OBSERVED,
    OTHER,
    P0,
    PATH,
    REAL,
    RESULT,
    REVEALS,
    REVIEWS,
    SEDD,
    SEEN,
    STREAM,
    TEXT,
    TILTED,
    UMODEL,
    Logits,
    U,
    X,
    ones,
)

import truetilt as tt
from truetilt import continuous as c
from truetilt import distributed as d
from truetilt import testing


@dataclass(frozen=True)
class Case:
    """A valid call: its function, its arguments, what is done with what it returns, and log Z where it is known."""

    name: str
    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    then: Callable[[Any], Any] = repr
    exact: Callable[[dict[str, Any]], float | None] | None = None


def _of_table(settings: dict[str, Any]) -> float | None:
    """log Z of a run on the masked table, where a few particles can tell it."""
    alpha, kind = settings.get("alpha"), settings.get("name")
    if alpha is None or not 0 <= alpha <= 4 or kind not in ("Tilted", "Tempered", "AnyOrder"):
        return None
    return float(MASKED.log_z_tilted(alpha) if kind == "Tilted" else MASKED.log_z_tempered(alpha))


def _ran(fk: Any) -> None:
    tt.run(fk, getattr(fk, "grid", GRID), particles=4)


def _walked(fk: Any) -> None:
    tt.run(fk, REVEALS, particles=4)


def _sampled(model: Any) -> None:
    tt.sample(model, 2.0, 1.0, particles=4, num_inference_steps=2)
    if model.potential is not None:
        tt.sample(model, 2.0, particles=4, num_inference_steps=2)


def _sampled_alone(sequences: Any) -> None:
    tt.sample(sequences.model(length=2), 0, particles=4, num_inference_steps=2)


def _scored(score: Any) -> None:
    tt.run(tt.Unweighted(MODEL, score), GRID, particles=4)


def _processed(process: Any) -> None:
    if process.vocabulary > 1000:
        return
    table = tt.Table(process, torch.ones((process.vocabulary,)), torch.ones((process.vocabulary,)))
    tt.sample(table.model(), 2.0, particles=4, num_inference_steps=2)


def _scheduled(schedule: Any) -> None:
    _processed(tt.Masking(3, schedule))


def _moved(moves: Any) -> None:
    tt.run(ANY, REVEALS, particles=4, moves=moves)


def _gibbs(kernel: Any) -> None:
    _moved(tt.Rejuvenation(kernel, at_end=1))


def _metropolis(kernel: Any) -> None:
    tt.run(TILTED, GRID, particles=4, moves=tt.Rejuvenation(kernel, at_end=1))


def _resampled(resample: Any) -> None:
    tt.run(tt.Tempered(MODEL, 3.0), GRID, particles=4, resample=resample)


def _ramped(ramp: Any) -> None:
    _ran(tt.Tilted(MODEL, 2.0, ramp))


def _viewed(view: Any) -> None:
    view.draw(matplotlib.pyplot.figure().gca(), np.zeros((2, 4), dtype=int), np.full(2, 0.5))
    matplotlib.pyplot.close("all")


def _noised(process: Any) -> None:
    _ran(c.Tilted(c.Observed(process, MIXTURE, SEEN).model(), 2.0))


def _asked(net: Any) -> None:
    tt.TextScore(net, tt.Masking(3), None, 4)(torch.full((2, 2), 3), 0.5).dense()


def _reals(score: Any) -> None:
    _ran(c.Unweighted(REAL, score))


def _known() -> tt.Reward:
    reward = tt.Reward(ones)
    reward(torch.zeros(2, 2, dtype=torch.int64))
    return reward


def _twisted(twist: Any) -> None:
    tt.run(tt.Composed(MODEL, reward=ones, twist=twist), REVEALS, particles=4)


def _learned(family: Any) -> None:
    _twisted(tt.learn_twist(MODEL, ones, calls=60, draws=30, refits=0, family=family))


def _closed(_: Any) -> None:
    matplotlib.pyplot.close("all")


def _plain(**given: Any) -> Callable[[], dict[str, Any]]:
    return lambda: given


_OPTIONS = {
    **{"particles": 64, "populations": 1, "seed": 0, "resample": tt.systematic, "couple": tt.independent},
    **{"moves": None, "chunk": None, "first_population": 0, "snapshots": None, "callback_on_step_end": None},
    **{"watch": None, "checkpoint_every": 10},
}
_SAMPLED = {"model": MODEL, "alpha": 2.0, "particles": 64, "populations": 1, "seed": 0}
# fmt: off
CASES = [
    Case("sample", tt.sample, _plain(**_SAMPLED, num_inference_steps=8, beta=None, kernel=tt.euler), exact=_of_table),
    Case("sample, beta", tt.sample, _plain(**_SAMPLED, num_inference_steps=8, beta=1.0), exact=_of_table),
    Case("reveal", tt.reveal, _plain(**_SAMPLED, beta=None, sites_per_step=1, order=None, ramp=tt.Power(0)),
         exact=_of_table),
    Case("run", tt.run, _plain(fk=TILTED, grid=GRID, **_OPTIONS), exact=_of_table),
    Case("run, moves", tt.run, _plain(fk=ANY, grid=REVEALS, **_OPTIONS | {"moves": tt.Rejuvenation(tt.Gibbs(ANY), 1)}),
         exact=_of_table),
    Case("run, reals", tt.run, _plain(fk=c.Tilted(REAL, 2.0), grid=GRID, **_OPTIONS)),
    Case("pilot", tt.pilot, _plain(fk=TILTED, grid=GRID, fall=0.2, particles=8, populations=1, seed=0)),
    Case("particle_gibbs", tt.particle_gibbs,
         _plain(fk=TILTED, grid=GRID, reference=None, particles=4, chains=2, sweeps=1, seed=0, threshold=0.5,
                lineage=tt.ancestor_sampling, first_chain=0, first_sweep=0)),
    Case("conditional_smc", tt.conditional_smc,
         _plain(fk=TILTED, grid=GRID, reference=PATH, shape=(2, 4), at=(STREAM, 1), rule=tt.Rule())),
    Case("flow", tt.flow, _plain(fk=TILTED, grid=GRID, size=4, length=2), lambda limit: limit.law),
    Case("forward_equation", tt.forward_equation,
         _plain(process=tt.Masking(3), score=MODEL.base, start=torch.eye(16)[15], grid=GRID)),
    Case("Model", tt.Model,
         _plain(process=MODEL.process, length=2, base=MODEL.base, conditional=MODEL.conditional,
                potential=MODEL.potential, device="cpu"), _sampled),
    Case("Table", tt.Table, _plain(process=tt.Masking(3), p0=P0, likelihood=LIKELIHOOD), lambda t: _sampled(t.model())),
    Case("TableScore", tt.TableScore, _plain(process=tt.Masking(3), p0=P0, fallback=None), _scored),
    Case("Table.target", MASKED.target, _plain(alpha=2.0)),
    Case("Table.log_z_tempered", MASKED.log_z_tempered, _plain(alpha=2.0)),
    Case("Table.log_z_tilted", MASKED.log_z_tilted, _plain(alpha=2.0)),
    Case("Table.expected", MASKED.expected, _plain(alpha=2.0, t=0.5)),
    Case("Table.true_tempered", MASKED.true_tempered, _plain(alpha=2.0), _scored),
    Case("Chain", tt.Chain, _plain(process=tt.Masking(3), initial=P0[0], transitions=P0, factors=LIKELIHOOD),
         lambda chain: _sampled(chain.model())),
    Case("ChainLaw", tt.ChainLaw, _plain(initial=P0[0], transitions=P0, log_factors=LIKELIHOOD.log()),
         lambda law: (law.marginals(), law.pairwise())),
    Case("ChainScore", tt.ChainScore, _plain(process=tt.Masking(3), law=CHAIN.p0, fallback=None),
         lambda score: score(torch.full((2, score.law.length), 3), 0.5)),
    Case("Chain.target", CHAIN.target, _plain(alpha=2.0)),
    Case("Chain.log_z_tempered", CHAIN.log_z_tempered, _plain(alpha=2.0)),
    Case("ChainLaw.draw", CHAIN.p0.draw, _plain(u=torch.full((2, 3), 0.5, dtype=torch.float64))),
    Case("ChainLaw.log_prob", CHAIN.p0.log_prob, _plain(x=torch.zeros(2, 3, dtype=torch.int64))),
    Case("Tempered", tt.Tempered, _plain(model=MODEL, alpha=2.0, beta=1.5, guide=tt.rate_level, kernel=tt.euler), _ran),
    Case("Tilted", tt.Tilted, _plain(model=MODEL, alpha=2.0, ramp=tt.Power(2), kernel=tt.euler), _ran),
    Case("Reward", tt.Reward,
         lambda: {"function": lambda x: x.sum(-1), "tokenizer": None, "one_at_a_time": False, "vocabulary": 3,
                  "cached": True, "noisy": False, "timeout": None, "cache_file": None},
         lambda reward: reward(torch.zeros(2, 2, dtype=torch.int64))),
    Case("Reward.remember", lambda states, values: tt.Reward(len).remember(states, values),
         lambda: {"states": torch.zeros(2, 2, dtype=torch.int64), "values": [1.0, 2.0]}),
    Case("Steered", tt.Steered,
         _plain(model=MODEL, reward=MODEL.potential, strength=1.0, ramp=tt.Power(1), proposal=MODEL.conditional), _ran),
    Case("Unweighted", tt.Unweighted, _plain(model=MODEL, score=MODEL.base), _ran),
    Case("AnyOrder", tt.AnyOrder,
         _plain(model=MODEL, alpha=2.0, beta=None, order=None, ramp=tt.Power(0), choose=tt.uniform_sites), _walked),
    Case("FirstHitting", tt.FirstHitting, _plain(model=MODEL, alpha=2.0, beta=1.0, guide=tt.rate_level), _ran),
    Case("Uniformised", tt.Uniformised,
         _plain(model=UMODEL, alpha=1.5, candidates=CANDIDATES, beta=None, guide=tt.rate_level), _ran),
    Case("least_bound", tt.least_bound, _plain(model=UMODEL, alpha=1.5, x=X.clamp(max=2), t=0.5, beta=None)),
    Case("Candidates", tt.Candidates, _plain(grid=(1.0, 0.5, 0.0), bounds=(30.0,)),
         lambda found: _ran(tt.Uniformised(UMODEL, 1.5, found))),
    Case("poisson_times", tt.poisson_times, _plain(process=tt.Uniform(3), bound=30.0, seed=0)),
    Case("Guided", tt.Guided,
         _plain(process=tt.Masking(3), base=MODEL.base, conditional=MODEL.conditional, beta=1.5, guide=tt.rate_level),
         _scored),
    Case("PosteriorScore", tt.PosteriorScore, _plain(process=tt.Masking(3), net=lambda x, t: torch.zeros(*x.shape, 3)),
         _scored),
    Case("Predictor", tt.Predictor,
         _plain(process=tt.Masking(3), base=MODEL.base, log_likelihood=MODEL.potential), _scored),
    Case("Taylor", tt.Taylor,
         _plain(process=tt.Masking(3), base=MODEL.base, differentiable=lambda onehot, t: onehot[..., 0].sum(-1),
                dtype=torch.float32), _scored),
    Case("MonteCarloGuidance", tt.MonteCarloGuidance,
         _plain(process=tt.Masking(3), base=MODEL.base, reward=MODEL.potential, strength=1.0, completions=4, share=0.5,
                seed=0), _scored),
    Case("Distinct", tt.Distinct, _plain(score=MODEL.base), _scored),
    Case("Masking", tt.Masking, _plain(vocabulary=3, schedule=tt.LogLinear()), _processed),
    Case("Uniform", tt.Uniform, _plain(vocabulary=3, schedule=tt.LogLinear()), _processed),
    Case("LogLinear", tt.LogLinear, _plain(eps=1e-3), _scheduled),
    Case("Geometric", tt.Geometric, _plain(low=1e-4, high=20.0), _scheduled),
    Case("Cosine", tt.Cosine, _plain(eps=1e-3), _scheduled),
    Case("LogLinear(t)", tt.LogLinear(), _plain(t=0.5)),
    Case("uniform_grid", tt.uniform_grid, _plain(steps=5)),
    Case("masked_fraction_grid", tt.masked_fraction_grid, _plain(schedule=tt.LogLinear(), steps=5)),
    Case("Power", tt.Power, _plain(p=2.0), _ramped),
    Case("Frozen", tt.Frozen, _plain(elapsed=(0.0, 0.5, 1.0), shares=(0.0, 0.2, 1.0), falls=()), _ramped),
    Case("Gibbs", tt.Gibbs, _plain(fk=ANY, scan=tt.random_scan), _gibbs),
    Case("Block", tt.Block, _plain(fk=ANY, size=2), _gibbs),
    Case("Metropolis", tt.Metropolis, _plain(fk=TILTED, scan=tt.random_scan), _metropolis),
    Case("Rejuvenation", tt.Rejuvenation, _plain(kernel=tt.Gibbs(ANY), each_step=1, after_resampling=1, at_end=1),
         _moved),
    Case("adaptive", tt.adaptive, _plain(scheme=tt.systematic, threshold=0.5), _resampled),
    Case("partial", tt.partial, _plain(scheme=tt.systematic, size=2), _resampled),
    *(Case(scheme.__name__, scheme, _plain(log_w=LOG_W, u=U))
      for scheme in (tt.multinomial, tt.systematic, tt.stratified, tt.residual, tt.ssp, tt.never)),
    Case("Stream", tt.Stream, _plain(seed=0, first_population=0, device="cpu"),
         lambda stream: stream.uniforms(0, 0, 2, 4)),
    Case("Rule", tt.Rule, _plain(threshold=0.5, lineage=tt.keep_lineage),
         lambda rule: tt.conditional_smc(TILTED, GRID, None, (2, 4), (STREAM, 0), rule)),
    Case("genealogy", tt.genealogy, _plain(lag=2)),
    Case("SiteLogits.of", tt.SiteLogits.of, _plain(values=torch.zeros(2, 3))),
    Case("SiteLogits", tt.SiteLogits, _plain(store=torch.zeros(2, 3), index=torch.zeros(2, 2, dtype=torch.int64)),
         lambda logits: logits.dense()),
    Case("Result.draw", RESULT.draw, _plain(n=5, seed=0)),
    Case("Result.draw_independent", RESULT.draw_independent, _plain(seed=0)),
    Case("Result.expectation", RESULT.expectation, _plain(h=lambda x: x.double())),
    Case("Result.expectation_interval", RESULT.expectation_interval,
         _plain(h=lambda x: x.double(), level=0.9, by=tt.across_populations), str),
    Case("Result.log_z_interval", RESULT.log_z_interval, _plain(level=0.9, by=tt.across_populations), str),
    Case("Result.union", tt.Result.union, _plain(results=[RESULT, OTHER]), lambda both: both.trust()),
    Case("Result.save", RESULT.save, _plain(folder="run", view=None)),
    Case("Result.load", tt.Result.load, _plain(folder="run")),
    Case("Result.report", RESULT.report, _plain(path="run.html", view=None, title=None)),
    Case("Result.plot.ess", RESULT.plot.ess, _plain(ax=None), _closed),
    Case("Result.plot.log_z", RESULT.plot.log_z, _plain(ax=None), _closed),
    Case("Result.plot.genealogy", RESULT.plot.genealogy, _plain(ax=None, population=0), _closed),
    Case("Result.plot.weights", RESULT.plot.weights, _plain(ax=None), _closed),
    Case("Result.plot.samples", RESULT.plot.samples, _plain(ax=None, view=None), _closed),
    Case("Result", tt.Result,
         _plain(particles=RESULT.particles, log_weights=RESULT.log_weights, times=RESULT.times, ess=RESULT.ess,
                log_z_path=RESULT.log_z_path, ancestors=RESULT.ancestors, settings={}), repr),
    Case("load", tt.load, _plain(name_or_folder="mnist", device="cpu", batch=4, dtype=None, compile=False)),
    Case("from_pretrained", tt.from_pretrained, _plain(folder_or_hub_id="nowhere/at/all")),
    Case("Text", tt.Text, _plain(net=SEDD, process=tt.Masking(11), batch=4, dtype=None), repr),
    Case("Text.model", TEXT.model, _plain(condition=1, length=4)),
    Case("TextScore", tt.TextScore, _plain(net=SEDD, process=tt.Masking(11), label=None, batch=4, dtype=None),
         lambda score: score(torch.full((2, 4), 11), 0.5).dense()),
    Case("LazyScore", tt.LazyScore, _plain(score=TEXT.score(), labels=(), seen=None),
         lambda score: score(torch.full((2, 4), 11), 0.5).dense()),
    Case("Infill", tt.Infill, _plain(score=TEXT.score(), given=(1, None, 2)),
         lambda score: score(torch.full((2, 1), 11), 0.5).dense()),
    Case("prompted", tt.prompted, _plain(score=TEXT.score(), length=2, prefix=(1,), suffix=(2,))),
    Case("Denoiser", tt.Denoiser, _plain(net=Logits(3), vocabulary=3, length=4, masked=True), _asked),
    Case("MaskedLM", tt.MaskedLM,
         _plain(net=Logits(3), mask_token=1, shift=False, never=(), parts=None, vocabulary=3, length=4), _asked),
    Case("from_transformers", tt.from_transformers,
         _plain(net=Logits(4), tokenizer="ACGT", device=None, batch=2, dtype=None, family=None, mask=3, before=(),
                after=(), draw=[0, 1, 2], ends=(), length=6, vocabulary=4, classes=0, trust_remote_code=False), repr),
    Case("Family", tt.Family, _plain(name="mine", known_by=(), form="text", noise=None, attention=None, mask=3)),
    Case("Sequences.model", LETTERS.model, _plain(prompt="AC", length=2, suffix="G", condition=None)),
    Case("Sequences.given", LETTERS.given, _plain(prompt="A[MASK:2]", length=None, suffix="")),
    Case("Sequences.decode", LETTERS.decode, _plain(x=[0, 1])),
    Case("Sequences.filled", LETTERS.filled, _plain(text="A[MASK:2]", x=torch.zeros(2, 2, dtype=torch.int64))),
    Case("Sequences.rows", LETTERS.rows, _plain(strings=["AC", "GA"])),
    Case("SEDDConfig", tt.SEDDConfig,
         _plain(vocabulary=11, length=6, hidden=16, blocks=1, heads=2, condition=16, classes=2)),
    Case("SEDD", tt.SEDD, _plain(config=tt.SEDDConfig(11, 6, 16, 1, 2, 16), seed=0)),
    Case("TextClassifierConfig", tt.TextClassifierConfig,
         _plain(vocabulary=11, length=6, groups=(2,), hidden=12, blocks=1, heads=3, condition=8)),
    Case("TextClassifier", tt.TextClassifier,
         _plain(config=tt.TextClassifierConfig(11, 6, (2,), 12, 1, 3, 8), seed=0)),
    Case("load_tokenizer", tt.load_tokenizer, _plain(folder="nowhere", vocabulary=None)),
    Case("gpt2_tokenizer", tt.gpt2_tokenizer, _plain(folder="nowhere")),
    Case("train_tokenizer", tt.train_tokenizer, _plain(texts=["a text", "another"], vocabulary=260)),
    Case("Tokenizer", tt.Tokenizer, _plain(inner=None)),
    Case("Images", tt.Images, _plain(side=2, levels=3), _viewed),
    Case("Disks", tt.Disks, _plain(vocabulary=3)),
    Case("Points", tt.Points, _plain(axes=(0, 1)), _viewed),
    Case("SequenceLogo", tt.SequenceLogo, _plain(alphabet="ACGT"), _viewed),
    Case("TextView", tt.TextView, _plain(decode=str, vocabulary=5, mask=None), _viewed),
    Case("c.VP", c.VP, _plain(beta_min=1.0, beta_max=20.0), _noised),
    Case("c.SubVP", c.SubVP, _plain(beta_min=1.0, beta_max=20.0), _noised),
    Case("c.VE", c.VE, _plain(sigma_min=0.01, sigma_max=10.0), _noised),
    Case("c.GaussianMixture", c.GaussianMixture, _plain(weights=[0.3, 0.7], means=[[-1.0], [1.2]], std=0.5),
         lambda law: law.moments()),
    Case("c.Observation", c.Observation, _plain(value=[0.8], coordinates=(0,), std=1.0),
         lambda seen: c.Observed(c.VP(), MIXTURE, seen)),
    Case("c.Observed", c.Observed, _plain(process=c.VP(), p0=MIXTURE, seen=SEEN),
         lambda observed: _ran(c.Tilted(observed.model(), 2.0))),
    Case("c.Observed.target", OBSERVED.target, _plain(alpha=2.0)),
    Case("c.Observed.log_z_tempered", OBSERVED.log_z_tempered, _plain(alpha=2.0)),
    Case("c.Diffusion", c.Diffusion,
         _plain(process=c.VP(), dimension=1, base=REAL.base, conditional=REAL.conditional, potential=REAL.potential,
                device="cpu"), lambda model: _ran(c.Tilted(model, 2.0))),
    Case("c.Tempered", c.Tempered, _plain(model=REAL, alpha=2.0, beta=1.5, kernel=c.euler_maruyama), _ran),
    Case("c.Girsanov", c.Girsanov, _plain(model=REAL, alpha=2.0, beta=1.5, kernel=c.heun), _ran),
    Case("c.Tilted", c.Tilted, _plain(model=REAL, alpha=2.0, ramp=tt.Power(2), beta=1.0, kernel=c.exponential), _ran),
    Case("c.Tilted.leaned", c.Tilted(REAL, 2.0).leaned, _plain(share=0.5), _ran),
    Case("c.Steered", c.Steered,
         _plain(model=REAL, reward=REAL.potential, strength=1.0, ramp=tt.Power(1), proposal=REAL.conditional), _ran),
    Case("c.Unweighted", c.Unweighted, _plain(model=REAL, score=REAL.base), _ran),
    Case("c.Guided", c.Guided, _plain(base=REAL.base, conditional=REAL.conditional, beta=1.5), _reals),
    Case("c.Predictor", c.Predictor, _plain(base=REAL.base, potential=REAL.potential, beta=1.0), _reals),
    Case("c.gradient", c.gradient, _plain(potential=REAL.potential, x=torch.zeros(2, 1, dtype=torch.float64), t=0.5)),
    Case("c.NetScore", c.NetScore,
         _plain(process=c.VP(), net=lambda x, t: x, reads=c.noise, shape=(1,), condition=None, batch=None), _reals),
    Case("c.trained_steps", c.trained_steps, _plain(alphas_cumprod=[0.9, 0.5, 0.1]), lambda f: f(0.5, c.VP())),
    Case("c.Gaussian", c.Gaussian, _plain(mean=torch.zeros(2, 1, dtype=torch.float64), std=1.0)),
    Case("c.line_flow", c.line_flow,
         _plain(fk=c.Tilted(REAL, 2.0), grid=GRID, points=torch.linspace(-9, 9, 40, dtype=torch.float64))),
    Case("steer", tt.steer,
         _plain(model=MODEL, reward=ones, strength=1.0, evaluations=300, calls=100, order="random",
                num_inference_steps=2, route=None, twist=None, populations=4, seed=0, progress=None),
         lambda found: (found.story, found.trust())),
    Case("steer, alpha", tt.steer,
         _plain(model=MODEL, alpha=2.0, evaluations=300, populations=4, seed=0), lambda found: found.trust()),
    Case("steer, checkpoint", tt.steer, _plain(model=MODEL, reward=ones, evaluations=300, checkpoint="steered")),
    Case("Composed", tt.Composed,
         _plain(model=MODEL, sharpness=1.2, conditions=[(MODEL.conditional, 1.5)], reward=ones, strength=1.0,
                twist=MODEL.potential, candidates=2, order=(1, 0), ramp=tt.Power(1), choose=tt.uniform_sites), _walked),
    Case("sharpened", tt.sharpened, _plain(model=MODEL, alpha=1.0, sharpness=1.2, ramp=tt.Power(0)), _walked),
    Case("Annealed", tt.Annealed,
         _plain(goal=COMPOSED, shares=2, start_from=None, kernel=tt.Gibbs, reveal_steps=2, floor=-5.0,
                spent=tt.Spent()), _ran),
    Case("Annealed, shares", tt.Annealed, _plain(goal=COMPOSED, shares=(0.5, 1.0)), _ran),
    Case("Ladder", tt.Ladder, _plain(shares=(0.5, 1.0), steps=2, spent=tt.Spent()),
         lambda ladder: _ran(tt.Annealed(COMPOSED, ladder))),
    Case("pilot, annealed", tt.pilot,
         _plain(fk=tt.Annealed(COMPOSED, 2), fall=0.2, particles=8, populations=1, seed=0)),
    Case("learn_twist", tt.learn_twist,
         _plain(model=MODEL, reward=ones, strength=1.0, calls=60, draws=30, refits=0, order=(1, 0),
                family=tt.PairTables(1), seed=0, progress=None), _twisted),
    Case("LearnedTwist", tt.LearnedTwist,
         _plain(twist=MODEL.potential, vocabulary=3, strength=1.0, held_out=FIGURES, tried=(FIGURES,), order=(0, 1),
                spent=tt.Spent()), _twisted),
    Case("LearnedTwist.save", LEARNED.save, _plain(path="twist")),
    Case("LearnedTwist.load", tt.LearnedTwist.load, _plain(path="twist", device="cpu")),
    Case("LearnedTwist.site_values", LEARNED.site_values,
         _plain(x=X, site=torch.zeros(3, dtype=torch.int64), t=0.5)),
    Case("SmallNetwork", tt.SmallNetwork, _plain(width=4, seed=0), _learned),
    Case("Kriging", tt.Kriging, _plain(depth=6.0, optimism=2.0), _learned),
    Case("PairTables", tt.PairTables, _plain(reach=1, ridge=1e-3, clean_reach=1, depth=1.0), _learned),
    Case("Lookahead", tt.Lookahead,
         _plain(model=MODEL, reward=ones, strength=1.0, completions=2, average=tt.soft_mean, lowest=-10.0, seed=0),
         _twisted),
    Case("soft_mean", tt.soft_mean, _plain(rewards=torch.zeros(2, 3), strength=1.0)),
    Case("plain_mean", tt.plain_mean, _plain(rewards=torch.zeros(2, 3), strength=1.0)),
    Case("recycled", tt.recycled,
         lambda: {"reward": _known(), "log_prob": lambda x: torch.zeros(len(x)), "strength": 1.0},
         lambda found: found.expectation(ones)),
    Case("LocalTemperature", tt.LocalTemperature,
         _plain(process=tt.Masking(3), score=MODEL.base, temperature=0.9), _scored),
    Case("Pair", tt.Pair, _plain(fk=ANY, scan=tt.random_scan, apart=1), _gibbs),
    Case("WholeSequence", tt.WholeSequence,
         _plain(fk=COMPOSED, log_prob=lambda x: torch.zeros(len(x)), scan=tt.random_scan, proposal=None),
         lambda kernel: tt.run(COMPOSED, REVEALS, particles=4, moves=tt.Rejuvenation(kernel, at_end=1))),
    Case("Numbers", tt.Numbers, _plain(), _viewed),
    Case("Digits", tt.Digits, _plain(nets=DIGITS.nets, process=DIGITS.process, batch=4, dtype=None), repr),
    Case("Digits.model", DIGITS.model, _plain(condition=4, form="potential")),
    Case("Reviews", tt.Reviews,
         _plain(nets=REVIEWS.nets, tokenizer=REVIEWS.tokenizer, facts=REVIEWS.facts, batch=4, dtype=None), repr),
    Case("Reviews.model", REVIEWS.model, _plain(condition="positive", form="potential", given=None)),
    Case("Reviews.decode", REVIEWS.decode, _plain(x=torch.zeros(1, 4, dtype=torch.int64))),
    Case("Molecules.model", lambda: MOLECULES.model, _plain()),
    Case("Molecules.fix", MOLECULES.fix, _plain(fragment="*CC")),
    Case("Molecules.reward", MOLECULES.reward, _plain(score=lambda molecule: 1.0)),
    Case("Molecules.rows", MOLECULES.rows, _plain(smiles=["CCO", "CCN"])),
    Case("Sequences", tt.Sequences,
         _plain(public=LETTERS.public, process=LETTERS.process, batch=2, dtype=None), _sampled_alone),
    Case("Sequences.written", LETTERS.written, _plain(strings=["AC"])),
    Case("testing.check_kernel", testing.check_kernel, _plain(kernel=tt.euler, processes=tt.Masking(3))),
    Case("testing.check_score", testing.check_score,
         _plain(score=MODEL.base, process=tt.Masking(3), length=2, tolerance=1e-6)),
    Case("testing.check_potential", testing.check_potential,
         _plain(potential=MODEL.potential, process=tt.Masking(3), length=2, tolerance=1e-6, clean_only=False)),
    Case("testing.check_resampler", testing.check_resampler, _plain(resample=tt.systematic, particles=5)),
    Case("testing.check_target", testing.check_target,
         _plain(make=lambda model: tt.Tilted(model, 2.0), exact=lambda table: table.target(2.0), process=tt.Masking(3),
                table=MASKED, log_z=lambda table: table.log_z_tilted(2.0), moves=None)),
    Case("testing.check_move", testing.check_move,
         _plain(make=lambda model: tt.Gibbs(tt.AnyOrder(model, 2.0)), exact=lambda table: table.target(2.0), along=None,
                process=tt.Masking(3), table=MASKED)),
    Case("d.world", d.world, _plain(patience=10.0)),
    Case("d.World", d.World, _plain(rank=0, size=1), lambda world: world.cuts(5)),
    Case("d.particle_shard", d.particle_shard, _plain(particles=8)),
    Case("d.run_sharded", d.run_sharded, _plain(fk=TILTED, grid=GRID, particles=64, seed=0), exact=_of_table),
    Case("d.run_populations", d.run_populations, _plain(fk=TILTED, grid=GRID, populations=2, particles=32, seed=0),
         exact=_of_table),
]
# fmt: on

RECORDS = (  # what calls return, and names that are none of these: nobody makes or calls them
    *("HeldOut", "Interval", "Lessons", "Recycled", "Spent", "Sweeps", "Target", "Trajectory", "Trust", "TwistFamily"),
    *("Verdict", "TruetiltError", "InvalidInput", "InvalidWeights", "DegenerateWeights", "Stopped", "__version__"),
    *("continuous", "distributed", "feynman_kac", "testing", "c.Line", "d.LostRank", "d.leave", "d.device"),
    "testing.Rejected",
)
PARTS = (  # functions handed over as values: the run calls them with what it has checked
    *("euler", "tau_leaping", "tweedie", "c.euler_maruyama", "c.exponential", "c.heun"),
    *("rate_level", "posterior_level", "at_end", "uniform_sites", "adapted_sites", "across_populations"),
    *("random_scan", "systematic_scan", "backward_scan", "ancestor_sampling", "keep_lineage"),
    *("independent", "stratified_draws", "systematic_draws", "c.data", "c.noise", "c.velocity"),
)
INSTALLED = ("Antibodies", "Redesign", "Protein", "Molecules")  # networks of other packages, made by tt.load


def uncalled() -> list[str]:
    """Public names that no case calls, and that are in none of the lists above."""
    rooms = {"": tt, "c.": c, "d.": d, "testing.": testing}
    names = {f"{room}{name}" for room, module in rooms.items() for name in module.__all__}
    called = {case.name.split(",")[0].split("(")[0] for case in CASES}
    return sorted(names - called - {*RECORDS, *PARTS, *INSTALLED})

"""truetilt: sample from the distribution that guidance only promises.

The public names are imported when first used, so that `truetilt --help` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "antibodies.redesign": ("Antibodies", "Redesign"),
    "targets.annealed": ("Annealed", "Ladder"),
    "targets.any_order": ("AnyOrder", "adapted_sites", "uniform_sites"),
    "targets.block_moves": ("Block", "Pair"),
    "targets.composed": ("Composed",),
    "api": ("reveal", "run", "sample"),
    "core.errors": ("DegenerateWeights", "InvalidInput", "InvalidWeights", "Stopped", "TruetiltError"),
    "exact.chain": ("Chain", "ChainLaw", "ChainScore"),
    "exact.ctmc": ("forward_equation",),
    "exact.flow": ("flow",),
    "exact.tables": ("Table", "TableScore"),
    "targets.ramp_pilot": ("pilot",),
    "targets.on_clock": ("Frozen", "Power", "Tempered", "Tilted", "Unweighted", "at_end"),
    "targets.sharper": ("sharpened",),
    "targets.steered": ("Steered",),
    "diffusion.guidance": ("Guided", "PosteriorScore", "posterior_level", "rate_level"),
    "diffusion.temperature": ("LocalTemperature",),
    "diffusion.predictors": ("Predictor", "Taylor"),
    "targets.jumps.candidate_times": ("Candidates", "poisson_times"),
    "targets.jumps.first_hitting": ("FirstHitting",),
    "targets.jumps.uniformised": ("Uniformised", "least_bound"),
    "diffusion.kernels": ("euler", "tau_leaping", "tweedie"),
    "proteins.bundle": ("Protein",),
    "models.deduplication": ("Distinct",),
    "models.families": ("Family",),
    "models.from_transformers": ("from_transformers",),
    "models.hub": ("Digits", "from_pretrained", "load"),
    "models.masked_lm": ("Denoiser", "MaskedLM"),
    "models.monte_carlo_guidance": ("MonteCarloGuidance",),
    "models.text_bundle": ("Reviews",),
    "models.sequences": ("Sequences",),
    "models.lazy_score": ("LazyScore",),
    "molecules.bundle": ("Molecules",),
    "models.infilling": ("Infill", "prompted"),
    "models.text_score": ("Text", "TextScore"),
    "models.text_classifier": ("TextClassifier", "TextClassifierConfig"),
    "models.tokenizer": ("Tokenizer", "gpt2_tokenizer", "load_tokenizer", "train_tokenizer"),
    "models.transformer": ("SEDD", "SEDDConfig"),
    "diffusion.processes": ("Cosine", "Geometric", "LogLinear", "Masking", "Uniform"),
    "targets.moves": ("Gibbs", "Metropolis"),
    "targets.scans": ("backward_scan", "random_scan", "systematic_scan"),
    "targets.whole_sequence_moves": ("WholeSequence",),
    "result": ("Result",),
    "rewards.recycled": ("Recycled", "recycled"),
    "rewards.reward": ("Reward",),
    "diffusion.grids": ("masked_fraction_grid", "uniform_grid"),
    "smc.conditional": ("Rule", "ancestor_sampling", "conditional_smc", "keep_lineage"),
    "smc.coupling": ("stratified_draws", "systematic_draws"),
    "smc.paths": ("Trajectory",),
    "smc.rejuvenation": ("Rejuvenation",),
    "smc.resampling": ("adaptive", "multinomial", "never", "partial", "residual", "ssp", "stratified", "systematic"),
    "smc.sampler": ("Stream", "independent"),
    "smc.uncertainty": ("Interval", "across_populations", "genealogy"),
    "core.target": ("Target",),
    "targets.particle_gibbs": ("Sweeps", "particle_gibbs"),
    "smc.weight_findings": ("Verdict",),
    "smc.trust": ("Trust",),
    "core.logits": ("SiteLogits",),
    "core.types": ("Model",),
    "core.spent": ("Spent",),
    "steering.steer": ("steer",),
    "twists.kriging": ("Kriging",),
    "twists.learning": ("learn_twist",),
    "twists.learned_twist": ("HeldOut", "LearnedTwist"),
    "twists.lessons": ("Lessons", "TwistFamily"),
    "twists.lookahead": ("Lookahead", "plain_mean", "soft_mean"),
    "twists.network": ("SmallNetwork",),
    "twists.tables": ("PairTables",),
    "viz.clouds": ("Disks", "Points"),
    "viz.logo": ("SequenceLogo",),
    "viz.views": ("Images", "Numbers", "TextView"),
}
_MODULES = ("continuous", "distributed", "feynman_kac", "testing")  # rooms with public names of their own
_ROOM = {name: room for room, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted([*_ROOM, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _ROOM:
        parts = import_module(".feynman_kac", __name__).__all__ if name[:1].isupper() else ()
        hint = f"; tt.feynman_kac.{name} is one of the parts of a sampler of your own" if name in parts else ""
        raise AttributeError(f"module 'truetilt' has no attribute {name!r}{hint}")
    return getattr(import_module(f".{_ROOM[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__

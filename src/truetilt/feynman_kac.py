"""The parts of a sampler of one's own, under one roof: what a resampler, a kernel, a target or a move is made of.

`docs/extend.md` builds one of each from these names, and `truetilt.testing` checks it.
"""

from __future__ import annotations

from .core.bases import FeynmanKac, MoveKernel
from .core.evaluation import Batch, BatchScore, Needs
from .core.logits import SiteLogits, draw_from
from .core.target import Constant, Remedies, Target
from .core.types import (
    Jumps,
    Law,
    ListedLaw,
    Model,
    Move,
    Particles,
    Potential,
    Process,
    Redraw,
    Resampled,
    Resampler,
    Score,
    SiteOdds,
    SitewiseLaw,
    Step,
    StepInfo,
)
from .diffusion.kernels import Kernel, SiteLaw
from .smc.resampling import log_mean_exp, normalised
from .targets.accept_move import AcceptLaw, AcceptMove
from .targets.any_order import RevealClock, RevealLaw, RevealMove
from .targets.on_clock import ClockMove, OnClock, Proposal, Tempered, Tilt, Tilted, Unweighted, evaluate, powers
from .targets.potentials import check_alpha
from .targets.stage import SiteLaws, SiteTarget, Stage
from .targets.steered import Steered

__all__ = [
    "AcceptLaw",
    "AcceptMove",
    "Batch",
    "BatchScore",
    "ClockMove",
    "Constant",
    "FeynmanKac",
    "Jumps",
    "Kernel",
    "Law",
    "ListedLaw",
    "Model",
    "Move",
    "MoveKernel",
    "Needs",
    "OnClock",
    "Particles",
    "Potential",
    "Process",
    "Proposal",
    "Redraw",
    "Remedies",
    "Resampled",
    "Resampler",
    "RevealClock",
    "RevealLaw",
    "RevealMove",
    "Score",
    "SiteLaw",
    "SiteLaws",
    "SiteLogits",
    "SiteOdds",
    "SiteTarget",
    "SitewiseLaw",
    "Stage",
    "Steered",
    "Step",
    "StepInfo",
    "Target",
    "Tempered",
    "Tilt",
    "Tilted",
    "Unweighted",
    "check_alpha",
    "draw_from",
    "evaluate",
    "log_mean_exp",
    "normalised",
    "powers",
]

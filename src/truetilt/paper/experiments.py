"""Every experiment that is a single record, by name: what `truetilt reproduce NAME` and `proofs/run.py` run.

Experiments on texts are built for a corpus and a folder: see `controlled` and `infill`.
"""

from __future__ import annotations

from ..commands.job_runner import Experiment
from . import chain, figure3, figure4, figures, gb1, humanise, molecules, rewards, sde, soluble, steer, table1, tfbind8

_OF_A_MODULE = (table1, chain, sde, rewards, steer, tfbind8, gb1, soluble, figure3, figure4, humanise, molecules)
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (figures.FIGURE1, figures.FIGURE2, *(module.EXPERIMENT for module in _OF_A_MODULE))
}

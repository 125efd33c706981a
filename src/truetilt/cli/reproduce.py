"""`truetilt reproduce NAME`: the experiments of the paper and beyond it, each with its own options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .terminal import ExperimentOptions, OneLineErrors, command_of, device, progress, show


@dataclass(frozen=True, kw_only=True)
class DigitOptions(ExperimentOptions):
    """Options of an experiment that can compare with real digits."""

    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the IDX files of MNIST; coverage needs it.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LandscapeOptions(ExperimentOptions):
    """Options of the experiment that reads measured scores."""

    data: Annotated[
        Path, typer.Option(help="Folder with the scores of all DNA 8-mers: .npy, .csv, .tsv or .txt, also .gz or .xz.")
    ]


@dataclass(frozen=True, kw_only=True)
class RewardOptions(ExperimentOptions):
    """Options of the experiment that can read measured landscapes."""

    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with folders tfbind8 (scores of all DNA 8-mers) and gb1 (fitness.tsv.xz)."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FitnessOptions(ExperimentOptions):
    """Options of the experiment that reads a measured fitness and the backbone it belongs to."""

    data: Annotated[Path, typer.Option(help="Folder with a folder gb1: backbone.pdb and fitness.tsv.xz.")]


@dataclass(frozen=True, kw_only=True)
class BackboneOptions(ExperimentOptions):
    """Options of the experiment that redesigns whole chains."""

    data: Annotated[Path, typer.Option(help="Folder with the backbones to redesign, .pdb or .cif.")]


@dataclass(frozen=True, kw_only=True)
class HumaniseOptions(ExperimentOptions):
    """Options of the experiment that reads antibodies and published designs."""

    data: Annotated[Path, typer.Option(help="Folder with the seven FASTA files of the publication (parental.fa, ...).")]
    designs: Annotated[
        Path | None,
        typer.Option(help="Designs drawn elsewhere, by proofs/humanise_designs.py; else drawn here."),
    ] = None

    @property
    def more(self) -> dict[str, Any]:
        return {"designs": self.designs}


@dataclass(frozen=True, kw_only=True)
class MoleculeOptions(ExperimentOptions):
    """Options of the experiment on molecules."""

    data: Annotated[
        Path | None, typer.Option("--data", help="Folder moses/dataset/data of the package molsets; for novelty.")
    ] = None
    draws: Annotated[
        int | None, typer.Option(help="Draws of the base that answers are checked by; a million, quick 200.", min=1)
    ] = None

    @property
    def more(self) -> dict[str, Any]:
        return {"draws": self.draws}


COMMANDS: dict[str, tuple[type[ExperimentOptions], str]] = {
    "figure1": (ExperimentOptions, "Six states of one site: guidance misses the tempered target."),
    "figure2": (ExperimentOptions, "Nine states of two sites, at alpha = 2 and 4."),
    "table1": (ExperimentOptions, "KL of every sampler to random targets of one and two sites, masking and uniform."),
    "figure3": (DigitOptions, "Digits of a class from every sampler: pictures, accuracy, diversity, log-ratios."),
    "figure4": (DigitOptions, "Accuracy and diversity of digits against the number of particles, resampled both ways."),
    "chain": (
        ExperimentOptions,
        "Markov chains of up to 256 sites: every sampler's error against network evaluations.",
    ),
    "sde": (ExperimentOptions, "Diffusions of real vectors: every sampler against Gaussian mixtures, D = 2, 8, 32."),
    "rewards": (RewardOptions, "Rewards as black boxes: twists and annealing beside FK steering, SVDD, importance."),
    "steer": (RewardOptions, "tt.steer beside what people use at equal cost, and beside what hindsight would choose."),
    "gb1": (
        FitnessOptions,
        "ProteinMPNN on four sites of GB1 with measured fitness: every sampler and baseline, exactly.",
    ),
    "soluble": (
        BackboneOptions,
        "Whole chains by ProteinMPNN, vanilla leaning to soluble: surface, recovery, where it breaks.",
    ),
    "humanise": (
        HumaniseOptions,
        "25 mouse antibodies made human: OASis content against identity, beside five methods.",
    ),
    "molecules": (
        MoleculeOptions,
        "Drug-like molecules: four tasks at equal cost beside every baseline, two answers checked by base draws.",
    ),
    "tfbind8": (LandscapeOptions, "All 65,536 DNA 8-mers with measured binding (TF Bind 8): every sampler, exactly."),
}


def register(reproduce: typer.Typer) -> None:
    """Add a command for each experiment."""
    for name, (options, words) in COMMANDS.items():
        reproduce.command(name, help=words)(command_of(options, partial(_experiment, name)))


def _experiment(name: str, asked: ExperimentOptions) -> None:
    """Run an experiment, write its result and show it."""
    with OneLineErrors():
        from ..commands.job_runner import Settings, run_experiment
        from ..paper.experiments import EXPERIMENTS

        experiment = EXPERIMENTS[name]
        folder, data = asked.out or Path("runs") / name, getattr(asked, "data", None)
        more = tuple((key, str(asked.more[key])) for key in asked.more if asked.more[key] is not None)
        settings = Settings(asked.quick, asked.seed, device(asked.device), None if data is None else str(data), more)
        with progress(len(experiment.jobs(settings)), experiment.title) as advance:
            result = run_experiment(experiment, settings, folder, advance)
        show(result, experiment.columns, folder, asked.as_json)

"""`truetilt humanise`: designs of the chains of a FASTA file that look human and keep their CDRs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..antibodies.masked_readings import READINGS
from ..antibodies.network import package_folder
from ..antibodies.numbering import VariableDomain, number_domains
from ..antibodies.redesign import Antibodies, Redesign, check_species, load_antiberty
from ..api import run
from ..core.arguments import whole_number
from ..core.errors import InvalidInput
from ..core.fasta import ProteinSequence, read_fasta, tokens_of, write_fasta
from ..core.storage import check_folder, write_json, write_with
from ..core.types import StepInfo
from ..models.text_score import Padded
from ..result import Result
from .antibody_designs import ALPHA_TO_PULL, STEPS, Design, DesignPlan, distinct_designs
from .outputs import command, noted, rows_of, summary_of

FILE = "designs.fa"
MOST_CHAINS = 1000
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


class HumaniseRequest(NamedTuple):
    """The options for every chain of a file."""

    fasta: str
    species: str = "human"
    alpha: float | None = None  # None: 8 times the pull
    pull: float = 8.0
    sharpness: float = 3.0
    cdrs: str = "kabat"
    unseen: str = "1,2"
    designs: int = 8
    particles: int = 32
    populations: int = 4
    sweeps: int = 1
    steps: int | None = STEPS
    readings: int = READINGS
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"  # or bfloat16


def _silent(words: str) -> None:
    """Callbacks that do nothing."""


def humanise(
    asked: HumaniseRequest,
    folder: Path,
    progress: Callable[[int, int], Any],
    folder_of_net: Path | None = None,
    tell: Callable[[str], Any] = _silent,
) -> dict[str, Any]:
    """Designs of every chain, in one FASTA file; for each chain the run, its figures and its verdict in a folder.

    The whole file is checked before the first run. `tell` gets the expected duration in words, `progress` (steps done,
    steps in all); designs are written chain by chain.
    """
    chains, loops = _chains(Path(asked.fasta)), unseen_loops(asked.unseen)
    check_species(asked.species)
    check_folder(folder)
    if folder_of_net is None:
        package_folder()
    numbered = number_domains({one.name: one.letters for one in chains}, asked.cdrs)
    notes = [*_left_out(chains, numbered), NOTE]
    chains = [one._replace(letters=one.letters[slice(*numbered[one.name].span)]) for one in chains]
    domains = {name: domain._replace(start=0) for name, domain in numbered.items()}  # all that the network gets
    nets = load_antiberty(asked.device, None, PRECISIONS[asked.dtype], folder_of_net)
    redesigns = [nets.redesign(one.letters, unseen_cdrs=loops, domain=domains[one.name]) for one in chains]
    alpha = ALPHA_TO_PULL * asked.pull if asked.alpha is None else asked.alpha
    plan = DesignPlan(alpha, asked.pull, asked.sharpness, asked.sweeps, asked.steps, asked.readings)
    targets = [plan.of(one, asked.species) for one in redesigns]
    most = asked.particles * asked.populations * sum(plan.passes(len(one.open_sites)) for one in redesigns)
    tell(duration(most, seconds_a_pass(nets, chains[0].letters)))
    rows, written, told = [], [], []
    passes = Passes(progress, sum(len(grid) for _, grid in targets))
    for number, (chain, redesign, (fk, grid)) in enumerate(zip(chains, redesigns, targets, strict=True), start=1):
        result = run(
            fk, grid, particles=asked.particles, populations=asked.populations, seed=asked.seed,
            callback_on_step_end=passes,
        )  # fmt: skip
        result = noted(
            result, bundle="antiberty", chain=chain.name, command=command(["humanise", asked.fasta], _options(asked))
        )
        found = distinct_designs(redesign, result, asked.designs)
        rows.append(_row(chain, domains[chain.name], redesign, found, nets, result, asked.species))
        written.append([_named(chain, k, design) for k, design in enumerate(found, start=1)])
        result.save(folder / f"chain-{number}", redesign.view)
        told.append({"chain": chain.name} | summary_of(result, rows_of(result)))
        write_fasta(folder / FILE, [design for designs in written for design in designs])
    notes += _fewer(rows, asked.designs)
    summary = {"request": asked._asdict(), "rows": rows, "runs": told, "notes": notes, "verdict": _verdicts(told)}
    summary["saved_runs"] = [str(folder / f"chain-{number}") for number in range(1, len(chains) + 1)]
    write_json(folder / "result.json", summary)
    write_with(folder / "figure.png", lambda path: draw(chains, redesigns, written).savefig(path, dpi=150))
    return summary


NOTE = (
    "p(species) is what was steered by, so it is no measure of success: judge designs by something else (OASis "
    "content, an assay)"
)


def _fewer(rows: list[dict[str, Any]], asked: int) -> list[str]:
    """A note on chains that have fewer distinct designs than were asked for."""
    few = [f"{row['chain']}: {row['designs']}" for row in rows if row["designs"] < asked]
    if not few:
        return []
    return [f"fewer than {asked} distinct designs ({', '.join(few)}); more particles or populations find more"]


def _verdicts(told: list[dict[str, Any]]) -> list[str]:
    """The verdicts of the runs: that of each chain, with its first reason."""
    return [f"{one['chain']}: {' '.join(one['verdict'][:2])}" for one in told]


def seconds_a_pass(nets: Antibodies, letters: str) -> float:
    """How long the network takes for a sequence in a full batch; the first pass, which warms up, is not timed."""
    x = tokens_of(letters).to(nets.device)
    others = torch.stack([x.roll(1 + number) for number in range(2 * nets.batch)])  # the run evaluates none of these
    asked = Padded(nets.net, nets.batch, nets.dtype)
    begun = []
    for part in others.split(nets.batch):
        begun.append(time.perf_counter())
        for answer in asked(part, 0.0):
            answer[:1].cpu()
    return (time.perf_counter() - begun[-1]) / nets.batch


def duration(passes: int, seconds: float) -> str:
    """The expected duration of a run in words, from the time of one network pass on copies of a chain."""
    most = passes * seconds / 60
    low, high = most / 10, most / 3
    usual = f"about {low:.0f} to {high:.0f} minutes" if high >= 2 else f"about {max(60 * high, 1):.0f} seconds"
    return (
        f"{passes:,} passes of the network at most, {1000 * seconds:.0f} ms each here; a sequence that was seen before "
        f"takes none, so that as a rule a tenth to a third are made: {usual}"
    )


class Passes:
    """Counts the steps of all runs, one after another, for a progress bar."""

    def __init__(self, progress: Callable[[int, int], Any], total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, done: int, total: int, info: StepInfo) -> None:
        self.done += 1
        self.progress(self.done, self.total)


def _left_out(chains: list[ProteinSequence], domains: Mapping[str, VariableDomain]) -> list[str]:
    """Notes on residues outside the variable domain: a leader, a linker, constant domains, a second chain."""
    spans = [(one, domains[one.name].span) for one in chains]
    return [
        f"{one.name}: residues {first + 1} to {last} are its {domains[one.name].chain} variable domain, which is "
        f"designed; the other {len(one.letters) - (last - first)} are left out"
        for one, (first, last) in spans
        if last - first < len(one.letters)
    ]


def unseen_loops(text: str) -> tuple[int, ...]:
    """The CDRs hidden from p0, parsed from "1,2"; "none" for none of them."""
    if text.strip().lower() in ("", "none"):
        return ()
    try:
        return tuple(sorted({whole_number("a CDR", int(part), 1, 3) for part in text.split(",")}))
    except ValueError as error:
        raise InvalidInput(f"--unseen is {text!r}; give some of 1,2,3 with commas between, or none") from error


def _chains(path: Path) -> list[ProteinSequence]:
    chains = read_fasta(path)
    if len(chains) > MOST_CHAINS:
        raise InvalidInput(f"{path} holds {len(chains):,} chains; give at most {MOST_CHAINS:,}")
    ids = [_prefix(one) for one in chains]
    twice = sorted({one.name for one, mine in zip(chains, ids, strict=True) if ids.count(mine) > 1})
    if twice:
        raise InvalidInput(f"{path} has two sequences called {twice[0]!r}; give each a name of its own")
    return chains


def _options(asked: HumaniseRequest) -> dict[str, Any]:
    return {name: value for name, value in asked._asdict().items() if name != "fasta"}


def _row(
    chain: ProteinSequence,
    domain: VariableDomain,
    redesign: Redesign,
    found: list[Design],
    nets: Antibodies,
    result: Result,
    species: str,
) -> dict[str, Any]:
    """The row of a chain: its figures and designs as plain data."""
    number = check_species(species)
    before = float(nets.log_species([chain.letters])[0, number].exp())
    after = float(nets.log_species([found[0].sequence])[0, number].exp())
    return {
        "chain": chain.name,
        "kind": domain.chain,
        "residues": len(chain.letters),
        "open": len(redesign.open_sites),
        "designs": len(found),
        "changes": found[0].changes,
        "identity": 1 - found[0].changes / len(chain.letters),
        "p(species)": f"parent {before:.3f}, first design {after:.3f}",
        "verdict": str(result.trust().verdict),
    }


def _named(chain: ProteinSequence, number: int, design: Design) -> ProteinSequence:
    """A design as a FASTA record: an id of one word, and its description."""
    name = f"{_prefix(chain)}{number} weight={design.weight:.4f} changes={design.changes}"
    return ProteinSequence(name, design.sequence)


def _prefix(chain: ProteinSequence) -> str:
    """The prefix of the ids of a chain's designs; one word, since FASTA readers take the first word as the id."""
    return f"{'_'.join(chain.name.split())}_design_"


def draw(chains: list[ProteinSequence], redesigns: list[Redesign], designs: list[list[ProteinSequence]]) -> Any:
    """Every chain with its designs, letter by letter: changed residues in colour, kept loops shaded."""
    from matplotlib.figure import Figure

    lines = len(chains) + sum(map(len, designs))
    longest = max(len(one.letters) for one in chains)
    figure = Figure(figsize=(2 + 0.11 * longest, 0.6 + 0.2 * lines), layout="constrained")
    ax = figure.subplots()
    height = 0
    for chain, redesign, mine in zip(chains, redesigns, designs, strict=True):
        free = set(redesign.open_sites)
        for one in (chain, *mine):
            for site, letter in enumerate(one.letters):
                changed = letter != chain.letters[site]
                if site not in free:
                    ax.add_patch(_shade(site, height))
                weight, colour = ("bold", "#D55E00") if changed else ("normal", "0.35")
                ax.text(site, height, letter, size=6, ha="center", va="center", color=colour, weight=weight)
            label = chain.name if one is chain else f"design {one.name.removeprefix(_prefix(chain)).split()[0]}"
            ax.text(-1.5, height, label[:24], size=6, ha="right", va="center")
            height += 1
    ax.set(xlim=(-1, longest), ylim=(height - 0.4, -0.6))
    ax.set_axis_off()
    return figure


def _shade(site: int, height: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((site - 0.5, height - 0.5), 1, 1, color="0.92", lw=0)

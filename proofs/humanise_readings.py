"""How the species head should read a finished chain: which reading ranks known designs of a chain as OASis does.

python proofs/humanise_readings.py DIR OUT.json --designs proofs/humanise_designs.jsonl [--chains NAME,NAME]

For each chain the published designs and our heaviest at every pull are read as they are, with all CDRs masked, and with
a share of the open residues masked besides, in 8 readings (the first of every two of them are 4 readings). The rows
have log p(human) of each; `ranks` has Spearman's correlation with OASis within a chain, and its mean over the chains
that exponents were chosen on. OASis is used to choose among readings on these five chains, and steers nothing.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch

from truetilt.antibodies.masked_readings import MaskedReadings, hidden_sites
from truetilt.antibodies.redesign import MASK
from truetilt.core.fasta import tokens_of
from truetilt.core.storage import write_json
from truetilt.metrics.oasis import human_peptides, identity, oasis_content, peptide_file
from truetilt.paper.humanise_designs import (
    FOLDER,
    METHODS,
    PARENT,
    cell_named,
    heavy_chains,
    network,
    parents,
    ready_designs,
)

TUNING = ("AntiCD28", "Eculizumab", "Palivizumab", "Lorvotuzumab", "Clazakizumab")
FOOLED = ("Pembrolizumab", "Pertuzumab", "Ixekizumab")
SHARES, MOST = (0.3, 0.5), 8


def sequences_of(chain, published, ours):
    """Designs of the parent's length by who made them, no sequence twice."""
    named = {method: found.get(chain.name, "") for method, found in published.items()}
    moved = [(cell, one) for (name, cell), one in ours.items() if name == chain.name and cell_named(cell).sweeps]
    named |= {f"truetilt {cell}": one["designs"][0]["sequence"] for cell, one in moved}
    found = {}
    for method, letters in named.items():
        if len(letters) == len(chain.parent):
            found.setdefault(letters, method)
    return {method: letters for letters, method in found.items()}


@torch.no_grad()
def read(redesign, letters):
    """log p(human) of a whole chain by every way to read it: a number, or one for each of the readings."""
    x, head = tokens_of(letters)[None].to(redesign.nets.device), redesign._head("human")
    told = {
        "as it is": float(head(x, 0.0)),
        "CDRs masked": float(MaskedReadings(head, (redesign.loops,), MASK)(x, 0.0)),
    }
    for share in SHARES:
        every = hidden_sites(redesign.open_sites, redesign.loops, MOST, share)
        told[f"CDRs and {share:g} masked"] = [float(MaskedReadings(head, (sites,), MASK)(x, 0.0)) for sites in every]
    return told


def summaries(told):
    """One number for each way, with 4 and with 8 readings."""
    out = {name: value for name, value in told.items() if isinstance(value, float)}
    for name, values in told.items():
        if isinstance(values, list):
            out |= {f"{name}, {len(part)}": statistics.fmean(part) for part in (values[::2], values)}
    return out


def ranked(values):
    """The rank of each value among all; equal ones share the mean of theirs."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2 for value in values]


def ranks(rows):
    """Spearman's correlation with OASis within each chain, by the way of reading, and the mean over tuning chains."""
    chains, out = dict.fromkeys(row["chain"] for row in rows), []
    for way in summaries(rows[0]["log_human"]):
        each = {}
        for chain in chains:
            mine = [row for row in rows if row["chain"] == chain]
            read_as, oasis = [summaries(row["log_human"])[way] for row in mine], [row["oasis"] for row in mine]
            each[chain] = statistics.correlation(ranked(read_as), ranked(oasis))
        tuning = [each[chain] for chain in TUNING if chain in each]
        out.append({"way": way, "tuning": statistics.fmean(tuning) if tuning else None, "each": each})
    return out


def main(given):
    folder, peptides = given.data / FOLDER, human_peptides(peptide_file())
    nets, ours = network(given.device, 16), ready_designs(str(given.designs))
    published = {name: heavy_chains(folder, name) for name in (PARENT, *METHODS)}
    rows = json.loads(given.out.read_text())["rows"] if given.out.is_file() else []
    asked = given.chains.split(",") if given.chains else (*TUNING, *FOOLED)
    for chain in parents(folder):
        if chain.name not in asked or chain.name in {row["chain"] for row in rows}:
            continue
        redesign = nets.redesign(chain.parent, domain=chain.domain)
        for method, letters in sequences_of(chain, published, ours).items():
            judged = {"oasis": oasis_content(letters, peptides), "identity": identity(letters, chain.parent)}
            rows.append({"chain": chain.name, "method": method, **judged, "log_human": read(redesign, letters)})
        write_json(given.out, {"rows": rows, "ranks": ranks(rows)})
        print(chain.name, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--designs", type=Path, required=True, help="what was drawn")
    parser.add_argument("--chains", help="names of antibodies, with commas between")
    parser.add_argument("--device", default="cpu")
    main(parser.parse_args())

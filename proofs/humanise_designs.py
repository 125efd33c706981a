"""Draw the designs of `truetilt reproduce humanise` where an accelerator is; it needs torch and transformers alone.

python proofs/humanise_designs.py prepare DIR OUT     here: number the chains of DIR/humanisation and halve the weights
python proofs/humanise_designs.py draw OUT FILE.jsonl --device cuda --batch 2048 --jobs 12 --seconds 480        there:
                                                      all cells of the experiment; the same command again goes on
python proofs/humanise_designs.py draw OUT FILE.jsonl ... --methods best-of-n,importance,svdd-mc,tds,adalead --cells C
                                                      baselines of a cell that is in the file, at ours' evaluations
python proofs/humanise_designs.py weigh DIR OUT.json --designs FILE.jsonl     what the target of a cell thinks of
                                                                              published designs beside ours

FILE.jsonl has a line for each chain and cell. The experiment then reads it: --designs FILE.jsonl. Other cells than the
experiment's, fewer chains and other sizes are asked for by --cells, --chains and --size. log E_p0[p(human|x)] with the
loops seen is log_z of the cell unseen-none-sharp-1-alpha-1-pull-0-sweeps-0.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

from truetilt.antibodies.network import package_folder
from truetilt.core.fasta import tokens_of
from truetilt.core.storage import write_json
from truetilt.paper.humanise_designs import (
    CELLS,
    FOLDER,
    OURS,
    PARENT,
    SIZE,
    RunSize,
    cell_named,
    chains_of_json,
    chains_to_json,
    heavy_chains,
    network,
    one_chain,
    parents,
    ready_designs,
    target_of,
)
from truetilt.paper.humanise_samplers import one_baseline
from truetilt.targets.diagnose_model import log_prob_in_order

INNER = Path("trained_models") / "AntiBERTy_md_smooth"


def prepare(data, out):
    """chains.json and the network in float16, 52 MB."""
    folder, theirs = out / INNER, package_folder()
    folder.mkdir(parents=True, exist_ok=True)
    (out / "chains.json").write_text(json.dumps(chains_to_json(parents(data / FOLDER))))
    shutil.copy(theirs / "config.json", folder / "config.json")
    shutil.copy(theirs.parent / "vocab.txt", folder.parent / "vocab.txt")
    weights = torch.load(theirs / "pytorch_model.bin", map_location="cpu", weights_only=True)
    half = {name: t.half() if t.is_floating_point() else t for name, t in weights.items()}
    torch.save(half, folder / "pytorch_model.bin")


def draw(folder, path, given):
    """Every chain and cell that the file lacks, until the time is up; each baseline at ours' evaluations."""
    begun, done = time.monotonic(), _written(path)
    nets = network(given.device, given.batch, str(folder / INNER))
    size = SIZE if given.size is None else RunSize(*(*map(int, given.size.split("x")), None)[:3])
    number, jobs = map(int, given.part.split("/"))
    own = path if jobs == 1 else path.with_suffix(f".part-{number}")
    with own.open("a") as file:
        for method, ours, chain in _asked(folder, done, given)[number::jobs]:
            cell = ours._replace(method=method)
            if time.monotonic() - begun > given.seconds:
                return
            found = _drawn(chain, cell, size, nets, done.get((chain.name, ours.name)))
            if found is not None:
                done[chain.name, cell.name] = found
                file.write(json.dumps(found) + "\n")
                file.flush()
                print(chain.name, cell.name, f"{found.get('seconds', 0):.1f} s", found.get("distinct"), flush=True)


def _asked(folder, done, given):
    """Methods, cells and chains that are asked for and not in the file."""
    cells = CELLS if given.cells is None else [cell_named(name) for name in given.cells.split(",")]
    chains = chains_of_json(json.loads((folder / "chains.json").read_text()))
    if given.chains is not None:
        chains = [one for one in chains if one.name in given.chains.split(",")]
    methods = given.methods.split(",") if given.methods else [OURS]
    every = [(method, cell, chain) for method in methods for cell in cells for chain in chains]
    return [one for one in every if (one[2].name, one[1]._replace(method=one[0]).name) not in done]


def draw_in_parts(path, given):
    """Several processes, each with a part of what is asked for: one leaves most of a GPU idle. Then one file."""
    command = [sys.executable, *sys.argv]
    running = [subprocess.Popen([*command, "--part", f"{k}/{given.jobs}"]) for k in range(given.jobs)]
    failed = [k for k, one in enumerate(running) if one.wait()]
    parts = [path.with_suffix(f".part-{k}") for k in range(given.jobs)]
    with path.open("a") as file:
        for part in parts:
            file.write(part.read_text() if part.is_file() else "")
            part.unlink(missing_ok=True)
    if failed:
        sys.exit(f"parts {failed} of {given.jobs} failed; what they had finished is in {path}: run it again to go on")


def _written(path):
    """The lines of a file that is there already, by chain and cell."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {(one["chain"], one["cell"]): one for one in map(json.loads, lines)}


def _drawn(chain, cell, size, nets, ours):
    """A line for a chain and cell; None for a baseline where ours is not in the file, whose evaluations it gets."""
    if cell.method == OURS:
        return one_chain(chain, cell, size, 0, nets)
    return ours and one_baseline(chain, cell, size, 0, nets, ours["network_evaluations"])


@torch.no_grad()
def weigh(data, path, given):
    """log p0, log p(human) and changes of the parent, of published designs and of our heaviest, chain by chain.

    Our heaviest is that of --ours, a cell, or of the same cell; log p0 is taken from --known, an earlier answer for the
    same sequences, if there is one.
    """
    cell = CELLS[0] if given.cells is None else cell_named(given.cells)
    drawn = cell.name if given.ours is None else cell_named(given.ours).name
    ours, nets = ready_designs(str(given.designs)), network(given.device, given.batch)
    theirs = {method: heavy_chains(data / FOLDER, method) for method in (PARENT, "sapiens3", "straight_grafts")}
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    done = {row["chain"] for row in rows}
    for chain in parents(data / FOLDER):
        if chain.name in done or (given.chains and chain.name not in given.chains.split(",")):
            continue
        named = {method: found.get(chain.name, "") for method, found in theirs.items()}
        named[OURS] = ours[chain.name, drawn]["designs"][0]["sequence"]
        named = {method: letters for method, letters in named.items() if len(letters) == len(chain.parent)}
        rows += _weighed(chain, cell, nets, named, _known(given.known, chain.name))
        write_json(path, {"cell": cell.name, "ours": drawn, "rows": rows})
        print(chain.name, {row["method"]: round(row["log_pi"], 1) for row in rows[-len(named) :]}, flush=True)


def _known(path, chain):
    """log p0 of a chain's designs by method, from an earlier answer; none without one."""
    rows = [] if path is None else json.loads(path.read_text())["rows"]
    return {row["method"]: row["log_p0"] for row in rows if row["chain"] == chain}


def _weighed(chain, cell, nets, named, known):
    """What the target of a cell thinks of a chain's designs, by method."""
    redesign = nets.redesign(chain.parent, unseen_cdrs=cell.unseen, domain=chain.domain)
    target = target_of(cell, redesign)
    whole = torch.stack([tokens_of(letters) for letters in named.values()])
    x = whole[:, list(redesign.open_sites)].to(nets.device)
    changes = redesign.changes(x)
    outside = (whole != redesign.parent.cpu()).sum(-1) - changes.cpu()  # changes that are not judged
    if set(known) >= set(named):
        log_base = torch.tensor([known[method] for method in named], dtype=torch.float64, device=x.device)
    else:
        log_base = log_prob_in_order(target, x, target.order)
    log_pi, human = (
        cell.sharpness * log_base + target.reward_of(x),
        redesign.log_species(readings=cell.readings)(x, 0.0),
    )
    columns = zip(named, log_base, log_pi, human, changes, outside, strict=True)
    names = ("log_p0", "log_pi", "log_human", "changes", "outside")
    return [{"chain": chain.name, "method": m} | dict(zip(names, map(_plain, v), strict=True)) for m, *v in columns]


def _plain(value):
    return value.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prepare", "draw", "weigh"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, help='as tt.load("antiberty", batch=...)')
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=1, help="draw: processes that share the work")
    parser.add_argument("--part", default="", help="draw: one of them, such as 0/12; --jobs starts them")
    parser.add_argument("--cells", help="their names, with commas between")
    parser.add_argument("--chains", help="names of antibodies, with commas between")
    parser.add_argument("--methods", help="truetilt (the default) and baselines such as tds, with commas between")
    parser.add_argument("--designs", type=Path, help="what was drawn, to be weighed")
    parser.add_argument("--ours", help="weigh: the cell that our designs are of; that of --cells if not given")
    parser.add_argument("--known", type=Path, help="weigh: an earlier answer about the same designs, for its log p0")
    parser.add_argument("--size", help="populations x particles [x steps that reveal], such as 4x64")
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.source, given.out)
    elif given.verb == "weigh":
        weigh(given.source, given.out, given)
    elif given.jobs > 1 and not given.part:
        draw_in_parts(given.out, given)
    else:
        given.part = given.part or "0/1"
        draw(given.source, given.out, given)

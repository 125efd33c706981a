"""Draw the designs of `truetilt reproduce humanise` where an accelerator is; it needs torch and transformers alone.

python proofs/humanise_designs.py prepare DIR OUT     here: number the chains of DIR/humanisation and halve the weights
python proofs/humanise_designs.py draw OUT FILE.jsonl --device cuda --batch 512 --seconds 540     there; again goes on

FILE.jsonl has a line for each chain and cell. The experiment then reads it: --designs FILE.jsonl. Other cells than the
experiment's, fewer chains and other sizes are asked for by --cells, --chains and --size.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import torch

from truetilt.antibodies.network import package_folder
from truetilt.paper.humanise_designs import (
    CELLS,
    FOLDER,
    SIZE,
    RunSize,
    cell_named,
    chains_of_json,
    chains_to_json,
    network,
    one_chain,
    parents,
)

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
    """Every chain and cell that the file lacks, until the time is up."""
    begun = time.monotonic()
    cells = CELLS if given.cells is None else [cell_named(name) for name in given.cells.split(",")]
    size = SIZE if given.size is None else RunSize(*map(int, given.size.split("x")), None)
    chains = chains_of_json(json.loads((folder / "chains.json").read_text()))
    lines = path.read_text().splitlines() if path.is_file() else []
    done = {(one["chain"], one["cell"]) for one in map(json.loads, lines)}
    nets = network(given.device, given.batch, str(folder / INNER))
    if given.chains is not None:
        chains = [one for one in chains if one.name in given.chains.split(",")]
    with path.open("a") as file:
        for cell in cells:
            for chain in chains:
                if (chain.name, cell.name) in done or time.monotonic() - begun > given.seconds:
                    continue
                found = one_chain(chain, cell, size, 0, nets)
                file.write(json.dumps(found) + "\n")
                file.flush()
                print(chain.name, cell.name, f"{found['seconds']:.1f} s", found["distinct"], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["prepare", "draw"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--cells", help="their names, with commas between")
    parser.add_argument("--chains", help="names of antibodies, with commas between")
    parser.add_argument("--size", help="populations x particles, such as 4x64")
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.source, given.out)
    else:
        draw(given.source, given.out, given)

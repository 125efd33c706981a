"""The embedded networks of molecules from trained ones: weights in eight bits, cards, and what they are worth.

    python proofs/embed_molecules.py --net NET --potential POTENTIAL --corpus CORPUS --moses MOSES [--rows 8000]
        [--draws 10000] [--samples FILE.npy] [--out src/truetilt/checkpoints/molecules]

NET and POTENTIAL are what training left (model.safetensors, config.json, card.json, tokenizer.json), CORPUS is what
`python -m truetilt.training.prepare --source moses` wrote, MOSES the folder moses/dataset/data of the package molsets.
The bound of the eight-bit weights must lie within half a per cent of the trained ones, on the same held-out rows with
the same noise. Validity, uniqueness, novelty, diversity, scaffolds and FCD (where fcd_torch is installed) are of draws
of the eight-bit net from left to right, or of a file of rows. Both go into the card.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truetilt.core.chemistry import canonical, parsed, smiles_of
from truetilt.core.storage import write_json
from truetilt.models.pretrained import CARD, read_card
from truetilt.models.text_classifier import TextClassifier
from truetilt.models.tokenizer import TOKENIZER, load_tokenizer
from truetilt.models.transformer import SEDD
from truetilt.training.config import TrainConfig, read_config
from truetilt.training.corpus import Corpus
from truetilt.training.evaluation import evaluate
from truetilt.training.tasks import build_task
from truetilt.training.text_tasks import load_texts

KINDS = {"net": SEDD, "potential": TextClassifier}
CLOSE = 0.005  # of the trained net's bound
DIVERSITY = 3000  # molecules that all pairs are compared of
MOST = 8 * 2**20  # bytes of both


def say(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def measured(kind: str, net: Any, corpus: Path, rows: int) -> dict[str, float]:
    """The figures of a network on the first held-out rows."""
    config: TrainConfig = read_config(Path("configs/molecules") / f"{kind}.yaml", data=str(corpus))
    task = build_task(config)
    _, test = load_texts(config, task)
    kept = torch.arange(min(rows, test.count))
    return evaluate(replace(task, net=net), test.take(kept), config.seed, 1)


def embed(kind: str, trained: Path, corpus: Path, rows: int, out: Path) -> dict[str, Any]:
    """Save one network in eight bits and compare it with what it was made of."""
    before = KINDS[kind].from_pretrained(trained)
    before.save_pretrained(out / kind, torch.int8)
    after = KINDS[kind].from_pretrained(out / kind)
    figures = [measured(kind, net, corpus, rows) for net in (before, after)]
    name = "bound_per_token" if kind == "net" else "cross_entropy_t0.5"
    was, now = (each[name] for each in figures)
    say(kind, name, "of the trained weights", was, "in eight bits", now, f"({(now - was) / was:+.3%})", rows, "rows")
    if abs(now - was) > CLOSE * was:
        raise SystemExit(f"the eight-bit weights of {kind} are not within {CLOSE:.1%}")
    card = read_card(trained) | {"weights": "int8", "notation": Corpus.read(corpus).notation}
    card["eight_bits"] = {"rows": rows, f"{name}_trained": was, name: now}
    write_json(out / kind / CARD, card)
    return card


@torch.no_grad()
def draws(net: SEDD, count: int, seed: int = 0, batch: int = 250) -> np.ndarray:
    """Rows from left to right, one site a pass."""
    sites, mask, noise = net.config.length, net.config.vocabulary, torch.Generator().manual_seed(seed)
    found = []
    for first in range(0, count, batch):
        x = torch.full((min(batch, count - first), sites), mask)
        sigma = torch.ones(len(x))
        for site in range(sites):
            hidden = net.trunk(x, sigma)[:, site]
            p = net.head(hidden, sigma)[:, :mask].double().softmax(-1)
            x[:, site] = torch.multinomial(p, 1, generator=noise)[:, 0]
        found.append(x)
    return torch.cat(found).numpy().astype(np.uint16)


def read_smiles(path: Path) -> list[str]:
    with gzip.open(path, "rt") as file:
        return [line.strip().split(",")[0] for line in file][1:]


def scaffolds(smiles: list[str]) -> dict[str, int]:
    """How often each Murcko scaffold of two rings or more occurs, as MOSES counts them."""
    from rdkit.Chem import MolToSmiles
    from rdkit.Chem.Scaffolds.MurckoScaffold import GetScaffoldForMol

    found: dict[str, int] = {}
    for one in smiles:
        core = GetScaffoldForMol(parsed(one))
        if core.GetRingInfo().NumRings() >= 2:
            key = MolToSmiles(core)
            found[key] = found.get(key, 0) + 1
    return found


def cosine(one: dict[str, int], other: dict[str, int]) -> float:
    """The cosine of two tables of counts."""
    dot = sum(count * other.get(key, 0) for key, count in one.items())
    return dot / float(np.prod([np.sqrt(sum(count**2 for count in each.values())) for each in (one, other)]))


def chemistry(rows: np.ndarray, folder: Path, notation: str, moses: Path) -> dict[str, Any]:
    """What the draws are worth as molecules, beside MOSES' test set; all but validity are of the valid ones."""
    from rdkit import DataStructs
    from rdkit.Chem import rdFingerprintGenerator
    from rdkit.Chem.QED import qed

    words = load_tokenizer(folder)
    every = [canonical(smiles_of(words.decode(row), notation)) for row in rows.tolist()]
    valid = [one for one in every if one]
    train, test = set(read_smiles(moses / "train.csv.gz")), read_smiles(moses / "test.csv.gz")
    pick = np.random.default_rng(0)
    all_test, test = test, [test[k] for k in pick.permutation(len(test))[: len(valid)]]
    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)

    def diversity(smiles: list[str]) -> float:
        bits = [maker.GetFingerprint(parsed(one)) for one in smiles[:DIVERSITY]]
        return 1 - float(np.mean([np.mean(DataStructs.BulkTanimotoSimilarity(one, bits)) for one in bits]))

    first = [one for one in every[:10_000] if one]
    told: dict[str, Any] = {
        "draws": len(rows),
        "valid": len(valid) / len(rows),
        "unique_at_10000": len(set(first)) / max(1, len(first)),
        "novel": float(np.mean([one not in train for one in set(valid)])),
        "internal_diversity": [diversity(valid), diversity(test)],
        "mean_qed": [float(np.mean([qed(parsed(one)) for one in some[:5000]])) for some in (valid, test)],
        "scaffold_similarity": cosine(scaffolds(valid), scaffolds(all_test)),
        "beside": "pairs are (draws, test set of MOSES); all but validity are of the valid draws",
    }
    try:
        from fcd_torch import FCD
    except ImportError:
        return told
    told["fcd_molecules"] = len(valid)
    told["fcd_test"] = float(FCD(device="cpu", n_jobs=1, batch_size=512)(valid, test))
    return told


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("net", "potential", "corpus", "moses"):
        ask.add_argument(f"--{name}", type=Path, required=True)
    ask.add_argument("--out", type=Path, default=Path("src/truetilt/checkpoints/molecules"))
    ask.add_argument("--rows", type=int, default=8000)
    ask.add_argument("--draws", type=int, default=10_000)
    ask.add_argument("--samples", type=Path, help="rows drawn elsewhere, .npy, in place of draws of the eight-bit net")
    given = ask.parse_args()
    (given.out / TOKENIZER).parent.mkdir(parents=True, exist_ok=True)
    (given.out / TOKENIZER).write_bytes((given.net / TOKENIZER).read_bytes())
    cards = {kind: embed(kind, getattr(given, kind), given.corpus, given.rows, given.out) for kind in KINDS}
    size = sum(path.stat().st_size for path in given.out.rglob("*") if path.is_file())
    say("together", f"{size / 2**20:.2f} MiB")
    if size > MOST:
        raise SystemExit("that is more than 8 MiB")
    if given.samples is None:
        say("drawing", given.draws)
        rows = draws(SEDD.from_pretrained(given.out / "net"), given.draws)
        np.save(given.net / "samples-int8.npy", rows)
    else:
        rows = np.load(given.samples)
    found = chemistry(rows, given.out, cards["net"]["notation"], given.moses)
    say(json.dumps(found, indent=1))
    write_json(given.out / "net" / CARD, cards["net"] | {"chemistry": found})


if __name__ == "__main__":
    sys.exit(main())

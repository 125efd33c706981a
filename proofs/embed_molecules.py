"""The embedded networks of molecules from trained ones: weights in eight bits, cards, and what they are worth.

    python proofs/embed_molecules.py --net NET --corpus CORPUS [--potential POTENTIAL] [--moses MOSES] [--rows 8000]
        [--draws 40000] [--samples FILE.npy] [--device cuda] [--out src/truetilt/checkpoints/molecules]

NET and POTENTIAL are what training left (model.safetensors, config.json, card.json, tokenizer.json), CORPUS is what
`python -m truetilt.training.prepare --source moses` wrote, MOSES the folder moses/dataset/data of the package molsets.
Without POTENTIAL the one in --out stays as it is. The bound of the eight-bit weights must lie within half a per cent of
the trained ones, on the same held-out rows with the same noise.

With MOSES the draws of the eight-bit net from left to right (or a file of rows, --samples) are measured as molecules:
validity, uniqueness, novelty, diversity, scaffolds, and FCD of 30,000 valid ones where fcd_torch is installed, beside
MOSES' published baselines; all goes into the card. Without MOSES the rows are only drawn and saved, as on a machine
with a GPU and without RDKit: --out/samples.npy, for --samples.
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
from truetilt.training.config import TrainConfig
from truetilt.training.corpus import Corpus
from truetilt.training.evaluation import evaluate
from truetilt.training.tasks import build_task
from truetilt.training.text_tasks import load_texts

KINDS = {"net": SEDD, "potential": TextClassifier}
CLOSE = 0.005  # of the trained net's bound
DIVERSITY = 3000  # molecules that all pairs are compared of
FCD_MOLECULES = 30_000  # valid draws, and molecules of the test set, that FCD is computed of, as in MOSES
MOST = 8 * 2**20  # bytes of both
SAMPLES = "samples.npy"
MOSES = {  # published by Polykovskiy et al. 2020, for 30,000 draws; FCD and scaffolds against the test set
    "CharRNN": {"valid": 0.975, "unique": 0.999, "novel": 0.842, "fcd": 0.073, "diversity": 0.856, "scaffolds": 0.924},
    "VAE": {"valid": 0.977, "unique": 0.998, "novel": 0.695, "fcd": 0.099, "diversity": 0.856, "scaffolds": 0.939},
    "AAE": {"valid": 0.937, "unique": 0.997, "novel": 0.793, "fcd": 0.556, "diversity": 0.856, "scaffolds": 0.902},
}


def say(*words: object) -> None:
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def measured(trained: Path, net: Any, corpus: Path, rows: int) -> dict[str, float]:
    """The figures of a network on the first held-out rows, by the configuration on the card of what was trained."""
    config = TrainConfig(**(read_card(trained)["config"] | {"data": str(corpus)}))
    task = build_task(config)
    _, test = load_texts(config, task)
    kept = torch.arange(min(rows, test.count))
    return evaluate(replace(task, net=net), test.take(kept), config.seed, 1)


def embed(kind: str, trained: Path, corpus: Path, rows: int, out: Path) -> dict[str, Any]:
    """Save one network in eight bits and compare it with what it was made of."""
    before = KINDS[kind].from_pretrained(trained)
    before.save_pretrained(out / kind, torch.int8)
    after = KINDS[kind].from_pretrained(out / kind)
    figures = [measured(trained, net, corpus, rows) for net in (before, after)]
    name = "bound_per_token" if kind == "net" else "cross_entropy_t0.5"
    was, now = (each[name] for each in figures)
    say(kind, name, "of the trained weights", was, "in eight bits", now, f"({(now - was) / was:+.3%})", rows, "rows")
    if abs(now - was) > CLOSE * was:
        raise SystemExit(f"the eight-bit weights of {kind} are not within {CLOSE:.1%}")
    card = read_card(trained) | {"weights": "int8", "notation": Corpus.read(corpus).notation}
    told = [one for one in (name, "in_order_per_token") if one in figures[0]]
    card["eight_bits"] = {"rows": rows}
    for one in told:
        card["eight_bits"] |= {f"{one}_trained": figures[0][one], one: figures[1][one]}
    write_json(out / kind / CARD, card)
    return card


@torch.no_grad()
def draws(net: SEDD, count: int, end: int, seed: int = 0, batch: int = 250) -> np.ndarray:
    """Rows from left to right, one site a pass; behind an end token all is end."""
    sites, mask, device = net.config.length, net.config.vocabulary, next(net.parameters()).device
    noise, found = torch.Generator(device).manual_seed(seed), []
    for first in range(0, count, batch):
        x = torch.full((min(batch, count - first), sites), mask, device=device)
        for site in range(sites):
            open_rows = torch.ones(len(x), dtype=torch.bool, device=device) if site == 0 else x[:, site - 1] != end
            x[~open_rows, site] = end
            if not bool(open_rows.any()):
                continue
            sigma = torch.ones(int(open_rows.sum()), device=device)
            hidden = net.trunk(x[open_rows], sigma)[:, site]
            p = net.head(hidden, sigma)[:, :mask].double().softmax(-1)
            x[open_rows, site] = torch.multinomial(p, 1, generator=noise)[:, 0]
        found.append(x.cpu())
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
    if not valid:
        raise SystemExit(f"none of {len(rows):,} draws is a molecule; train the net for longer")
    train, test = set(read_smiles(moses / "train.csv.gz")), read_smiles(moses / "test.csv.gz")
    pick = np.random.default_rng(0)
    all_test, test = test, [test[k] for k in pick.permutation(len(test))[: min(FCD_MOLECULES, len(valid))]]
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
        "moses": MOSES,
        "beside": "pairs are (draws, test set of MOSES); all but validity are of the valid draws",
    }
    try:
        from fcd_torch import FCD
    except ImportError:
        return told
    told["fcd_molecules"] = len(test)
    told["fcd_test"] = float(FCD(device="cpu", n_jobs=1, batch_size=512)(valid[: len(test)], test))
    if len(test) < FCD_MOLECULES:
        say(f"FCD is of {len(test):,} molecules, not {FCD_MOLECULES:,}: too few draws are valid; raise --draws")
    return told


def asked() -> argparse.Namespace:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, needed in (("net", True), ("corpus", True), ("potential", False), ("moses", False)):
        ask.add_argument(f"--{name}", type=Path, required=needed)
    ask.add_argument("--out", type=Path, default=Path("src/truetilt/checkpoints/molecules"))
    ask.add_argument("--rows", type=int, default=8000)
    ask.add_argument("--draws", type=int, default=40_000)
    ask.add_argument("--samples", type=Path, help="rows drawn before, .npy, in place of draws of the eight-bit net")
    ask.add_argument("--device", default="cpu", help="where rows are drawn")
    return ask.parse_args()


def main() -> None:
    given = asked()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / TOKENIZER).write_bytes((given.net / TOKENIZER).read_bytes())
    kinds = [kind for kind in KINDS if getattr(given, kind) is not None]
    cards = {kind: embed(kind, getattr(given, kind), given.corpus, given.rows, given.out) for kind in kinds}
    size = sum(path.stat().st_size for path in given.out.rglob("*") if path.is_file())
    say("together", f"{size / 2**20:.2f} MiB")
    if size > MOST:
        raise SystemExit("that is more than 8 MiB")
    if given.samples is None:
        say("drawing", given.draws)
        net = SEDD.from_pretrained(given.out / "net").eval().to(given.device)
        batch = 250 if given.device == "cpu" else 10_000
        rows = draws(net, given.draws, load_tokenizer(given.out).end, batch=batch)
    else:
        rows = np.load(given.samples)
    if given.moses is None:
        np.save(given.out / SAMPLES, rows)
        say(f"{given.out / SAMPLES} has the rows; measure them with --moses and --samples where RDKit is installed")
        return
    found = chemistry(rows, given.out, cards["net"]["notation"], given.moses)
    say(json.dumps(found, indent=1))
    write_json(given.out / "net" / CARD, cards["net"] | {"chemistry": found})


if __name__ == "__main__":
    sys.exit(main())

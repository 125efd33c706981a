"""How well a bundle of text nets writes: perplexity by a stranger, invented words, distinct-2, beside held-out rows.

PYTHONPATH=src python benchmarks/text_quality.py FOLDER --corpus DIR [--texts 256] [--reference smollm2] [--device cuda]

FOLDER is a bundle (or tiny-reviews), DIR the prepared corpus it was trained on. Texts are drawn without a class, one
site a step: by local temperatures, which have no weights, and from p0^gamma with weights (roots and ESS beside them).
Known words are those of all rows that the nets learned from.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

import truetilt as tt
from truetilt.core.storage import write_json
from truetilt.metrics.perplexity import perplexity
from truetilt.metrics.reference_models import smollm2
from truetilt.metrics.text import distinct, invented_words, words_in
from truetilt.training.corpus import Corpus

TEMPERATURES, GAMMAS, POPULATION = (1.0, 0.9, 0.8, 0.7, 0.6), (1.0, 1.1, 1.25), 16


def known_words(corpus: Corpus) -> frozenset[str]:
    """The words of all rows that the nets learned from."""
    tokenizer = corpus.tokenizer
    rows = corpus.texts(("guidance",), labelled=False).tokens
    return frozenset(word for row in rows.tolist() for word in words_in(tokenizer.decode(row)))


def real_texts(corpus: Corpus, count: int) -> list[str]:
    """Held-out rows with a sentiment, at equal distances, so that every source and class has its share."""
    rows = corpus.texts(("test",), labelled=True)
    tokens = rows.tokens[rows.kinds[next(iter(corpus.groups))]]
    chosen = torch.arange(min(count, len(tokens))) * len(tokens) // min(count, len(tokens))
    return [corpus.tokenizer.decode(row) for row in tokens[chosen].tolist()]


def drawn(nets: Any, target: tt.Composed, count: int) -> tuple[list[str], dict[str, float]]:
    """Draws by weight, with ESS and roots of the run."""
    populations = max(1, count // POPULATION)
    result = tt.run(target, particles=POPULATION, populations=populations, seed=0, chunk=nets.batch)
    figures = {"ess": float(result.final_ess.sum()), "roots": int(result.roots.sum())}
    return nets.decode(result.draw(count, 0)), figures | {"particles": result.log_weights.numel()}


def targets(nets: Any) -> dict[str, tt.Composed]:
    """What is drawn, by name."""
    process, base, length, end = nets.process, nets.base(), nets.length, nets.tokenizer.end
    named = {}
    for value in TEMPERATURES:
        for name, keep in (("", None), (", ends kept", end)) if value != 1 else (("", None),):
            cooled = tt.LocalTemperature(process, base, value, keep)
            named[f"local temperature {value:g}{name}"] = tt.Composed(
                tt.Model(process, length, cooled, device=nets.device)
            )
    plain = tt.Model(process, length, base, device=nets.device)
    return named | {f"sharpness {value:g}": tt.Composed(plain, sharpness=value) for value in GAMMAS if value != 1}


def figures_of(texts: list[str], known: frozenset[str], reference: Any) -> dict[str, Any]:
    """The figures of texts; empty ones are left out and counted."""
    kept = [text for text in texts if text.split()]
    found = {"texts": len(kept), "empty": len(texts) - len(kept), "invented_words": invented_words(kept, known)}
    words = [text.split() for text in kept]
    found |= {"distinct_2": distinct(words), "words": sum(map(len, words)) / max(1, len(words))}
    return found | ({} if reference is None else {"perplexity": perplexity(reference, kept).corpus})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a bundle of text nets, or tiny-reviews")
    parser.add_argument("--corpus", type=Path, required=True, help="the prepared corpus it was trained on")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--reference", choices=("none", "smollm2"), default="none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, help="texts that a net reads at a time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    nets, corpus = tt.load(given.folder, given.device, batch=given.batch), Corpus.read(given.corpus)
    reference = smollm2() if given.reference == "smollm2" else None
    known = known_words(corpus)
    found: dict[str, Any] = {"bundle": given.folder, "texts": given.texts, "known_words": len(known), "rows": {}}

    def note(name: str, figures: dict[str, Any]) -> None:
        found["rows"][name] = figures
        sys.stderr.write(f"{name}: { {key: value for key, value in figures.items() if key != 'first'} }\n")
        if given.out is not None:
            write_json(given.out, found)  # what is there stays, should the time run out

    note("real", figures_of(real_texts(corpus, given.texts), known, reference))
    for name, target in targets(nets).items():
        texts, more = drawn(nets, target, given.texts)
        note(name, figures_of(texts, known, reference) | more | {"first": texts[:20]})
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Networks of molecules small enough to enumerate, in the format of the embedded ones: three atoms and an end."""

import json
from dataclasses import replace

import torch

from truetilt.models.text_classifier import TextClassifier, TextClassifierConfig
from truetilt.models.transformer import SEDD, SEDDConfig
from truetilt.molecules.bundle import Molecules
from truetilt.molecules.tokenizer import train_pieces
from truetilt.molecules.twist import PropertyBins

LENGTH, V = 3, 4  # sites; the end, C, N and O
BINS = {"qed": {"edges": [0.2, 0.6], "means": [0.1, 0.4, 0.8]}, "logp": {"edges": [1.0], "means": [0.0, 2.0]}}


def shaken(net, seed):
    """A network whose weights are drawn, so that its answers differ."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=noise))
    return net.eval()


def tiny_molecules(length=LENGTH):
    words = train_pieces(["CNO", "CCO", "NOC"], V, ())
    sizes = {"vocabulary": V, "length": length, "hidden": 16, "blocks": 1, "heads": 2, "condition": 8}
    net = shaken(SEDD(SEDDConfig(**sizes, classes=0, masked=True, positions=True, timeless=True)), 1)
    potential = shaken(TextClassifier(TextClassifierConfig(**sizes, groups=(3, 2))), 2)
    return Molecules(net, words, "smiles", potential, PropertyBins(BINS), batch=8)


def write_tiny(folder, nets=None):
    """The same as a folder that `tt.load("molecules", folder=...)` reads."""
    nets = nets or tiny_molecules()
    nets.tokenizer.save(folder)
    for part, facts in (("net", {"notation": "smiles"}), ("potential", {"bins": BINS})):
        getattr(nets, part).save_pretrained(folder / part, torch.int8)
        (folder / part / "card.json").write_text(json.dumps(facts))
    return folder


def keeping(nets, row, fragment="C"):
    """The networks with tokens kept, as `fix` leaves them; None is open."""
    return replace(nets, given=row, fragment=fragment)

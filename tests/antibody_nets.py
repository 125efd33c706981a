"""A tiny network in the file format of AntiBERTy's package, for tests without it."""

import json

import torch
from transformers import BertConfig, BertForMaskedLM

from truetilt.antibodies.network import SPECIES
from truetilt.core.fasta import AMINO_ACIDS

HIDDEN = 16
_CONFIG = {
    "architectures": ["AntiBERTy"],
    "model_type": "bert",
    "vocab_size": 25,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}


def tensors(seed=0):
    """The tensors of such a file, large enough that no law is flat."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = {name: 10 * tensor for name, tensor in BertForMaskedLM(BertConfig(**_CONFIG)).state_dict().items()}
        weights = {name: t / 10 if "LayerNorm" in name else t for name, t in weights.items()}
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
        for name, classes in (("species", len(SPECIES)), ("chain", 2), ("graft", 2)):
            weights[f"cls.{name}.weight"] = torch.randn(classes, HIDDEN)
            weights[f"cls.{name}.bias"] = torch.zeros(classes)
        weights["bert.pooler.dense.weight"] = torch.randn(HIDDEN, HIDDEN) / HIDDEN**0.5
        weights["bert.pooler.dense.bias"] = torch.zeros(HIDDEN)
    weights["bert.embeddings.position_ids"] = torch.arange(64)[None]
    return weights


def write_antiberty(root, weights=None, config=None):
    """The folder of a tiny network, as the package has it."""
    folder = root / "trained_models" / "AntiBERTy_md_smooth"
    folder.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *AMINO_ACIDS]
    (folder.parent / "vocab.txt").write_text("\n".join(words))
    (folder / "config.json").write_text(json.dumps(_CONFIG | (config or {})))
    torch.save(tensors() if weights is None else weights, folder / "pytorch_model.bin")
    return folder

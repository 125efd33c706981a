"""AntiBERTy, a BERT of antibodies with heads for the species and the chain, read from the files of its PyPI package.

The network reads `CLS residues SEP`, where a masked residue is a token of its own, and returns all its outputs in one
pass: the laws of the masked residues, p(species) and p(chain). Samplers use the first two one after the other; a cache
of recent sequences makes this cost one pass.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from ..core.fasta import AMINO_ACIDS
from ..core.storage import read_text
from ..core.types import Tokens
from ..models.pretrained import CONFIG, check_finite, check_shapes, read_json
from ..models.sedd_checkpoints import PICKLED, unpickled

PACKAGE, VERSION = "antiberty", "0.1.3"
SPECIES = ("camel", "human", "mouse", "rabbit", "rat", "rhesus")
CHAINS = ("heavy", "light")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FIRST = len(_SPECIAL)  # the first amino acid among the network's tokens
_HEADS = {"species": len(SPECIES), "chain": len(CHAINS), "graft": 2}
_UNUSED = "bert.embeddings.position_ids"  # 0, 1, 2, ...: not saved by later versions of transformers
_INSTALL = "pip install 'truetilt[antibody]'"
_KEPT = 16384  # sequences in the cache
_PARTS = 16  # passes for a batch of which nothing is cached


@dataclass(frozen=True)
class AntibodyNetConfig:
    """The sizes that samplers need: tokens, the longest sequence, and classes of the species head."""

    vocabulary: int
    length: int
    classes: int = len(SPECIES)


class NetAnswer(NamedTuple):
    """The outputs of one pass for sequences [B, L]."""

    residues: Tensor  # log-odds of the amino acids [B, L, 20]
    species: Tensor  # log-odds [B, 6]
    chain: Tensor  # log-odds [B, 2]


class AntibodyNet(nn.Module):
    """AntiBERTy on tokens 0 to 19 (amino acids) and 20 (mask): special tokens and its own ids are handled inside."""

    def __init__(self, bert: Any, pooler: nn.Module, heads: nn.ModuleDict, longest: int) -> None:
        super().__init__()
        self.bert: Any = bert  # a BertForMaskedLM
        self.pooler, self.heads = pooler, heads
        self.config = AntibodyNetConfig(len(AMINO_ACIDS), longest - 2)
        self._kept: OrderedDict[bytes, NetAnswer] = OrderedDict()
        self.evaluated = 0  # sequences evaluated, padding not counted

    def forward(self, x: Tokens, times: Tensor | None = None) -> Tensor:
        """The log-odds of the amino acids at every site [B, L, 20]; the time is ignored."""
        return self.answer(x).residues

    def answer(self, x: Tokens) -> NetAnswer:
        """All outputs for sequences [B, L], from the cache for recent ones.

        New sequences are evaluated in passes of a sixteenth of the batch, so that no output depends on what is cached
        and a batch of which little is new costs little.
        """
        if self.training:
            return self._pass(x)
        keys = [bytes(row) for row in x.to(torch.uint8).cpu().numpy()]
        new = {key: row for row, key in enumerate(keys) if key not in self._kept}
        size = -(-len(x) // _PARTS)
        for first in range(0, len(new), size):
            self._learn(x, dict(list(new.items())[first : first + size]), size)
        for key in keys:
            self._kept.move_to_end(key)
        told = [self._kept[key] for key in keys]
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return NetAnswer(*(torch.stack(parts) for parts in zip(*told, strict=True)))

    def _learn(self, x: Tokens, new: dict[bytes, int], size: int) -> None:
        """Ask about these rows in one pass of this size, and keep the answers by their keys."""
        rows = list(new.values())
        found = self._pass(x[torch.tensor(rows + rows[:1] * (size - len(rows)), device=x.device)])
        self.evaluated += len(rows)
        each = zip(*(part[: len(rows)].clone().unbind() for part in found), strict=True)
        self._kept |= {key: NetAnswer(*parts) for key, parts in zip(new, each, strict=True)}

    def _pass(self, x: Tokens) -> NetAnswer:
        hidden = self.bert.bert(framed(x)).last_hidden_state
        residues = self.bert.cls(hidden)[:, 1:-1, _FIRST:]
        with torch.autocast(x.device.type, enabled=False):  # half precision would round log p(species) by .1
            pooled = torch.tanh(self.pooler(hidden[:, 0].float()))
            return NetAnswer(residues.float(), *(self.heads[name](pooled) for name in ("species", "chain")))


class HeadOf(nn.Module):
    """One head of the network as a classifier of sequences [B, L]: log-odds [B, classes]."""

    def __init__(self, net: AntibodyNet, name: str) -> None:
        super().__init__()
        self.net, self.name = net, name
        self.config = AntibodyNetConfig(net.config.vocabulary, net.config.length, _HEADS[name])
        self.train(net.training)

    def forward(self, x: Tokens, times: Tensor | None = None) -> Tensor:
        return getattr(self.net.answer(x), self.name)


def framed(x: Tokens) -> Tokens:
    """The network's own tokens of sequences [B, L], between CLS and SEP [B, L + 2]; token 20 becomes its mask."""
    begin, end = (x.new_full((len(x), 1), _SPECIAL.index(token)) for token in ("[CLS]", "[SEP]"))
    own = torch.where(x == len(AMINO_ACIDS), _SPECIAL.index("[MASK]"), x + _FIRST)
    return torch.cat([begin, own, end], -1)


def package_folder() -> Path:
    """The folder of the weights inside the installed package, whose code is not run."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InvalidInput(f"the package {PACKAGE} is not installed; {_INSTALL}")
    folder = Path(next(iter(found.submodule_search_locations))) / "trained_models" / "AntiBERTy_md_smooth"
    if not (folder / PICKLED).is_file():
        raise InvalidInput(
            f"the installed package {PACKAGE} has no weights inside, as later versions have none; "
            f"pip install {PACKAGE}=={VERSION}"
        )
    return folder


def read_network(folder: Path) -> AntibodyNet:
    """The network of a folder with config.json and pytorch_model.bin, in eval mode; vocab.txt lies beside it."""
    try:
        from transformers import BertConfig, BertForMaskedLM
    except ImportError as error:
        raise InvalidInput(f"AntiBERTy needs transformers ({error}); {_INSTALL}") from error
    values = read_json(folder / CONFIG)
    _check_vocabulary(folder.parent / "vocab.txt", values)
    config: Any = BertConfig(**{name: value for name, value in values.items() if name != "architectures"})
    bert: Any = BertForMaskedLM(config)
    hidden = config.hidden_size
    pooler = nn.Linear(hidden, hidden)
    heads = nn.ModuleDict({name: nn.Linear(hidden, classes) for name, classes in _HEADS.items()})
    groups = {"bert.pooler.dense.": pooler, **{f"cls.{name}.": head for name, head in heads.items()}}
    expected = {name: tuple(tensor.shape) for name, tensor in bert.state_dict().items()}
    for start, part in groups.items():
        expected |= {start + name: tuple(tensor.shape) for name, tensor in part.state_dict().items()}
    path = folder / PICKLED
    weights = unpickled(path)
    weights.pop(_UNUSED, None)
    check_shapes(path, {name: tuple(tensor.shape) for name, tensor in weights.items()}, expected)
    check_finite(path, weights)
    for start, part in groups.items():
        part.load_state_dict({name: weights.pop(start + name) for name in part.state_dict()})
    bert.load_state_dict(weights)
    return AntibodyNet(bert, pooler, heads, config.max_position_embeddings).eval()


def _check_vocabulary(path: Path, config: dict[str, Any]) -> None:
    """Raise unless the tokens are numbered as expected here."""
    try:
        tokens = tuple(read_text(path).split())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read ({error}); it lists the tokens of AntiBERTy") from error
    if tokens != (*_SPECIAL, *AMINO_ACIDS) or config.get("vocab_size") != len(tokens):
        raise InvalidInput(f"{path} lists other tokens than AntiBERTy {VERSION}; it is another network")

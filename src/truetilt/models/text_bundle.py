"""A bundle of text networks in one folder: sedd (with and without class), deft (the guide), potential, judge,
tokenizer.

Each network has a subfolder of its own, as training writes it; the card of the first names the classes. Texts go in and
out as strings. A row is a text, an end token, and more end tokens up to the length of the networks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..core.arguments import listed, set_fields, shown, token_rows
from ..core.errors import InvalidInput
from ..core.types import Model, Tokens
from ..diffusion.processes import Masking
from ..viz.views import TextView, view_of_tokens
from .infilling import check_tokens, with_gaps
from .layers import placed
from .net_facts import TokenNet, check_nets
from .net_score import (
    by_guide_net,
    by_potential,
    class_log_probs,
    form_named,
    part_of_bundle,
)
from .pretrained import CARD, CONFIG, WEIGHTS, Pretrained, read_card
from .text_classifier import TextClassifier
from .text_normalisation import normalise
from .text_score import Padded, TextScore, check_batch
from .tokenizer import TOKENIZER, Tokenizer, load_tokenizer
from .transformer import SEDD

PARTS: Mapping[str, type[Pretrained]] = {
    "sedd": SEDD,
    "deft": SEDD,
    "potential": TextClassifier,
    "judge": TextClassifier,
}
FILES = [TOKENIZER, *(f"{part}/{file}" for part in PARTS for file in (CARD, CONFIG, WEIGHTS, TOKENIZER))]


@dataclass(frozen=True)
class Facts:
    """What the class numbers of a bundle mean."""

    classes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]  # mutually exclusive classes; they come first, in this order
    withheld: tuple[int, ...]  # for each class, the label given instead when it is withheld

    def __post_init__(self) -> None:
        first = [name for members in self.groups.values() for name in members]
        if first != list(self.classes[: len(first)]):
            raise InvalidInput(f"the groups hold {first} and the classes begin otherwise: {list(self.classes)}")
        if any(not 0 <= told <= len(self.classes) for told in self.withheld):
            raise InvalidInput(f"withheld tells {list(self.withheld)[:9]}; classes are 0 to {len(self.classes)} (none)")
        if len(self.withheld) <= len(self.classes) - 1:
            raise InvalidInput(
                f"withheld has {len(self.withheld)} entries for {len(self.classes)} classes; give each one"
            )

    def number(self, condition: str | int) -> int:
        """The number of a class, given by its name or its number."""
        if not isinstance(condition, str | int):
            raise InvalidInput(f"the condition is {shown(condition)}; give the name of a class, or its number")
        if condition in self.classes:
            return self.classes.index(str(condition))
        if re.fullmatch("[0-9]{1,9}", str(condition)) and int(condition) < len(self.classes):
            return int(condition)
        meant = [name for name in self.classes if name.lower() == str(condition).strip().lower()]
        hint = f" (is it {meant[0]!r} that you mean?)" if meant else ""
        raise InvalidInput(f"the condition is {shown(condition)}{hint}; these nets know {', '.join(self.classes)}")

    def rivals(self, number: int) -> tuple[int, ...]:
        """The class numbers of the group that a class belongs to."""
        first = 0
        for members in self.groups.values():
            if number < first + len(members):
                return tuple(range(first, first + len(members)))
            first += len(members)
        raise InvalidInput(
            f"{self.classes[number]} is a kind of text that nobody judges; give one of {', '.join(self.judged)}"
        )

    @property
    def judged(self) -> tuple[str, ...]:
        """The classes that the classifiers predict."""
        return tuple(name for members in self.groups.values() for name in members)


@dataclass(frozen=True)
class Reviews:
    """Text networks over one tokenizer, trained for masking; `tt.load` makes it of a bundle.

    Args:
        nets: The networks by name, one of them "sedd"; all agree in vocabulary and length.
        tokenizer: The `tt.Tokenizer` that they share.
        facts: What the class numbers of the networks mean.
        batch: Texts evaluated at a time, 1 or more; 16 by default.
        dtype: Number type in which they are evaluated. None (the default): that of their weights.
    """

    nets: Mapping[str, nn.Module]
    tokenizer: Tokenizer
    facts: Facts
    batch: int = 16
    dtype: torch.dtype | None = None
    process: Masking = field(init=False)

    def __post_init__(self) -> None:
        check_nets(self.nets, ("vocabulary", "length", "classes"), "sedd")
        if not isinstance(self.tokenizer, Tokenizer):
            raise InvalidInput(f"tokenizer is {shown(self.tokenizer)}; give the tt.Tokenizer of the nets")
        if not isinstance(self.facts, Facts):
            raise InvalidInput(f"facts is {shown(self.facts)}; give those of a bundle that tt.load read")
        set_fields(self, batch=check_batch(self.batch, self.dtype))
        config: Any = self.nets["sedd"].config
        for name, net in self.nets.items():
            own: Any = net.config
            if (own.vocabulary, own.length) != (config.vocabulary, config.length):
                raise InvalidInput(
                    f"sedd has {config.vocabulary} tokens and length {config.length}, {name} has {own.vocabulary} and "
                    f"{own.length}; nets of one bundle must agree"
                )
            told, known = getattr(own, "groups", None), tuple(len(members) for members in self.facts.groups.values())
            if told is not None and tuple(told) != known:
                raise InvalidInput(f"{name} knows groups of {told} classes and the card names {known}; they must agree")
        if config.classes != len(self.facts.classes):
            raise InvalidInput(f"sedd knows {config.classes} classes and its card names {len(self.facts.classes)}")
        if not config.masked:
            raise InvalidInput("sedd was trained without a mask; a bundle of text is for masking")
        self.tokenizer.check_fits(config.vocabulary, None, "sedd")
        object.__setattr__(self, "process", Masking(config.vocabulary))

    def __repr__(self) -> str:
        parts = f"{', '.join(self.nets)}; {self.length} sites, {self.tokenizer.vocabulary} tokens"
        return f"<Reviews: {parts}; classes {', '.join(self.classes)}; on {self.device}>"

    @property
    def length(self) -> int:
        """Number of tokens in a row."""
        config: Any = self.nets["sedd"].config
        return config.length

    @property
    def classes(self) -> tuple[str, ...]:
        return self.facts.classes

    @property
    def device(self) -> torch.device:
        return next(self.nets["sedd"].parameters()).device

    @property
    def view(self) -> TextView:
        """The view of states for reports and figures."""
        return view_of_tokens(self.tokenizer, self.tokenizer.vocabulary, self.process.mask)

    def encode(self, text: str) -> list[int]:
        """The tokens of a normalised text, without an end token."""
        if not isinstance(text, str):
            raise InvalidInput(f"{type(text).__name__} came where one text is read; `rows` reads a list of texts")
        found = self.tokenizer.encode(normalise(text))
        if len(found) > self.length:
            raise InvalidInput(f"the text has {len(found)} tokens and the nets read {self.length}; shorten it")
        return found

    def decode(self, x: Tokens) -> list[str]:
        """The texts of rows [..., D], each up to its end token."""
        need = "texts are read from rows of tokens, an int64 tensor [..., D]; result.particles is such"
        x = token_rows("x", x, need)
        if x.dim() < 2:
            raise InvalidInput(f"x is one row; {need}")
        return [self.tokenizer.decode(row) for row in x.flatten(0, -2).tolist()]

    def rows(self, texts: Sequence[str]) -> Tokens:
        """Rows of tokens [n, D]: the text, then end tokens up to the length; longer texts are cut off."""
        if isinstance(texts, str):
            raise InvalidInput("one text came where a list of texts is read; put it in a list")
        ends = [self.tokenizer.end] * self.length
        encoded = self.tokenizer.encode_all([normalise(text) for text in texts])
        found = [(tokens + ends)[: self.length] for tokens in encoded]
        return torch.tensor(found, dtype=torch.int64, device=self.device).reshape(-1, self.length)

    def model(self, condition: str | int, form: str = "potential", given: Sequence[int | None] | None = None) -> Model:
        """The model under a class; `form` is potential (tilt by a classifier), deft or cfg (edge ratios).

        The base is conditioned on what remains when the class is withheld: for a toxic comment, on being a comment.
        With `given`, a row with None at its gaps, the model is over the tokens in the gaps.
        """
        make = form_named(form)
        number = self.facts.number(condition)
        if make is by_potential:
            self.facts.rivals(number)
        plain = make(self.nets, self.base(condition), self.score(number))
        plain = replace(plain, log_p_condition=-math.log(len(self.classes)))  # assumes about equal frequencies
        if given is None:
            return plain
        if make is by_guide_net:
            raise InvalidInput(
                "gaps are filled by the sedd net with or without a potential; give form potential or cfg"
            )
        return with_gaps(plain, self.checked(given))

    def score(self, number: int | None) -> TextScore:
        """The Score of the sedd network under the class of this number."""
        return TextScore(cast("TokenNet", self.nets["sedd"]), self.process, number, self.batch, self.dtype)

    def base(self, condition: str | int | None = None) -> TextScore:
        """The Score of the sedd network with this condition withheld."""
        if condition is None:
            return self.score(None)
        told = self.facts.withheld[self.facts.number(condition)]
        return self.score(told if told < len(self.classes) else None)

    def checked(self, given: Sequence[int | None]) -> tuple[int | None, ...]:
        """A row with gaps, checked: as long as the networks read, of tokens they know."""
        given = listed("given", given, "give a token, or None for a gap, at each place")
        if len(given) != self.length:
            raise InvalidInput(f"the row has {len(given)} tokens and the nets read {self.length}; fill it up with ends")
        check_tokens([token for token in given if token is not None], self.process.vocabulary)
        return tuple(given)

    def judge(self, texts: Sequence[str]) -> Tensor:
        """$log p(class | text)$ by the judge, a network not used for guidance: float64 [n, classes], normalised in each
        group.

        The columns are `facts.judged`, the classes of all groups. `verdicts` says whether a text has a class.
        """
        if not len(texts):
            return torch.empty(0, len(self.facts.judged), dtype=torch.float64)
        net = Padded(part_of_bundle(self.nets, "judge", "judging"), self.batch, self.dtype)
        return class_log_probs(net, self.rows(texts)).cpu()

    def verdicts(self, texts: Sequence[str], condition: str | int) -> tuple[Tensor, Tensor]:
        """$log p(condition | text)$ and whether no other class of its group is likelier, each [n]."""
        number = self.facts.number(condition)
        log_p = self.judge(texts)
        return log_p[:, number], log_p[:, number] >= log_p[:, list(self.facts.rivals(number))].amax(-1)


def is_reviews(folder: Path) -> bool:
    """Whether a folder holds a bundle of text networks."""
    return (folder / "sedd").is_dir()


def read_reviews(
    folder: Path, device: torch.device | str, batch: int | None, dtype: torch.dtype | None, compile: bool
) -> Reviews:
    """The bundle of a folder; every network with a card must have been trained with the tokenizer in the folder."""
    found = [name for name in PARTS if (folder / name).is_dir()]
    nets: dict[str, Any] = {name: placed(PARTS[name].from_pretrained(folder / name), device) for name in found}
    tokenizer = load_tokenizer(folder if (folder / TOKENIZER).is_file() else folder / "sedd")
    for name, net in nets.items():
        recorded = read_card(folder / name).get("tokenizer")
        tokenizer.check_fits(net.config.vocabulary, recorded, str(folder / name))
        for block in net.blocks if compile else ():
            block.compile()
    return Reviews(nets, tokenizer, _facts(folder / "sedd"), 16 if batch is None else batch, dtype)


def _facts(folder: Path) -> Facts:
    card = read_card(folder)
    missing = [name for name in ("classes", "groups", "withheld") if name not in card]
    if missing:
        raise InvalidInput(
            f"{folder / CARD} does not say what the classes mean: it has no {' and no '.join(missing)}; copy the card "
            "that training left there"
        )
    try:
        classes = tuple(str(name) for name in card["classes"])
        groups = {name: tuple(map(str, members)) for name, members in card["groups"].items()}
        withheld = tuple(int(number) for number in card["withheld"])
    except (TypeError, AttributeError, ValueError, OverflowError) as e:
        raise InvalidInput(
            f"{folder / CARD} does not say what the classes mean ({e}); copy the card that training left there"
        ) from e
    return Facts(classes, groups, withheld)

"""A public masked network whose states are strings: texts, proteins or molecules, with prompts and gaps as strings.

A state holds the open sites of a row, as numbers of the drawable tokens. The frame, a prompt and the text between gaps
are context. If a text is the condition, the base is the same network with that text masked (LLaDA's own definition of
unconditional): p0(x) is then the network's law of the open sites given the frame alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import LONGEST, listed, set_fields, shown, token_rows, whole_number
from ..core.errors import InvalidInput
from ..core.fasta import fasta_text
from ..core.types import Model, Process, Score, Tokens, check_process
from ..diffusion.processes import Masking
from ..viz.logo import SequenceLogo
from ..viz.views import END, TextView, View
from .conditions import PerConditionScore
from .contexts import OPEN, Context, context_of, masked, room
from .families import MOLECULE, PROTEIN, TEXT
from .gaps import has_gaps
from .infilling import Retimed
from .public_net import Public
from .rows_in_context import Framed
from .text_score import TextScore, check_batch

FILES = {TEXT: "txt", PROTEIN: "fasta", MOLECULE: "smi"}  # file endings for each form of string


@dataclass(frozen=True, eq=False)
class Sequences:
    """A public network of sequences with its process; `tt.from_transformers` makes one.

    Args:
        public: The network with its tokenizer and what is known of its family.
        process: The noising process that it is used with.
        batch: Rows evaluated at a time, 1 or more; 16 by default.
        dtype: Number type in which it is evaluated. None (the default): that of its weights.
    """

    public: Public
    process: Process
    batch: int = 16
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.public, Public):
            raise InvalidInput(
                f"public is {shown(self.public)}; tt.from_transformers(net, tokenizer) makes a Sequences"
            )
        check_process(self.process)
        if self.process.vocabulary != self.vocabulary:
            raise InvalidInput(
                f"the process has {self.process.vocabulary} tokens and {self.vocabulary} may be drawn; they must agree"
            )
        set_fields(self, batch=check_batch(self.batch, self.dtype))

    def __repr__(self) -> str:
        public = self.public
        words = f"{public.family.name}, {self.vocabulary:,} tokens may be drawn"
        reads = f"reads {public.length:,}" if public.length < LONGEST else "reads any number"
        frame = f"frame of {len(public.before)} + {len(public.after)}"
        return f"<Sequences: {type(public.net).__name__}; {words}, {frame}, {reads}; on {self.device}>"

    @property
    def form(self) -> str:
        """The form of its strings: text, protein or molecule."""
        return self.public.family.form

    @property
    def vocabulary(self) -> int:
        """Number of drawable tokens."""
        return len(self.public.alphabet)

    @property
    def length(self) -> int:
        """The most open sites that fit into a row."""
        return self.public.inner

    @property
    def device(self) -> torch.device:
        return next(self.public.net.parameters()).device

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token, in order of their numbers."""
        return self.public.alphabet.pieces

    @cached_property
    def view(self) -> View:
        """The view of states for reports and figures: a logo for proteins, else text."""
        alphabet = self.public.alphabet
        mask = self.process.mask if isinstance(self.process, Masking) else None
        if self.form == PROTEIN and all(len(piece) == 1 for piece in self.pieces):
            return SequenceLogo("".join(self.pieces))
        pieces = [END if own in alphabet.ends else p for own, p in zip(alphabet.ids, self.pieces, strict=True)]
        return TextView(pieces.__getitem__, self.vocabulary, mask)

    def fingerprint(self) -> str:
        """A hash of the tokens' texts."""
        return hashlib.sha256("\n".join(self.pieces).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    # ------------------------------------------------------------------------------------------------ models

    def model(
        self,
        prompt: str | Sequence[str] | None = None,
        *,
        length: int | None = None,
        suffix: str = "",
        condition: int | None = None,
    ) -> Model:
        """The model of `length` open sites after a prompt, which is the condition; or of the gaps of a text.

        The base sees the frame, with the prompt masked. Several prompts give each an equal part of the populations. A
        prompt with gaps, [MASK] or [MASK:8], is a whole text whose gaps are the open sites. Without a prompt there is
        no condition; a network with classes takes one as `condition`.
        """
        texts = self._texts(prompt)
        if condition is not None:
            return self._of_class(condition, texts, length, suffix)
        if texts is None:
            return self._modelled([context_of(self.public, "", length, suffix)], None)
        seen = [context_of(self.public, text, length, suffix) for text in texts]
        return self._modelled([masked(self.public, context) for context in seen], seen)

    def given(self, prompt: str | Sequence[str], *, length: int | None = None, suffix: str = "") -> Model:
        """The model whose base sees the text: p0 is the law given it, and there is no condition. For rewards."""
        texts = self._texts(prompt)
        return self._modelled([context_of(self.public, text, length, suffix) for text in texts or [""]], None)

    def room(self, prompt: str | None = None) -> int:
        """Number of open sites that fit after a prompt."""
        return room(self.public, "" if prompt is None else prompt)

    def _modelled(self, base: list[Context], seen: list[Context] | None) -> Model:
        """A model with these contexts for the base and, if there is a condition, for the conditional."""
        framed = Framed(self.public, [*base, *(seen or ())])
        scores = [self._score(framed, range(len(base)))]
        if seen is not None:
            scores.append(self._score(framed, range(len(base), 2 * len(base))))
        conditional = scores[1] if seen is not None else None
        return Model(self.process, framed.config.length, scores[0], conditional, None, self.device)

    def _score(self, framed: Framed, labels: range) -> Score:
        """The Score under one context, or under several that share the populations."""
        first: Any = TextScore(framed, self.process, labels[0], self.batch, self.dtype)
        score = first if len(labels) == 1 else PerConditionScore(first, tuple(labels))
        config, context = getattr(self.public.net, "config", None), framed.contexts[labels[0]]
        reads_noise = self.public.family.noise is not None and getattr(config, "time_conditioning", True)
        around = len(context.row) - len(context.sites)
        if self.public.mask is None or not reads_noise or not around:
            return score
        masks = sum(own == self.public.mask for own in context.row)
        return Retimed(score, len(context.row), len(context.sites), masks)

    def _of_class(self, label: int, texts: list[str] | None, length: int | None, suffix: str) -> Model:
        classes = self.public.classes
        if not classes or texts is not None:
            raise InvalidInput(f"condition is {shown(label)}; this net has {classes or 'no'} classes: give a prompt")
        label = whole_number("condition", label, 0, classes - 1)
        around = context_of(self.public, "", length, suffix)
        return self._modelled([around._replace(label=classes)], [around._replace(label=label)])

    def _texts(self, prompt: str | Sequence[str] | None) -> list[str] | None:
        """The prompts as a list; None for no prompt or an empty one."""
        if prompt is None or (isinstance(prompt, str) and not prompt):
            return None
        texts = [prompt] if isinstance(prompt, str) else listed("the prompt", prompt, "give a text, or a list of texts")
        bad = [text for text in texts if not isinstance(text, str) or not text]
        if bad or not texts:
            raise InvalidInput(f"the prompt is {shown(bad[0] if bad else prompt)}; give a text, or a list of texts")
        return texts

    # ------------------------------------------------------------------------------------------------ strings

    def decode(self, x: Tokens | Sequence[int]) -> Any:
        """The strings of rows [..., D] as a list; the string of a single row, a list of numbers or [D]."""
        x = _tokens(x)
        return self._spelled(self._own(x)) if x.dim() == 1 else [self._spelled(row) for row in self._own(x)]

    def filled(self, text: str, x: Tokens | None = None) -> Any:
        """The whole strings: a prompt, or a text with gaps, with each row [..., D] in its open sites.

        An end token drawn in a gap ends that gap: later tokens of the gap are dropped, and the given text stays.
        """
        if not isinstance(text, str):
            several = "; of several prompts give each with its own rows" if isinstance(text, list | tuple) else ""
            raise InvalidInput(f"the text is {shown(text)}; give one prompt, or a text with gaps{several}")
        x = _tokens(x)
        row = context_of(self.public, text, None if has_gaps(text) else x.shape[-1], "").row
        if row.count(OPEN) != x.shape[-1]:
            raise InvalidInput(f"rows of {x.shape[-1]} tokens for a text with {row.count(OPEN)} open; give as many")
        row = row[len(self.public.before) : len(row) - len(self.public.after)]
        out = [
            self._stripped(self.public.alphabet.spell(self._put(row, own))) for own in self._own(torch.atleast_2d(x))
        ]
        return out if x.dim() > 1 else out[0]

    def _put(self, row: tuple[int | None, ...], drawn: list[int]) -> list[int]:
        """A row with the drawn tokens in its gaps; an end token ends its gap, and the given text stays."""
        out: list[int] = []
        for is_gap, tokens in groupby(row, lambda token: token is OPEN):
            if is_gap:
                size = len(list(tokens))
                out, drawn = out + self.public.alphabet.read(drawn[:size]), drawn[size:]
            else:
                out += [own for own in tokens if own is not None]
        return out

    def rows(self, strings: Sequence[str]) -> Tokens:
        """Rows of tokens [n, D] of strings with equally many tokens; every token must be drawable."""
        if isinstance(strings, str):
            raise InvalidInput("one string came where a list of strings is read; put it in a list")
        alphabet = self.public.alphabet
        found = [alphabet.encode(text) for text in listed("strings", strings, "give a list of strings")]
        odd = [own for row in found for own in row if own not in alphabet.number]
        if odd:
            raise InvalidInput(f"token {odd[0]} of the strings is never drawn by this net; leave it out")
        if len({len(row) for row in found}) > 1:
            raise InvalidInput(
                f"strings of {min(map(len, found))} to {max(map(len, found))} tokens; give equal lengths"
            )
        return torch.tensor([[alphabet.number[own] for own in row] for row in found], device=self.device)

    def fasta(self, x: Tokens) -> str:
        """Proteins [..., D] as the text of a FASTA file."""
        if self.form != PROTEIN:
            raise InvalidInput(f"{self.public.family.name} spells {self.form}s; FASTA is for proteins")
        found = self.decode(x)
        return self.written([found] if isinstance(found, str) else found)[1]

    def written(self, strings: Sequence[str]) -> tuple[str, str]:
        """A file of these strings: its ending (fasta, smi or txt) and its text."""
        strings = [str(string) for string in listed("strings", strings, "give a list of strings")]
        if self.form != PROTEIN:
            return FILES[self.form], "".join(f"{' '.join(string.split())}\n" for string in strings)
        return FILES[self.form], fasta_text((f"sample_{k}", text) for k, text in enumerate(strings, 1))

    def _own(self, x: Tensor) -> Any:
        """The network's own ids of rows [..., D], as lists."""
        if x.numel() and not 0 <= int(x.min()) <= int(x.max()) < self.vocabulary:
            raise InvalidInput(
                f"tokens from {int(x.min())} to {int(x.max())}; finished rows have 0 to {self.vocabulary - 1}"
            )
        flat = x.cpu().reshape(-1, x.shape[-1]) if x.dim() > 1 else x.cpu()
        return torch.tensor(self.public.alphabet.ids)[flat].tolist()

    def _spelled(self, own: list[int]) -> str:
        return self._stripped(self.public.alphabet.decode(own))

    def _stripped(self, text: str) -> str:
        return text.strip() if self.form == TEXT else text


def _tokens(x: Any) -> Tokens:
    """Rows of tokens [..., D], or one row [D], which may be a list."""
    if not isinstance(x, Tensor):
        x = torch.tensor([whole_number("a token", own, 0, 2**31) for own in listed("the row", x, "give tokens")])
    return token_rows(
        "x", x, "strings are read from rows of tokens, an int64 tensor [..., D]; result.particles is such"
    )

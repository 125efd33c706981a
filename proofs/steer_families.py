"""Families of problems for `tt.steer` whose answers are exact: by dynamic programming or enumeration, never by draws.

p0 is a Markov chain (two families: a table). The reward is a function of a finite automaton that reads the sequence, so
log Z, the marginals of the target and the share of any set that the automaton knows are sums over its states. Every
family names a set that is easily missed. The rewards themselves are written as functions of tokens, apart from the
automata; `tests/test_steer_families.py` holds the two against each other on every state of short versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import truetilt as tt

S = torch.tensor([[5.0, 1, 2, 2], [2, 3, 1, 4], [2, 2, 4, 2], [1, 2, 3, 4]])
Tokens = Tensor
Reading = Callable[[Tokens], Tensor]


@dataclass(frozen=True, eq=False)
class Family:
    """A problem, its exact answer, and the set of states that is easily missed, with its shares of pi and of p0.

    `nats(x)` is strength * reward, for a noisy reward the log of its mean exponential.
    """

    name: str
    hard: bool
    length: int
    vocabulary: int
    strength: float
    calls: int
    log_z: float
    marginals: Tensor  # of pi, [D, V]
    hides: str
    missed: Reading
    missed_share: float
    missed_p0: float
    make: Callable[[], tuple[tt.Model, tt.Reward, float]]
    nats: Reading
    log_p0: Reading
    forbids: bool = False

    @property
    def missed_reward(self) -> float:
        """What a state of the set is worth on average, in units of the reward: log of its mean e^(strength r)."""
        if self.missed_share == 0:
            return -math.inf
        return (self.log_z + math.log(self.missed_share) - math.log(self.missed_p0)) / self.strength

    @property
    def variance(self) -> float:
        """Of one draw of pi, summed over the tokens of all sites."""
        return float((self.marginals * (1 - self.marginals)).sum())


class Exact(NamedTuple):
    log_z: float
    marginals: Tensor
    share: float
    p0: float


class Weights(NamedTuple):
    """Of a sequence: initial[x_0], steps[d, x_d, x_(d+1)] and last[x_(D-1)], multiplied."""

    initial: Tensor
    steps: Tensor
    last: Tensor


class Machine(NamedTuple):
    """A finite automaton that reads a sequence: its start, its step (state, token, site), and what it says at the end.

    `nats` of the last state are strength * reward, `missed` is whether the sequence is of the set.
    """

    start: Hashable
    step: Callable[[Any, int, int], Hashable]
    nats: Callable[[Any], float]
    missed: Callable[[Any], bool]


def solved(weights: Weights, length: int, machine: Machine) -> Exact:
    """The exact answer, by a forward and a backward pass over (state of the automaton, last token)."""
    size, layers, ways = len(weights.initial), [[machine.start]], []
    for site in range(length):
        after: dict[Hashable, int] = {}
        way = [[after.setdefault(machine.step(one, v, site), len(after)) for v in range(size)] for one in layers[-1]]
        layers, ways = [*layers, list(after)], [*ways, torch.tensor(way)]
    into, token = [weights.initial[None].clone()], torch.arange(size)
    for site in range(length):  # into[site][q, v]: of being in q before the site, and v at it
        ended = torch.zeros(len(layers[site + 1]) * size, dtype=torch.float64)
        ended.index_add_(0, (ways[site] * size + token).reshape(-1), into[site].reshape(-1))
        ended = ended.reshape(-1, size)
        into += [ended @ weights.steps[site]] if site < length - 1 else [ended * weights.last]
    nats = torch.tensor([machine.nats(one) for one in layers[-1]], dtype=torch.float64)
    hidden = torch.tensor([bool(machine.missed(one)) for one in layers[-1]])
    tilt, ends = (nats - nats.max()).exp(), into.pop().sum(-1)
    total, later, sites = (ends * tilt).sum(), tilt[:, None] * weights.last, []
    for site in reversed(range(length)):
        ahead = later[ways[site], token]
        sites.append((into[site] * ahead).sum(0) / total)
        if site:
            later = ahead @ weights.steps[site - 1].T
    share = float((ends * tilt)[hidden].sum() / total)
    mass = ends.sum()
    return Exact(
        float((total / mass).log() + nats.max()), torch.stack(sites[::-1]), share, float(ends[hidden].sum() / mass)
    )


def straight(law: tt.ChainLaw) -> Weights:
    return Weights(law.initial.double(), law.steps.double(), torch.ones(len(law.initial), dtype=torch.float64))


def folded(law: tt.ChainLaw) -> Weights:
    """The chain read from both ends at once: token a * V + b is a at site i and b at site D - 1 - i."""
    size, half = len(law.initial), law.length // 2
    steps = law.steps.double()
    first = law.initial.double()[:, None].expand(size, size).reshape(-1)
    pairs = [
        torch.einsum("ac,db->abcd", steps[i], steps[law.length - 2 - i]).reshape(size**2, size**2)
        for i in range(half - 1)
    ]
    return Weights(first, torch.stack(pairs), steps[half - 1].reshape(-1))


def unfolded(found: Exact) -> Exact:
    """The marginals of sites from those of pairs."""
    size = math.isqrt(found.marginals.shape[-1])
    both = found.marginals.reshape(-1, size, size)
    return found._replace(marginals=torch.cat([both.sum(-1), both.sum(-2).flip(0)]))


def every_state(length: int, size: int, most: int = 1 << 16) -> Iterator[Tokens]:
    """All sequences, in blocks."""
    powers = size ** torch.arange(length - 1, -1, -1)
    for block in torch.arange(size**length).split(most):
        yield block[:, None] // powers % size


def enumerated(length: int, size: int, log_p0: Reading, nats: Reading, missed: Reading) -> Exact:
    """The exact answer by enumeration."""
    log_p, tilt, hidden, tokens = [], [], [], []
    for x in every_state(length, size):
        log_p, tilt, hidden = [*log_p, log_p0(x).double()], [*tilt, nats(x).double()], [*hidden, missed(x)]
        tokens.append(x)
    log_w = torch.cat(log_p) + torch.cat(tilt)
    pi, p0, hidden = log_w.softmax(0), torch.cat(log_p).softmax(0), torch.cat(hidden)
    sites = torch.zeros(length, size, dtype=torch.float64)
    for x, part in zip(tokens, pi.split([len(x) for x in tokens]), strict=True):
        for site in range(length):
            sites[site].index_add_(0, x[:, site], part)
    log_z = float(log_w.logsumexp(0) - torch.cat(log_p).logsumexp(0))
    return Exact(log_z, sites, float(pi[hidden].sum()), float(p0[hidden].sum()))


# what rewards read


def count(x: Tokens, *tokens: int) -> Tensor:
    return torch.isin(x, torch.tensor(tokens)).sum(-1)


def matches(x: Tokens, word: list[int]) -> Tensor:
    return (x == torch.tensor(word)).sum(-1)


def has(x: Tokens, word: list[int]) -> Tensor:
    return (x.unfold(-1, len(word), 1) == torch.tensor(word)).all(-1).any(-1)


def deepest(x: Tokens, word: list[int]) -> Tensor:
    """The longest beginning of a word that stands anywhere."""
    longest = torch.zeros(len(x), dtype=torch.int64)
    for k in range(1, len(word) + 1):
        longest = torch.where(has(x, word[:k]), k, longest)
    return longest


def longest_run(x: Tokens, token: int = 0) -> Tensor:
    here = best = torch.zeros(len(x), dtype=torch.int64)
    for d in range(x.shape[1]):
        here = (here + 1) * (x[:, d] == token)
        best = torch.maximum(best, here)
    return best


def letters(word: str, alphabet: str = "ACGT") -> list[int]:
    return [alphabet.index(letter) for letter in word]


def border(word: list[int]) -> Callable[[int, int], int]:
    """The step of the automaton of Knuth, Morris and Pratt: the longest beginning of the word that ends here."""

    @cache
    def step(k: int, v: int) -> int:
        seen = [*word[:k], v]
        return next(n for n in range(min(len(seen), len(word)), -1, -1) if seen[len(seen) - n :] == word[:n])

    return step


# the base laws


def dna(length: int) -> tt.ChainLaw:
    """The chain of the issue."""
    return tt.ChainLaw(torch.ones(4), S, torch.zeros(length, 4))


def even(length: int, size: int) -> tt.ChainLaw:
    return tt.ChainLaw(torch.ones(size), torch.ones(size, size), torch.zeros(length, size))


def random_chain(length: int, size: int, seed: int, power: float = 2.0) -> tt.ChainLaw:
    generator = torch.Generator().manual_seed(seed)
    steps = torch.rand(size, size, generator=generator, dtype=torch.float64) ** power + 0.02
    return tt.ChainLaw(torch.ones(size), steps, torch.zeros(length, size))


def chain_model(law: tt.ChainLaw, single: bool = False) -> tt.Model:
    """The law as a model; `single` rounds what its net says to float32."""
    process = tt.Masking(len(law.initial))
    if not single:
        return tt.Model(process, law.length, tt.ChainScore(process, law))

    def net(x: Tokens, t: float) -> Tensor:
        return law.log_alone_given(process, x, t).float()

    return tt.Model(process, law.length, tt.PosteriorScore(process, net))


class TableLaw(NamedTuple):
    """A table of probabilities in place of a chain."""

    table: tt.Table

    @property
    def length(self) -> int:
        return self.table.length

    @property
    def initial(self) -> Tensor:
        return torch.ones(self.table.process.vocabulary)

    def log_prob(self, x: Tokens) -> Tensor:
        return self.table.p0[tuple(x.unbind(-1))].log()

    def model(self) -> tt.Model:
        return tt.Model(self.table.process, self.length, self.table.model().base)


@dataclass
class Problem:
    """What a family is made of. Without a machine its answer is found by enumeration."""

    law: tt.ChainLaw | TableLaw
    reward: Reading  # of a noisy reward the log of its mean exponential
    machine: Machine | None
    missed: Reading
    hides: str  # what `missed` is, in words
    strength: float = 1.0
    calls: int = 2000
    hard: bool = True
    noisy: Reading | None = None  # one reading of a noisy reward
    highest: float | None = None
    single: bool = False  # whether the network says its logits in float32
    fold: bool = False  # whether the machine reads both ends at once
    forbids: bool = False


MAKERS: dict[str, Callable[[], Problem]] = {}


def maker(name: str, *given: Any) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Register what makes a family, with arguments for it."""

    def register(make: Callable[..., Problem]) -> Callable[..., Problem]:
        MAKERS[name] = lambda: make(*given)
        return make

    return register


@cache
def family(name: str) -> Family:
    """A family with its exact answer."""
    return answered(name, MAKERS[name]())


def nats_of(p: Problem) -> Reading:
    return lambda x: p.strength * p.reward(x).double()


def exact(p: Problem) -> Exact:
    """The exact answer of a problem."""
    length = p.law.length
    if p.machine is None:
        return enumerated(length, len(p.law.initial), p.law.log_prob, nats_of(p), p.missed)
    if p.fold:
        return unfolded(solved(folded(p.law), length // 2, p.machine))
    return solved(straight(p.law), length, p.machine)


def answered(name: str, p: Problem) -> Family:
    """A problem with its exact answer."""
    found, length, size = exact(p), p.law.length, len(p.law.initial)

    def make() -> tuple[tt.Model, tt.Reward, float]:
        model = p.law.model() if isinstance(p.law, TableLaw) else chain_model(p.law, p.single)
        reward = tt.Reward(p.noisy or p.reward, vocabulary=size, noisy=p.noisy is not None, highest=p.highest)
        return model, reward, p.strength

    return Family(
        name, p.hard, length, size, p.strength, p.calls, found.log_z, found.marginals, p.hides, p.missed, found.share,
        found.p0, make, nats_of(p), p.law.log_prob, p.forbids,
    )  # fmt: skip


# the families


@maker("rounding", 10)
@maker("rounding-single", 10, True)
def rounding(length: int, single: bool = False) -> Problem:
    """A of the issue: eight of ten letters right, or nothing. Weights differ by rounding alone until one is met."""
    word = [3, 1, 0, 2, 3, 1, 2, 0, 1, 2][:length]
    need = length - 2
    return Problem(
        dna(length), lambda x: 8.0 * (matches(x, word) >= need),
        Machine(0, lambda k, v, d: k + (v == word[d]), lambda k: 8.0 * (k >= need), lambda k: k >= need),
        lambda x: matches(x, word) >= need, f"{need} of {length} letters right", calls=1000, single=single,
    )  # fmt: skip


@maker("rounding-motif", 24, "GATTACAG", 12.0)
@maker("needle-flat", 12, "TGCATG", 7.0)
def flat_needle(length: int, motif: str, height: float) -> Problem:
    """A motif or nothing: no slope leads to it."""
    word = letters(motif)
    step, last = border(word), len(word)
    return Problem(
        dna(length), lambda x: height * has(x, word).double(),
        Machine(0, lambda k, v, _: k if k == last else step(k, v), lambda k: height * (k == last), lambda k: k == last),
        lambda x: has(x, word), f"the motif {motif}", calls=1000,
    )  # fmt: skip


@maker("forgotten-2", 24, "TATAA", 8.3, 2000)
@maker("forgotten-3", 24, "TATAAT", 10.37, 10_000)
@maker("forgotten-4", 24, "GATTACA", 11.3, 10_000)
def forgotten(length: int, motif: str, height: float, calls: int) -> Problem:
    """B of the issue: the count of G and C leads away from a motif that draws of p0 meet, and half of pi has it."""
    word = letters(motif)
    step, last = border(word), len(word)

    def read(state: tuple[int, int], v: int, _: int) -> tuple[int, int]:
        k, gc = state
        return (k if k == last else step(k, v)), gc + (v in (1, 2))

    return Problem(
        dna(length), lambda x: count(x, 1, 2) + height * has(x, word).double(),
        Machine((0, 0), read, lambda s: s[1] + height * (s[0] == last), lambda s: s[0] == last),
        lambda x: has(x, word), f"the motif {motif}", calls=calls,
    )  # fmt: skip


@maker("runs-5", 64, 0.5, 12)
@maker("runs-6", 64, 0.6, 12)
@maker("runs-7", 64, 0.7, 12)
@maker("runs-8", 64, 0.8, 12)
def runs(length: int, strength: float, long: int) -> Problem:
    """C of the issue: the longest run of a token, whose tail is heavy."""

    def read(state: tuple[int, int], v: int, _: int) -> tuple[int, int]:
        here = (state[0] + 1) * (v == 0)
        return here, max(state[1], here)

    return Problem(
        dna(length), longest_run,
        Machine((0, 0), read, lambda s: strength * s[1], lambda s: s[1] >= long),
        lambda x: longest_run(x) >= long, f"a run of {long} or more", strength,
    )  # fmt: skip


@maker("needle-sloping", 10, 1.5, 8.0)
def sloping_needle(length: int, slope: float, height: float) -> Problem:
    """Every right letter helps, and all of them together help more."""
    word = [2, 3, 0, 1, 1, 2, 3, 3, 0, 2, 1, 0][:length]
    return Problem(
        dna(length), lambda x: slope * matches(x, word) + height * (matches(x, word) == length).double(),
        Machine(
            0, lambda k, v, d: k + (v == word[d]), lambda k: slope * k + height * (k == length), lambda k: k == length
        ),
        lambda x: matches(x, word) == length, "all letters right",
    )  # fmt: skip


@maker("plateaus", 16, 4, 6.0)
def plateaus(length: int, wide: int, height: float) -> Problem:
    """Steps: only every fourth right letter is paid."""
    word = [1, 2, 3, 0, 2, 2, 1, 3, 0, 1, 3, 2, 0, 0, 1, 2][:length]
    top = length // wide - 1
    return Problem(
        dna(length), lambda x: height * (matches(x, word) // wide),
        Machine(0, lambda k, v, d: k + (v == word[d]), lambda k: height * (k // wide), lambda k: k // wide >= top),
        lambda x: matches(x, word) // wide >= top, f"{top * wide} of {length} letters right",
    )  # fmt: skip


@maker("mountains", 24, 1.2)
def mountains(length: int, strength: float) -> Problem:
    """Two modes far apart: sequences of G and C, and sequences of A and T."""
    return Problem(
        dna(length), lambda x: torch.maximum(count(x, 1, 2), length - count(x, 1, 2)),
        Machine(
            0, lambda k, v, d: k + (v in (1, 2)), lambda k: strength * max(k, length - k), lambda k: 2 * k < length
        ),
        lambda x: 2 * count(x, 1, 2) < length, "more A and T than G and C", strength,
    )  # fmt: skip


# -inf on all but a share of p0


@maker("forbidden-words", 12, ("GA", "TT"))
def forbidden_words(length: int, words: tuple[str, ...]) -> Problem:
    """Words that must not occur; the state of the automaton is the last letter."""
    bad = [tuple(letters(word)) for word in words]

    def step(state: tuple[int, int], v: int, _: int) -> tuple[int, int]:
        last, gs = state
        return (-1, 0) if last == -1 or (last, v) in bad else (v, gs + (v == 2))

    def reward(x: Tokens) -> Tensor:
        lost = torch.stack([has(x, list(word)) for word in bad]).any(0)
        return torch.where(lost, -torch.inf, count(x, 2).double())

    return Problem(
        dna(length), reward,
        Machine((4, 0), step, lambda s: -math.inf if s[0] == -1 else float(s[1]), lambda s: s[0] >= 0),
        lambda x: reward(x) > -torch.inf, f"no {' and no '.join(words)}", forbids=True,
    )  # fmt: skip


@maker("each-twice", 4, 2, 4000)
def each_twice(size: int, times: int, calls: int) -> Problem:
    """The hard reward of the issue: each token exactly twice."""
    length = size * times

    def fits(x: Tokens) -> Tensor:
        return torch.stack([count(x, v) == times for v in range(size)]).all(0)

    return _permuted(dna(length), times, fits, lambda x, _: count(x, 2), lambda v, d: v == 2, calls)


@maker("permutation-8", 8)
@maker("permutation-10", 10)
def permutation(size: int) -> Problem:
    """Each token once; the more at its own site, the better."""

    def fits(x: Tokens) -> Tensor:
        return (x.sort(-1).values == torch.arange(size)).all(-1)

    own = list(range(size))
    return _permuted(even(size, size), 1, fits, lambda x, _: matches(x, own), lambda v, d: v == d, 3000)


def _permuted(
    law: tt.ChainLaw,
    times: int,
    fits: Reading,
    gain: Callable[..., Tensor],
    good: Callable[[int, int], bool],
    calls: int,
) -> Problem:
    size = len(law.initial)

    def step(state: Any, v: int, d: int) -> Any:
        if state is None or state[0][v] == times:
            return None
        return (*state[0][:v], state[0][v] + 1, *state[0][v + 1 :]), state[1] + good(v, d)

    return Problem(
        law, lambda x: torch.where(fits(x), gain(x, None).double(), -torch.inf),
        Machine(((0,) * size, 0), step, lambda s: -math.inf if s is None else float(s[1]), lambda s: s is not None),
        fits, f"each token exactly {times} time{'s' * (times > 1)}", calls=calls, forbids=True,
    )  # fmt: skip


@maker("brackets", 16)
def brackets(length: int) -> Problem:
    """A is "(", C is ")", the others are dots: brackets must close. The deeper, the better."""

    def heights(x: Tokens) -> Tensor:
        return ((x == 0).long() - (x == 1).long()).cumsum(-1)

    def fits(x: Tokens) -> Tensor:
        return (heights(x) >= 0).all(-1) & (heights(x)[:, -1] == 0)

    def step(state: Any, v: int, _: int) -> Any:
        if state is None:
            return None
        here = state[0] + (v == 0) - (v == 1)
        return None if here < 0 else (here, max(state[1], here))

    return Problem(
        dna(length), lambda x: torch.where(fits(x), heights(x).amax(-1).clamp(min=0).double(), -torch.inf),
        Machine((0, 0), step, lambda s: float(s[1]) if s and s[0] == 0 else -math.inf, lambda s: bool(s) and s[0] == 0),
        fits, "brackets that close", calls=2000, forbids=True,
    )  # fmt: skip


@maker("hairpin", 24, 5)
def hairpin(length: int, need: int) -> Problem:
    """The outer letters must pair (A with T, C with G), from both ends inwards."""
    pairs = {(0, 3), (3, 0), (1, 2), (2, 1)}

    def fits(x: Tokens) -> Tensor:
        return (x[:, :need] + x.flip(-1)[:, :need] == 3).all(-1)

    def step(state: Any, v: int, d: int) -> Any:
        a, b = divmod(v, 4)
        if state is None or (d < need and (a, b) not in pairs):
            return None
        return state + (a in (1, 2)) + (b in (1, 2))

    return Problem(
        dna(length), lambda x: torch.where(fits(x), 0.5 * count(x, 1, 2), -torch.inf),
        Machine(0, step, lambda s: -math.inf if s is None else 0.5 * s, lambda s: s is not None),
        fits, f"{need} outer pairs", calls=2000, fold=True, forbids=True,
    )  # fmt: skip


@maker("must-have", 24, "GATTACA")
def must_have(length: int, motif: str) -> Problem:
    """A motif that must occur, and a count of G and C: no slope leads to it."""
    base, word = forgotten(length, motif, 0.0, 3000), letters(motif)
    machine = base.machine._replace(nats=lambda s: float(s[1]) if s[0] == len(word) else -math.inf)
    return Problem(
        base.law, lambda x: torch.where(has(x, word), count(x, 1, 2).double(), -torch.inf), machine, base.missed,
        f"the motif {motif}", calls=3000, forbids=True,
    )  # fmt: skip


@maker("parity", 16, 4, 3.0)
@maker("parity-all", 20, 1, 5.0)
def parity(length: int, blocks: int, height: float) -> Problem:
    """The number of G in each block must be even: no token and no pair tells anything."""
    wide = length // blocks

    def even_blocks(x: Tokens) -> Tensor:
        return ((x == 2).reshape(len(x), blocks, wide).sum(-1) % 2 == 0).sum(-1)

    def step(state: tuple[int, int], v: int, d: int) -> tuple[int, int]:
        odd = (state[0] + (v == 2)) % 2
        return (0, state[1] + (odd == 0)) if (d + 1) % wide == 0 else (odd, state[1])

    return Problem(
        dna(length), lambda x: height * even_blocks(x).double(),
        Machine((0, 0), step, lambda s: height * s[1], lambda s: s[1] == blocks),
        lambda x: even_blocks(x) == blocks, "all blocks even",
    )  # fmt: skip


@maker("pairs", 16, 1.5)
@maker("pairs-strong", 24, 2.5)
def distant_pairs(length: int, strength: float) -> Problem:
    """Site i must match site D - 1 - i."""
    need = length // 2 - 2

    def paired(x: Tokens) -> Tensor:
        return (x == x.flip(-1)).sum(-1) // 2

    return Problem(
        dna(length), paired,
        Machine(0, lambda k, v, d: k + (v // 4 == v % 4), lambda k: strength * k, lambda k: k >= need),
        lambda x: paired(x) >= need, f"{need} pairs or more", strength, fold=True,
    )  # fmt: skip


@maker("noisy", 12, 0.6, 0.25)
@maker("noisy-strong", 16, 1.5, 0.4)
def noisy(length: int, strength: float, error: float) -> Problem:
    """The count of G and C, measured with an error that grows with the count of A."""

    def sigma(x: Tokens) -> Tensor:
        return error * (1 + count(x, 0)).double().sqrt()

    def step(state: tuple[int, int], v: int, _: int) -> tuple[int, int]:
        return state[0] + (v in (1, 2)), state[1] + (v == 0)

    def nats(s: tuple[int, int]) -> float:
        return strength * s[0] + strength**2 / 2 * error**2 * (1 + s[1])

    return Problem(
        dna(length), lambda x: count(x, 1, 2) + strength / 2 * sigma(x) ** 2,
        Machine((0, 0), step, nats, lambda s: s[0] > 2 * length // 3),
        lambda x: count(x, 1, 2) > 2 * length // 3, "many G and C", strength,
        noisy=lambda x: count(x, 1, 2) + sigma(x) * torch.randn(len(x), dtype=torch.float64),
    )  # fmt: skip


@maker("noisy-needle", 12, "TGCAT", 6.0)
def noisy_needle(length: int, motif: str, height: float) -> Problem:
    """A motif that is seen half of the time."""
    flat, word = flat_needle(length, motif, height), letters(motif)
    mean = math.log((1 + math.exp(height)) / 2)
    machine = flat.machine._replace(nats=lambda k: mean * (k == len(word)))
    return Problem(
        flat.law, lambda x: mean * has(x, word).double(), machine, flat.missed, flat.hides, calls=1000,
        noisy=lambda x: height * has(x, word).double() * (torch.rand(len(x)) < 0.5),
    )  # fmt: skip


# easy ones


def counting(
    law: tt.ChainLaw, points: Tensor, strength: float, above: float, hides: str, calls: int, **more: Any
) -> Problem:
    """A reward that adds the points [D, V] of every token; the set that is missed has more than `above`."""
    table = points.double()

    def reward(x: Tokens) -> Tensor:
        return table[torch.arange(len(table)), x].sum(-1)

    given = more.pop("of", reward)
    scale = [[round(1000 * float(p)) for p in row] for row in table]
    value = more.pop("value", lambda p: p)
    return Problem(
        law, given,
        Machine(0, lambda k, v, d: k + scale[d][v], lambda k: strength * value(k / 1000), lambda k: k > 1000 * above),
        lambda x: reward(x) > above, hides, strength, calls, hard=False, **more,
    )  # fmt: skip


GC = torch.tensor([0.0, 1, 1, 0])


@maker("gc", 24, 3.0, None, False)
@maker("gc-highest", 24, 3.0, 24, False)
@maker("gc-single", 24, 1.0, None, True)
def gc(length: int, strength: float, highest: float | None, single: bool) -> Problem:
    """The README's: the count of G and C."""
    above = length - 2 if strength > 2 else 3 * length // 4
    return counting(
        dna(length), GC.expand(length, 4), strength, above, f"more than {above} of G and C", 2000, highest=highest,
        single=single,
    )  # fmt: skip


@maker("gc-few", 24, -1.5, 3)
def few_gc(length: int, strength: float, least: int) -> Problem:
    """The same with a negative strength: few of them."""
    return Problem(
        dna(length), lambda x: count(x, 1, 2),
        Machine(0, lambda k, v, _: k + (v in (1, 2)), lambda k: strength * k, lambda k: k < least),
        lambda x: count(x, 1, 2) < least, f"fewer than {least} of G and C", strength, hard=False,
    )  # fmt: skip


@maker("gc-floor", 24)
def gc_floor(length: int) -> Problem:
    """3 * max(GC, 10): a share of p0 lies far above the answer's residuals, and carries nothing of Z."""
    return counting(
        dna(length), GC.expand(length, 4), 3.0, 22.0, "more than 22 of G and C", 2000,
        of=lambda x: count(x, 1, 2).clamp(min=10), value=lambda k: max(k, 10.0),
    )  # fmt: skip


@maker("linear", 16, 6, 1)
@maker("linear-long", 48, 4, 2)
@maker("linear-acids", 20, 20, 3)
def linear(length: int, size: int, seed: int) -> Problem:
    """Points for every token at every site, in halves."""
    points = torch.randint(-2, 3, (length, size), generator=torch.Generator().manual_seed(seed)) / 2
    best = float(points.amax(-1).sum())
    return counting(random_chain(length, size, seed), points, 1.0, round(0.6 * best, 1), "most of the points", 2000)


@maker("matrix", 12)
def position_weights(length: int) -> Problem:
    """A position weight matrix: log-odds of eight sites."""
    generator = torch.Generator().manual_seed(5)
    weights = torch.rand(length, 4, generator=generator, dtype=torch.float64) ** 3 + 0.03
    odds = (4 * weights / weights.sum(-1, keepdim=True)).log().mul(10).round() / 10
    odds[:2], odds[-2:] = 0, 0
    return counting(dna(length), odds, 1.0, 6.0, "log-odds above 6", 1500)


@maker("motif-sloping", 16, "TATAAT", 0.8)
def sloping_motif(length: int, motif: str, strength: float) -> Problem:
    """How much of the beginning of a motif stands anywhere."""
    word = letters(motif)
    step, last = border(word), len(word)

    def read(state: tuple[int, int], v: int, _: int) -> tuple[int, int]:
        k = step(state[0], v)
        return k, max(state[1], k)

    return Problem(
        dna(length), lambda x: deepest(x, word),
        Machine((0, 0), read, lambda s: strength * s[1], lambda s: s[1] == last),
        lambda x: has(x, word), f"the motif {motif}", strength, hard=False,
    )  # fmt: skip


@maker("neighbours", 20, 0.7)
def neighbours(length: int, strength: float) -> Problem:
    """How many letters equal the letter before."""

    def alike(x: Tokens) -> Tensor:
        return (x[:, 1:] == x[:, :-1]).sum(-1)

    many = 3 * length // 4
    return Problem(
        dna(length), alike,
        Machine((4, 0), lambda s, v, _: (v, s[1] + (v == s[0])), lambda s: strength * s[1], lambda s: s[1] >= many),
        lambda x: alike(x) >= many, f"{many} or more alike", strength, hard=False,
    )  # fmt: skip


@maker("table", 3, 4, 1.0, 1.5, False)
@maker("table-peaked", 4, 4, 4.0, 2.0, False)
def small_table(size: int, length: int, power: float, strength: float, hard: bool) -> Problem:
    """A table of random probabilities and random rewards: no chain."""
    generator = torch.Generator().manual_seed(17 + size)
    shape = (size,) * length
    p0 = torch.rand(shape, generator=generator, dtype=torch.float64) ** power
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    top = float(values.flatten().sort().values[-5])
    law = TableLaw(tt.Table(tt.Masking(size), p0, torch.ones(shape)))

    def reward(x: Tokens) -> Tensor:
        return values[tuple(x.unbind(-1))]

    return Problem(law, reward, None, lambda x: reward(x) >= top, "the five best states", strength, 1000, hard)


# problems that forbid most states, one for each seed


def forbidding(seed: int) -> Family:
    """A random problem with -inf on all but a share of p0, about 1e-1 to 1e-4: of one of four kinds."""
    rng = torch.Generator().manual_seed(seed)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=rng))

    def real(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=rng))

    length, size = whole(6, 33), whole(2, 7)
    law, paid = random_chain(length, size, seed, real(1, 3)), whole(0, size)
    slope, share = real(0.2, 1.0), 10 ** real(-4, -1)
    word = torch.randint(0, size, (length,), generator=rng).tolist()
    kinds = (_enough_of, _must_contain, _must_begin, _must_avoid)
    rules = [
        _paid(law, *kinds[kind % 4](size, word, much), paid, slope)
        for kind in range(seed, seed + 2)
        for much in range(1, length + 1)
    ]
    p = _nearest(rules[:length], share) or _nearest(rules[length:], share) or rules[0]
    p.strength, p.calls = real(0.3, 2.0), (200, 600, 1500, 3000)[whole(0, 4)]
    p.machine = p.machine._replace(nats=lambda s, nats=p.machine.nats: p.strength * nats(s))
    return answered(f"forbidding {seed}", p)


def _nearest(rules: list[Problem], share: float) -> Problem | None:
    """The rule that allows a share of p0 nearest to this one; None where none is within a factor of ten."""
    far, best = math.log(10.0), None
    for rule in rules:  # each stricter than the one before
        here = exact(rule).p0
        if here > 0 and abs(math.log(here / share)) < far:
            far, best = abs(math.log(here / share)), rule
        if here < share:
            break
    return best


Rule = tuple[Reading, Hashable, Callable[[Any, int, int], Any], Callable[[Any], bool], str]


def _paid(
    law: tt.ChainLaw, fits: Reading, start: Any, step: Any, ends: Any, words: str, paid: int, slope: float
) -> Problem:
    """A rule of what is allowed, with points for a token."""

    def read(state: tuple[Any, int], v: int, d: int) -> tuple[Any, int]:
        return step(state[0], v, d), state[1] + (v == paid)

    return Problem(
        law, lambda x: torch.where(fits(x), slope * count(x, paid).double(), -torch.inf),
        Machine((start, 0), read, lambda s: slope * s[1] if ends(s[0]) else -math.inf, lambda s: ends(s[0])),
        fits, words, forbids=True,
    )  # fmt: skip


def _enough_of(size: int, word: list[int], much: int) -> Rule:
    token = word[0]
    return (
        lambda x: count(x, token) >= much, 0, lambda k, v, _: min(k + (v == token), much), lambda k: k == much,
        f"{much} or more of {token}",
    )  # fmt: skip


def _must_contain(size: int, word: list[int], much: int) -> Rule:
    need = word[:much]
    step = border(need)
    return (
        lambda x: has(x, need), 0, lambda k, v, _: k if k == much else step(k, v), lambda k: k == much,
        f"{need} somewhere",
    )  # fmt: skip


def _must_begin(size: int, word: list[int], much: int) -> Rule:
    need = word[:much]
    return (
        lambda x: matches(x[:, :much], need) == much, True, lambda k, v, d: k and (d >= much or v == need[d]),
        lambda k: k, f"{need} at the start",
    )  # fmt: skip


def _must_avoid(size: int, word: list[int], much: int) -> Rule:
    """Pairs of neighbours, in the order of the word; at most all but one, so that something is left."""
    pairs = list(dict.fromkeys((a, b) for a in word for b in word if a != b or size > 2))[:much]
    lost = torch.zeros(size, size, dtype=torch.bool)
    for a, b in pairs:
        lost[a, b] = True

    def step(last: int, v: int, _: int) -> int:
        return -2 if last == -2 or (last >= 0 and (last, v) in pairs) else v

    return (
        lambda x: ~lost[x[:, :-1], x[:, 1:]].any(-1), -1, step, lambda k: k != -2, f"none of {len(pairs)} pairs"
    )  # fmt: skip


# RNA


MANY = 1 << 14  # sequences that are looked up in place of being folded


def folding() -> Any:
    """The module of ViennaRNA, or None: it is an extra of `make prove`."""
    try:
        import RNA
    except ImportError:
        return None
    return RNA


def energies(length: int, kept: Path = Path("runs/steer_trust")) -> Tensor:
    """-(minimum free energy) of every RNA of this length in kcal/mol, float64 [4^length]; computed once."""
    rna = folding()
    path = kept / f"rna-{length}-{rna.__version__}.safetensors"
    if path.exists():
        return load_file(path)["energies"].double()
    found = [-rna.fold("".join("ACGU"[v] for v in x))[1] for block in every_state(length, 4) for x in block.tolist()]
    kept.mkdir(parents=True, exist_ok=True)
    save_file({"energies": torch.tensor(found)}, path)
    return torch.tensor(found).double()


def rna(length: int, strength: float, stable: float) -> Problem:
    """RNA folded by ViennaRNA, each row anew where `tt.steer` asks; few sequences fold at all."""
    module, powers = folding(), 4 ** torch.arange(length - 1, -1, -1)
    table = energies(length)

    def fold(x: Tokens) -> Tensor:
        if len(x) > MANY:  # the whole space, in an enumeration
            return table[(x * powers).sum(-1)]
        return torch.tensor([-module.fold("".join("ACGU"[v] for v in row))[1] for row in x.tolist()])

    return Problem(
        dna(length), fold, None, lambda x: table[(x * powers).sum(-1)] >= stable, f"{stable:g} kcal/mol or more",
        strength,
    )  # fmt: skip


if folding() is not None:
    maker("rna", 10, 2.5, 2.0)(rna)

"""A target of several parts on the any-order clock: p0(x)^gamma prod_k p(zeta_k|x)^alpha_k exp(lambda r(x)).

Partly masked states are weighed by a twist h, clean states by the reward r itself: every finite h leads to the same
target, and a better one needs fewer particles.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from ..core.arguments import ABOVE_ZERO, LARGEST, bounded, function, listed, set_fields, whole_number
from ..core.errors import InvalidInput
from ..core.target import Constant, Remedies, Target, steered, tempered
from ..core.twists import Learned
from ..core.types import Model, Potential, Score, check_model
from ..diffusion.processes import Masking
from .advice import annealing, better_twist, listed_ways, named_twist
from .any_order import RevealClock, SiteChoice, uniform_sites
from .on_clock import FULL, Ramp, check_ramp
from .potentials import as_potential, check_fits, most_log_ratio, most_reward
from .stage import Stage

_FINITE = f"give a finite number, at most {LARGEST:.0e}"
_PAIRS = "give pairs of a conditional score and its exponent, such as [(model.conditional, 2.0)]"


@dataclass(frozen=True)
class Composed(RevealClock):
    """$pi ~ p0(x)^sharpness prod_k p(zeta_k|x)^alpha_k exp(strength * reward(x))$, revealed site by site.

    Args:
        model: A `tt.Model` on `tt.Masking`; its base score is used, and the scores named in `conditions`.
        sharpness: Exponent $gamma$ of the base, above 0; 1 by default. More than 1 is what a low temperature aims at.
        conditions: Pairs (conditional score, exponent $alpha_k$), any number of them; none by default. A negative
            exponent avoids the condition.
        reward: Function of finished states [B, D] (or of them and a time) that returns one number a state: `tt.Reward`
            or your own; -inf forbids. None (the default): no reward.
        strength: Factor $lambda$ of the reward, -1e9 to 1e9; 1 by default.
        twist: Function (x, t) of partly masked states, what they are worth in units of the reward: from
            `tt.learn_twist`, `tt.Lookahead`, or the reward itself where it understands masks. It is finite: -inf rules
            out all that the state may become. None (the default): the reward is seen at the end only.
        candidates: Tokens of a site that the twist is asked about, the base's most likely ones; the others count as if
            the twist did not change, and are corrected when drawn. None (the default): all tokens.
        order: The order in which sites are revealed, a permutation of 0 .. D - 1. None (the default): random. p0 is the
            law that the network draws in this order; if its conditionals disagree, another order is another p0.
        ramp: How the exponents grow with elapsed time, from sharpness 1, exponents of conditions within 0 to 1 and no
            reward; in full force from the start by default.
        choose: Which site comes next, `tt.uniform_sites` (the default) or `tt.adapted_sites`.
    """

    how: ClassVar[str] = "reveals sites as a twist says, weighs before it draws"
    model: Model
    sharpness: float = field(default=1.0, kw_only=True)
    conditions: Sequence[tuple[Score, float]] = field(default=(), kw_only=True)
    reward: Potential | None = field(default=None, kw_only=True)
    strength: float = field(default=1.0, kw_only=True)
    twist: Potential | None = field(default=None, kw_only=True)
    candidates: int | None = field(default=None, kw_only=True)
    order: tuple[int, ...] | None = field(default=None, kw_only=True)
    ramp: Ramp = field(default=FULL, kw_only=True)
    choose: SiteChoice = field(default=uniform_sites, kw_only=True)

    def __post_init__(self) -> None:
        check_model(self.model)
        set_fields(self, sharpness=check_sharpness(self.sharpness), conditions=_pairs(self.conditions))
        set_fields(self, strength=bounded("the reward's strength", self.strength, _FINITE))
        same = self.twist is self.reward
        if self.reward is not None:
            set_fields(self, reward=as_potential("the reward", self.reward))
        if self.twist is not None:
            set_fields(self, twist=self.reward if same else as_potential("the twist", self.twist))
        if self.twist is not None and self.reward is None:
            raise InvalidInput("a twist says what states on the way to a reward are worth; give the reward too")
        if self.candidates is not None and self.twist is None:
            raise InvalidInput(
                "candidates are tokens that a twist is asked about, and there is none; give the twist too"
            )
        if self.candidates is not None:
            set_fields(self, candidates=whole_number("candidates", self.candidates, 1, self.model.process.vocabulary))
        check_ramp(self.ramp)
        if not isinstance(self.model.process, Masking):
            raise InvalidInput(
                f"Composed reveals masked sites, and {type(self.model.process).__name__} has no mask; for a reward use "
                "tt.Steered, for a condition tt.Tilted"
            )
        self.check_clock()
        for potential in (self.reward, self.twist):
            check_fits(potential, self.model.length, self.model.process.vocabulary)
        self._check_learned()

    def _check_learned(self) -> None:
        """Warn of a learned twist that was made for another order or strength: the target is the same, the weights vary
        more.
        """
        if not isinstance(self.twist, Learned):
            return
        twist = self.twist
        for name, theirs, mine in (("order", twist.order, self.order), ("strength", twist.strength, self.strength)):
            if theirs != mine:
                warnings.warn(
                    f"the twist was learned for {name} {theirs} and the run has {mine}; the target stays the same, but "
                    f"the twist helps less: give both the same {name}",
                    stacklevel=4,
                )

    @property
    def scores(self) -> Mapping[str, Score | None]:
        named = {f"condition {k}": score for k, (score, _) in enumerate(self.conditions, start=1)}
        return {"base": self.model.base, **named}

    @property
    def fewest(self) -> int | None:
        return self.candidates

    @property
    def alphas(self) -> tuple[float, ...]:
        """The exponents of the conditions."""
        return tuple(alpha for _, alpha in self.conditions)

    @property
    def factor(self) -> float:
        """The factor of the reward; 0 without one."""
        return 0.0 if self.reward is None else self.strength

    def stage(self, t: float) -> Stage:
        """The exponents in force at time t; the value of a state is the twist's, at the end of the run the reward's."""
        return self._stage(t, self.reward if t == 0 else self.twist)

    def guide(self, ends: Stage) -> Stage:
        return self._stage(ends.t, self.twist)

    def _stage(self, t: float, potential: Potential | None) -> Stage:
        share = self.ramp(1 - t)
        low = [min(max(alpha, 0.0), 1.0) for alpha in self.alphas]  # exponents within 0 to 1 apply from the start
        alphas = tuple(a + share * (b - a) if share != 1 else b for a, b in zip(low, self.alphas, strict=True))
        sharpness = 1 + share * (self.sharpness - 1) if share != 1 else self.sharpness
        factor = share * self.factor if potential is not None else 0.0
        return Stage(t, sharpness, alphas, (potential,), (factor,))

    @property
    def most_log_weight(self) -> float | None:
        """The largest log-weight, where it is known: for a bounded reward without conditions, or the model's own
        condition without a reward.
        """
        if self.sharpness != 1 or (self.conditions and self.factor):
            return None
        if not self.conditions:
            return most_reward(self.reward, self.factor, self.model.potential)
        own = len(self.conditions) == 1 and self.conditions[0][0] is self.model.conditional
        return most_log_ratio(self.alphas[0], self.model.log_p_condition) if own else None

    @property
    def remedies(self) -> Remedies:
        parts = {"strength": bool(self.factor), "exponent": bool(self.conditions) or self.sharpness != 1}
        lower = f"a smaller {' or '.join(name for name, there in parts.items() if there) or 'exponent'}"
        twist = better_twist(self.twist) if self.factor else ""
        weigh = listed_ways(twist, annealing("fk", self.model.length))
        return Remedies(lower, weigh, "moves (tt.Gibbs)", "", named_twist(self.twist))

    @property
    def target(self) -> Target:
        way = {"weights": "composed", "ramp": self.ramp, "twist": self.twist}
        if self.sharpness == 1 and not self.conditions and self.reward is not None:
            return steered(self.model, self.reward, self.strength, **way)
        own = [score for score, _ in self.conditions] == [self.model.conditional]
        if self.sharpness == 1 and self.reward is None and own:
            return tempered(self.model, *self.alphas, *self.alphas, **way)
        law: dict[str, Any] = {"law": "p0(x)^sharpness prod_k p(zeta_k|x)^alpha_k exp(strength * reward(x))"}
        law |= {"sharpness": self.sharpness, "alphas": self.alphas, "strength": self.factor, "reward": self.reward}
        parts = {"process": self.model.process, "length": self.model.length, "base": self.model.base}
        scores = {"scores": tuple(score for score, _ in self.conditions)}
        return Target(law | parts | scores, way, Constant("log sum of " + self._words()), self._words())

    def _words(self) -> str:
        base = "p0(x)" if self.sharpness == 1 else f"p0(x)^{self.sharpness:g}"
        given = [f"(p(zeta_{k}|x)/p(zeta_{k}))^{alpha:g}" for k, alpha in enumerate(self.alphas, start=1)]
        return " ".join([base, *given, *([f"exp({self.factor:g} reward(x))"] if self.factor else [])])


def check_sharpness(sharpness: object) -> float:
    """The base's exponent as a plain number above 0."""
    need = f"it must be above 0 (1 is the base itself), and at most {LARGEST:.0e}"
    return bounded("sharpness", sharpness, need, ABOVE_ZERO)


def _pairs(conditions: object) -> tuple[tuple[Score, float], ...]:
    found = []
    for pair in listed("conditions", conditions, _PAIRS):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidInput(f"one of the conditions is a {type(pair).__name__}; {_PAIRS}")
        function("the score of a condition", pair[0], "(x, t)")
        found.append((cast("Score", pair[0]), bounded("the exponent of a condition", pair[1], _FINITE)))
    return tuple(found)

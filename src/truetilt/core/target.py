"""What a run aims at, as a value that can be compared: the law at the end of time, and the laws on the way there.

Moves leave a target invariant, which must be that of the run: the final law for moves at the end, and for earlier moves
the intermediate law too, which depends on the ramp. Only parts that both targets name are compared. A target weighted
by score ratios has no potential, one weighted by a potential may have no base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .arguments import set_fields, shown
from .errors import InvalidInput
from .fingerprints import alike

_SHORT = 48  # characters of a part that are told as they are
_AT_END = "at the end only"
_SIDES = ("process", "length", "dimension", "base", "conditional", "potential")  # of a model, as a target names them


class Constant(NamedTuple):
    """Which normalising constant log Z estimates: the sum named here, less `share` times $log p(zeta)$.

    Args:
        words: The constant in words, "log sum of p0(x) exp(reward(x))".
        share: How many times $log p(zeta)$ is subtracted. None (the default): the sum has no $p(zeta)$ in it.
    """

    words: str
    share: float | None = None


class Remedies(NamedTuple):
    """Advice for a run of this kind whose weights are bad, in words; a field is empty where there is no advice.

    Each names a thing to call that the run does not use yet.
    """

    lower: str = ""  # a smaller exponent or strength
    weigh: str = ""  # another way to weigh or to propose
    move: str = ""  # moves that fit the target
    steps: str = "smaller steps"  # a finer grid, where that is possible
    twist: str = ""  # the run's twist, which the reward replaces at the last step, if it has one
    particles: str = "more particles in each population"
    populations: str = "more populations"
    resample: str = "resampling on the way (leave resample out)"  # for a run that never resamples


UNKNOWN = Remedies()  # of a value that gives no advice


@dataclass(frozen=True)
class Target:
    """The parts of a target by name: of the final law, and of what the weights mean at earlier times.

    A run compares its target with that of its moves, part by part, and refuses moves whose parts differ. A value on
    `OnClock`, and a move with a field `fk`, need not name the model or the tilt: where no part of the model is named
    here, and where `way` is empty, those of the value are added.

    Args:
        final: What defines the law at $t = 0$, by name: the law itself in words, exponents, rewards, and the model,
            `{"law": "p0 p(zeta|x)^alpha", "alpha": 2.0, "model": model}`. Empty by default: nothing is compared.
        way: What defines the intermediate laws at $t > 0$, on which moves between the steps depend: a ramp, a twist, a
            tilt. Empty (the default): nothing but the final law and the time.
        constant: Which normalising constant log Z estimates, in words or as a `Constant`; `Result.log_z_words` says it.
            None (the default): not named.
        formula: The final law as a reader of a report sees it; empty by default.
    """

    final: Mapping[str, Any] = field(default_factory=dict)
    way: Mapping[str, Any] = field(default_factory=dict)
    constant: Constant | str | None = None
    formula: str = ""

    def __post_init__(self) -> None:
        for name, part in {"final": self.final, "way": self.way}.items():
            if not isinstance(part, Mapping):
                need = 'give its parts by name, such as {"law": "p0 e^r", "model": model, "reward": reward}'
                raise InvalidInput(f"`{name}` of a target is {shown(part)}; {need}")
        if isinstance(self.constant, str):
            set_fields(self, constant=Constant(self.constant))

    def differences(self, other: Target, on_the_way: bool) -> list[str]:
        """What differs, in words: "alpha (2.0 and 4.0)"; nothing where the other is the same target."""
        if not self.final or not other.final:  # without weights: on the way to any target
            return []
        found = _differing("law", self.final, other.final)
        return found + (_differing("way", self.way, other.way) if on_the_way else [])

    def at_end_only(self) -> Target:
        """The same final law for moves that are right at $t = 0$ alone: a run refuses to make them earlier."""
        return Target(self.final, dict.fromkeys(self.way or ("times",), _AT_END), self.constant, self.formula)

    @property
    def ends_only(self) -> bool:
        """Whether it is that of moves that are right at $t = 0$ alone."""
        return any(isinstance(part, str) and part == _AT_END for part in self.way.values())

    def completed(self, model: Any, tilt: Any = None) -> Target:
        """The same with the model and the tilt of the value whose target it is, where it names neither."""
        if not self.final:
            return self
        final = self.final if self.final.keys() & {"model", *_SIDES} else {**self.final, **_sides(model)}
        way = {"tilt": tilt} if not self.way and tilt is not None else self.way
        return replace(self, final=final, way=way)


# The target of a run without weights: moves towards any target may follow it.
NO_WEIGHTS = Target(formula="none: the proposal as it is, every particle counted alike")


def tempered(model: Any, alpha: float, share: float, **way: Any) -> Target:
    """p0(x) p(zeta|x)^alpha of a model, whichever of its functions the weights are made of.

    The estimate of log Z is the log of its sum less `share` times log p(zeta): alpha times where weights are ratios
    p(zeta|x) / p(zeta), once where particles come from p(x|zeta), never where they come from p0.
    """
    less = "" if share == 0 else " - log p(zeta)" if share == 1 else f" - {share:g} log p(zeta)"
    constant = Constant(f"log sum of p0(x) p(zeta|x)^{alpha:g}{less}", share)
    final = {"law": "p0(x) p(zeta|x)^alpha", "alpha": alpha, **_sides(model)}
    return Target(final, way, constant, f"p₀(x) · p(ζ | x)^α, α = {alpha:g}")


def steered(model: Any, reward: Any, strength: float, **way: Any) -> Target:
    """p0(x) exp(strength * reward(x)); with the model's own potential as the reward, the tempered target."""
    if reward is model.potential:
        return tempered(model, strength, 0.0, **way)
    given = {"strength": strength, "reward": reward, **_sides(model)}
    constant = Constant(f"log of the mean of exp({strength:g} reward(x)) under p0")
    final = {"law": "p0(x) exp(strength * reward(x))", **given}
    return Target(final, way, constant, f"p₀(x) · exp(λ · reward(x)), λ = {strength:g}")


def _sides(model: Any) -> dict[str, Any]:
    """The process and the functions of a model of tokens or of real vectors, those that it has."""
    return {name: part for name in _SIDES if (part := getattr(model, name, None)) is not None}


def _differing(kind: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The parts that both name and that differ; with no part in common, all of them."""
    if (mine or theirs) and not mine.keys() & theirs.keys():
        sides = " and ".join(", ".join(side) or "nothing" for side in (mine, theirs))
        return [f"every part of the {kind} (they name {sides})"]
    return [f"{name} ({_told(mine[name], theirs[name])})" for name in mine if _unlike(name, mine, theirs)]


def _unlike(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return name in theirs and not alike(mine[name], theirs[name])


def _told(mine: Any, theirs: Any) -> str:
    """Two parts that differ, in a few words."""
    words = [_short(part) for part in (mine, theirs)]
    return " and ".join(words) if words[0] != words[1] else f"two different ones, each called {words[0]}"


def _short(part: Any) -> str:
    if len(repr(part)) <= _SHORT and " at 0x" not in repr(part):
        return part if isinstance(part, str) else repr(part)
    return getattr(part, "__name__", None) or type(part).__name__

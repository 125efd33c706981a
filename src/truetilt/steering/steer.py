"""`steer`: weighted samples of a target within a budget, in one call that chooses the method."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch

from ..core.arguments import function, listed, path_of, plain, shown, whole_number
from ..core.binding import conditions_of
from ..core.budget import Budget
from ..core.errors import InvalidInput
from ..core.evaluation import value_of
from ..core.fingerprints import fingerprint
from ..core.parameter_names import spelled
from ..core.spent import Spent
from ..core.target import tempered
from ..core.types import NEG_INF, Model, Potential, check_model
from ..diffusion.grids import MOST_STEPS
from ..diffusion.processes import Masking
from ..result import Result
from ..rewards.calls import Rewarding, check_reward_of
from ..rewards.reward import Reward
from ..runtime.settings import runs_of
from ..smc.sampler import check_seed
from ..targets.potentials import check_alpha, check_conditional
from .account import Account
from .candidates import ways_of
from .choose import chosen
from .evidence import evidence_of, led_by
from .findings import findings, record, remedies
from .gain import gain
from .problem import SteerProblem
from .progress import stages
from .stage_folder import WHOSE, StageFolder
from .stages import BudgetProgress, Work
from .trials import Tried

DRAWS = 4_000  # the default budget is the cost of this many base draws
PER_CALL = 20  # base draws per call, if only calls are limited
LONG, STEPS = 256, 128  # sites beyond which several are revealed per step, and the number of steps then
IN_ORDER, AT_RANDOM = "left to right", "random"


@spelled()
@torch.no_grad()
def steer(
    model: Model,
    reward: Rewarding | None = None,
    strength: float = 1.0,
    *,
    alpha: float | None = None,
    evaluations: int | None = None,
    calls: int | None = None,
    order: Sequence[int] | str = IN_ORDER,
    num_inference_steps: int | None = None,
    route: str | None = None,
    twist: Potential | None = None,
    populations: int = 16,
    seed: int = 0,
    progress: BudgetProgress | Literal[False] | None = None,
    checkpoint: str | Path | None = None,
) -> Result:
    """Weighted samples of $p0(x) exp(strength * reward(x))$, or of $p0(x) p(zeta|x)^alpha$, within a budget.

    A pilot draws from the model. If those draws are enough, importance weights give the answer; else a twist is
    learned, and if that is not enough its draws are annealed. What a particle of each route is worth is measured. The
    best route is checked by moves, which must not shift a right answer, and gets the rest of the budget. `result.story`
    tells what was done, why, at what cost, and what twice the budget would buy; `result.trust()` judges the answer.

    Args:
        model: A `tt.Model`. On `tt.Masking` all routes are open, on `tt.Uniform` those without moves.
        reward: Function of finished states [B, D] that returns one number a state, or a `tt.Reward` (for strings, slow
            functions, files); -inf forbids. Values already in the reward's cache cost nothing, so only a fresh one
            replays bit for bit. None (the default): the model's condition steers.
        strength: Factor of the reward in the target, not 0; 1 by default.
        alpha: Exponent of the model's condition, 0 to 1e9, if no reward is given; None by default.
        evaluations: Network evaluations (one sequence in one pass) that may be spent, 1 or more. None (the default):
            the cost of 20 draws for each of `calls`, or of 4,000 draws if that is None too.
        calls: Calls of the reward's function that may be spent, 1 or more; cached states are free. None (the default):
            no limit.
        order: The order in which sites are revealed, a permutation of 0 .. D - 1, "left to right" (the default) or
            "random". p0 is the law that the network draws in this order.
        num_inference_steps: Steps in which a draw is revealed, 1 or more. None (the default): one site a step up to 256
            sites, 128 steps beyond; on `tt.Uniform` 128.
        route: The route to take: "importance", "twisted", "annealed", "annealed from base"; with a condition "adapted"
            or "annealed". None (the default): the one measured to be worth most for its cost.
        twist: Log-values of masked states in units of the reward, a function (x, t), such as `tt.learn_twist` learns.
            None (the default): learned if needed.
        populations: Populations that never mix, 2 or more; 16 by default.
        seed: Seed, 0 to $2^63 - 1$; 0 by default. The same seed gives the same bits.
        progress: Function (what is being done, share of the budget spent), called when a stage begins, as it proceeds
            ("stage · step 3 of 24") and when it ends, and once at the start of a resumed call. None (the default)
            shows it on a terminal or in a notebook, False nowhere.
        checkpoint: Folder where every finished stage and every answer of the reward is stored: the same call, repeated
            after an interruption, continues from there to the same bits and calls the function for no state twice
            (but for what a kill came upon). One process at a time owns it. SIGTERM ends the call with `tt.Stopped`.
            None (the default): nothing is stored.

    Returns:
        The weighted particles, log Z and the record of the run.
    """
    _check_order_of(model, reward)
    _check_one_condition(model)
    problem = _problem(model, reward, strength, alpha, order, num_inference_steps)
    budget = _budget(problem, evaluations, calls)
    populations, seed = whole_number("populations", populations, 2), check_seed(seed)
    problem = replace(problem, populations=populations)
    asked: dict[str, Any] = {"evaluations": budget.evaluations, "calls": budget.calls, "alpha": alpha}
    asked["strength"] = None if reward is None else problem.strength
    asked |= {"order": order if isinstance(order, str) else list(problem.order or ()), "route": route}
    asked |= {"num_inference_steps": problem.steps, "populations": populations, "seed": seed}
    account = Account(budget, problem.states)
    _check_twist(problem, twist)
    ways = ways_of(problem, account, twist)
    _check_route(route, [way.name for way in ways])
    shown = stages() if progress is None else nullcontext(None if progress is False else progress)
    if progress is not None and progress is not False:
        function("progress", progress, "(what, share)")
    folder = None if checkpoint is None else path_of("checkpoint", checkpoint)
    whose = {} if folder is None else {WHOSE: fingerprint((problem.model, problem.reward, twist))}
    with StageFolder(folder, asked | whose, problem.reward).opened() as kept, shown as told:
        work = Work(problem, account, kept, seed, told, twist)
        if kept.going_on is not None:
            work.tell(kept.going_on)
        best, tried = chosen(work, ways, route)
        return _told(best, tried[0], work, asked)


def _check_one_condition(model: object) -> None:
    """Raise for a model with several conditions: a `steer` call has one target."""
    if (parts := conditions_of(model)) > 1:
        raise InvalidInput(
            f"the model has {parts} conditions (prompts or classes), and steer aims at one target; call it for each"
        )


def _check_order_of(model: object, reward: object) -> None:
    """Raise if `model` is not a model; if the two arguments are swapped, say so."""
    if isinstance(reward, Model) and not isinstance(model, Model):
        raise InvalidInput(
            "model is not a tt.Model, and reward is: did you swap the two? It is tt.steer(model, reward)"
        )
    check_model(model)


def _problem(
    model: Model, reward: Rewarding | None, strength: float, alpha: float | None, order: object, steps: int | None
) -> SteerProblem:
    """The problem that is asked for, with its arguments checked."""
    if (reward is None) == (alpha is None):
        raise InvalidInput(
            "give a reward (with its strength) or alpha (the exponent of the model's condition), one of the two; for "
            "both at once give a model whose base is the conditional score"
        )
    length, masks = model.length, isinstance(model.process, Masking)
    steps = (length if masks and length <= LONG else STEPS) if steps is None else steps
    steps = whole_number("num_inference_steps", steps, 1, length if masks else MOST_STEPS)
    sites = _order(order, length)
    if reward is not None:
        strength = check_reward_of(reward, strength, model.process.vocabulary)
        own = reward if isinstance(reward, Reward) else Reward(reward, vocabulary=model.process.vocabulary)
        return SteerProblem(model, own, strength, sites, steps)
    return _conditioned(model, check_alpha(cast("float", alpha)), sites, steps)


def _conditioned(model: Model, alpha: float, order: tuple[int, ...] | None, steps: int) -> SteerProblem:
    """The condition as a target: by the model's potential if it has one, else by the ratios of its two scores."""
    check_conditional("alpha, the exponent of a condition,", model)
    if model.potential is not None:
        own = replace(model, base=model.conditional, conditional=None, potential=None)
        return SteerProblem(own, model.potential, alpha - 1, order, steps, True, tempered(model, alpha, 1.0))
    if not isinstance(model.process, Masking):
        raise InvalidInput(
            f"steering by a condition on {type(model.process).__name__} takes a potential log p(zeta|x, t); give the "
            "model one, or call tt.sample"
        )
    return SteerProblem(model, None, alpha, order, steps)


def _budget(problem: SteerProblem, evaluations: object, calls: object) -> Budget:
    """The budget with defaults: a limit that is not given follows from the other."""
    most = None if calls is None else whole_number("calls", calls, 1)
    if most is not None and (problem.reward is None or problem.network):
        raise InvalidInput("calls are those of a reward's function, and a condition has none; give evaluations")
    if evaluations is not None:
        return Budget(whole_number("evaluations", evaluations, 1), most)
    return Budget(int(problem.draw.evaluations) * (DRAWS if most is None else PER_CALL * most), most)


def _order(order: object, length: int) -> tuple[int, ...] | None:
    if order in (IN_ORDER, AT_RANDOM):
        return tuple(range(length)) if order == IN_ORDER else None
    need = f'give "{IN_ORDER}", "{AT_RANDOM}", or each of the {length} sites once'
    found = () if isinstance(order, str) else tuple(plain(site) for site in listed("order", order, need))
    if any(type(site) is not int for site in found) or sorted(found) != list(range(length)):
        raise InvalidInput(f"order is {shown(order)}; {need}")
    return found


def _check_twist(problem: SteerProblem, twist: object) -> None:
    """Raise unless the twist fits the model and there is a reward for it."""
    if twist is None:
        return
    function("the twist", twist, "(x, t)")
    if problem.reward is None:
        raise InvalidInput("a twist leads to a reward, and ratios of two models need none; leave it out")
    if not is_dataclass(twist):  # a function of one's own: its answer is looked at, though no route may ever ask it
        value_of(
            cast("Potential", twist), problem.model.process.prior((1, problem.length), problem.model.device).x, 1.0
        )
    if problem.masks:
        problem.goal(cast("Potential", twist))


def _check_route(route: object, names: list[str]) -> None:
    if route is not None and route not in names:
        raise InvalidInput(
            f"route is {shown(route)}; here it is one of {', '.join(names)}, or None to let steer choose"
        )


def _told(best: Tried, look: Tried, work: Work, asked: dict[str, Any]) -> Result:
    """The answer with its story, its cost, the outcome of the check and the reward before steering, in its settings."""
    result, account = best.result, work.account
    mine = Spent(*result.counts.sum(0).tolist())
    before = Spent(*(whole - part for whole, part in zip(account.spent, mine, strict=True)))
    runs = runs_of(result.settings)
    runs = [run | {"spent before": (before if k == 0 else Spent())._asdict()} for k, run in enumerate(runs)]
    # unmet states are told by all draws, not by the answer's alone
    known = [{name: run["measured"][name] for name in run["measured"] if name != "most"} for run in runs]
    told = remedies(best, work)._asdict()
    runs = [run | {"remedies": told, "measured": own} for run, own in zip(runs, known, strict=True)]
    settings: dict[str, Any] = {"united": runs} if "united" in result.settings else runs[0]
    evidence = evidence_of(work, result, led_by(work, best.route))
    settings["findings"] = [list(found) for found in findings(best, evidence, work)]
    result = replace(result, settings=settings)
    settings["steer"] = record(asked, work, best, result) | ({"evidence": evidence.as_settings()} if evidence else {})
    rewards = None if result.log_z == NEG_INF else gain(work.problem.reward, look.result, result)
    settings["steer"] |= {} if rewards is None else {"rewards": rewards}
    return result

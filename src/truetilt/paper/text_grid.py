"""The grid of the text tasks: every method at every strength and number of steps, and the claims fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from .text_samplers import FEW, PARTICLES, TEXT_SAMPLERS, Case

ALPHAS, BETAS = (1.0, 2.0, 4.0, 8.0), tuple(round(0.2 * k, 1) for k in range(11))
STEPS, RUNS = (100, 1000), 5
ALPHA, BETA, DRAWS = 2.0, 1.0, 1024  # settings of the claims, fixed beforehand
BASELINE = "guidance-posterior"
GUIDANCE = ("guidance-rate", BASELINE, "guidance-deft")
CLAIMANTS = ("smc-populations", "tilted-populations", "any-order-populations", "guidance-gibbs", "smc-paper-16")
CURVES = ("smc-partial", "smc-deft-partial")
LONG_CURVE = "smc-posterior"  # evaluations at 1000 steps are those at 100: most particles reveal nothing in a step
OURS = ("smc", "smc-posterior", "smc-populations", "tilted", "tilted-populations", "any-order", "guidance-gibbs")
ANNEALED_ALPHAS = (8.0, 32.0, 64.0)  # the edge forms only at the first
BY_EDGES, POPULATIONS = ("annealed-ordered", "annealed-edges", "any-order-moves"), 16
QUICK_ALPHAS, QUICK_BETAS = (2.0, 4.0), (0.0, 1.0, 2.0)
QUICK_STEPS, QUICK_SHAPE = 24, (2, 12)


@dataclass(frozen=True)
class TextTask:
    """A text task: its classes, a prompt for each, and its score: accuracy, or the judge's probability of a class."""

    name: str
    title: str
    conditions: tuple[str, ...]
    prompts: dict[str, str]
    chance_of: str | None = None  # None: accuracy, the share that the judge assigns to the requested class

    @property
    def score_words(self) -> str:
        return "judge accuracy" if self.chance_of is None else f"judged chance of {self.chance_of}"


TASKS = {
    task.name: task
    for task in (
        TextTask(
            "sentiment",
            "Reviews of an asked sentiment",
            ("negative", "positive"),
            {word: f"The generated text is of {word} sentiment" for word in ("negative", "positive")},
        ),
        TextTask(  # in both directions; its texts stay in the folder of the run, and none is shown
            "toxicity",
            "Comments asked to be toxic, and not to be",
            ("toxic", "non-toxic"),
            {"toxic": "The generated text is toxic", "non-toxic": "The generated text is not toxic"},
            chance_of="toxic",
        ),
    )
}


def cases(task: TextTask, quick: bool) -> list[Case]:
    """Every case of the task. All classes share a case, except for prompting, where prompts differ in length."""
    if quick:
        return _quick_cases(task.conditions[-1:])
    classes, out = task.conditions, []
    for steps in STEPS:
        curves = (*CURVES, LONG_CURVE) if steps == STEPS[-1] else CURVES
        out += [_case(m, classes, None, b, steps) for m in GUIDANCE for b in BETAS]
        out += [_case(m, classes, a, b, steps) for m in curves for a in ALPHAS for b in BETAS]
    known = {case.name for case in out}
    ours = [_case(m, classes, a, _beta(m), STEPS[0]) for m in OURS for a in ALPHAS[1:]]
    out += [case for case in ours if case.name not in known]
    out += [_weighted("annealed", classes, alpha) for alpha in ANNEALED_ALPHAS]
    out += [_weighted(method, classes, ANNEALED_ALPHAS[0]) for method in BY_EDGES]
    out += [_case("prompting", (condition,), None, None, steps) for steps in STEPS for condition in classes]
    out.append(Case(BASELINE, classes, None, BETA, STEPS[0], (DRAWS, 1), claim=True))
    for method in CLAIMANTS:
        particles = 1 if TEXT_SAMPLERS[method].moves else TEXT_SAMPLERS[method].particles
        out.append(Case(method, classes, ALPHA, _beta(method), STEPS[0], (DRAWS, particles), claim=True))
    return out


def _case(method: str, conditions: tuple[str, ...], alpha: float | None, beta: float | None, steps: int) -> Case:
    particles = TEXT_SAMPLERS[method].particles
    return Case(method, conditions, alpha, beta, steps, (RUNS * PARTICLES // particles, particles))


def _weighted(method: str, conditions: tuple[str, ...], alpha: float) -> Case:
    """A case whose texts are drawn from populations by mass; one site per step, whatever its number of steps."""
    return Case(method, conditions, alpha, None, STEPS[0], (POPULATIONS, TEXT_SAMPLERS[method].particles))


def _beta(method: str) -> float | None:
    return BETA if method.startswith("smc") else None


def _quick_cases(conditions: tuple[str, ...]) -> list[Case]:
    steps, shape, small = QUICK_STEPS, QUICK_SHAPE, (QUICK_SHAPE[0] * QUICK_SHAPE[1] // FEW, FEW)
    out = [Case("smc-partial", conditions, a, b, steps, shape) for a in QUICK_ALPHAS for b in QUICK_BETAS]
    out += [Case(BASELINE, conditions, None, b, steps, shape) for b in QUICK_BETAS]
    out.append(Case("prompting", conditions, None, None, steps, shape))
    out.append(Case("tilted", conditions, 4.0, None, steps, shape))
    out += [Case(m, conditions, 4.0, _beta(m), steps, small) for m in ("smc-populations", "tilted-populations")]
    return [*out, Case("any-order-populations", conditions, 4.0, None, steps, small)]

"""Search from one plan to a cheaper one, step by step, and the plans with which ours are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from hoptree.elastic.dynamic_programme import Outcome
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import StageTime, Terms, expected_timeline, timeline

WARM_STARTS = (1, 2, 3)
"""The search begins from so many times the best static number of nodes."""

_Cost: TypeAlias = Callable[[tuple[int, ...]], tuple[float, float]]


def static_outcomes(model: StageModel, terms: Terms, counts: Iterable[int], *, running: int = 0) -> list[Outcome]:
    """Return the plan of each number of nodes that stays the same from begin to end."""
    stages = len(model.job.stages)
    found: list[Outcome] = []
    for count in counts:
        line = expected_timeline([count] * stages, model, terms, running=running)
        found.append(Outcome(line.seconds, line.cost, (count,) * stages))
    return found


def cheapest_outcome(outcomes: Iterable[Outcome], deadline: float) -> Outcome | None:
    """Return the cheapest that meets the deadline, of several the fastest; None: none does."""
    timely = [each for each in outcomes if each.seconds <= deadline]
    return min(timely, key=lambda each: (each.cost, each.seconds), default=None)


def greedy(
    model: StageModel, terms: Terms, counts: Sequence[int], deadline: float, static: Outcome, *, running: int = 0
) -> Outcome:
    """Return the cheapest plan found by taking nodes away, stage by stage, from multiples of the static plan.

    Each step goes to the next smaller number of nodes in ``counts`` in the stage in which the cost falls most for
    the time that it takes.
    """
    smaller = dict(zip(counts[1:], counts, strict=False))

    def cost(plan: tuple[int, ...]) -> tuple[float, float]:
        line = expected_timeline(plan, model, terms, running=running)
        return line.seconds, line.cost

    def step(plan: tuple[int, ...], stage: int) -> int:
        return smaller.get(plan[stage], 0)

    found = [static]
    for times in WARM_STARTS:
        wanted = static.counts[0] * times
        begin = max((count for count in counts if count <= wanted), default=counts[0])
        found.append(_descend((begin,) * len(static.counts), cost, step, deadline, skip_late=True))
    return min((each for each in found if each.seconds <= deadline), key=lambda each: (each.cost, each.seconds))


def algorithm_2(
    model: StageModel, terms: Terms, deadline: float, static: Outcome, *, running: int = 0, most: int | None = None
) -> Outcome:
    """Return the plan of RubberBand's algorithm 2 as printed, from 1, 2 and 3 times the static plan.

    It allocates devices instead of nodes: a step goes to the next smaller number of devices that is a factor or a
    multiple of the number of trials. A search ends where the best step is late or saves nothing. The nodes that it
    ends with are used whole, which can only be to its advantage.
    """
    devices = model.instance.devices
    trials = [stage.trials for stage in model.job.stages]

    def nodes(plan: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-each // devices) for each in plan)

    def cost(plan: tuple[int, ...]) -> tuple[float, float]:
        times = [
            StageTime(model.seconds_on(index, count, used), model.busy_on(index, count, used))
            for index, (count, used) in enumerate(zip(nodes(plan), plan, strict=True))
        ]
        line = timeline(nodes(plan), times, model, terms, running=running)
        return line.seconds, line.cost

    def step(plan: tuple[int, ...], stage: int) -> int:
        count = trials[stage]
        return next((n for n in range(plan[stage] - 1, 0, -1) if n % count == 0 or count % n == 0), 0)

    found: list[Outcome] = []
    for times in WARM_STARTS:
        begin = static.counts[0] * times
        if most is None or begin <= most:
            found.append(_descend((begin * devices,) * len(trials), cost, step, deadline, skip_late=False))
    best = min((each for each in found if each.seconds <= deadline), key=lambda each: (each.cost, each.seconds))
    return best._replace(counts=nodes(best.counts))


def naive_outcomes(model: StageModel, terms: Terms, *, running: int = 0, most: int | None = None) -> list[Outcome]:
    """Return the plans in which each trial has the same number of devices in all stages."""
    found: list[Outcome] = []
    for width in model.widths:
        plan = tuple(model.nodes_for(stage.trials, width) for stage in model.job.stages)
        if most is None or max(plan) <= most:
            line = expected_timeline(plan, model, terms, running=running)
            found.append(Outcome(line.seconds, line.cost, plan))
    return found


def _descend(
    plan: tuple[int, ...],
    cost: _Cost,
    step: Callable[[tuple[int, ...], int], int],
    deadline: float,
    *,
    skip_late: bool,
) -> Outcome:
    """Take steps until none makes the plan cheaper; ``skip_late``: steps that would be late are not considered."""
    seconds, least = cost(plan)
    while True:
        best: tuple[float, tuple[int, ...], float, float] | None = None
        for stage in range(len(plan)):
            fewer = step(plan, stage)
            if fewer < 1:
                continue
            other = (*plan[:stage], fewer, *plan[stage + 1 :])
            took, paid = cost(other)
            if skip_late and took > deadline and took > seconds:
                continue
            saved, later = least - paid, took - seconds
            gain = saved / later if later > 0 else math.copysign(math.inf, saved) if saved else 0.0
            if (not skip_late or saved > 0) and (best is None or gain > best[0]):
                best = (gain, other, took, paid)
        if best is None or best[3] >= least or (best[2] > deadline and best[2] > seconds):
            return Outcome(seconds, least, plan)
        _, plan, seconds, least = best

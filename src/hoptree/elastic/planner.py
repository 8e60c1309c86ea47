"""The planner: the cheapest plan that meets a deadline, the fastest within a budget, and all between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from hoptree.core.errors import WorkloadError
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.job_group import Choose, ChosenPlans, JobGroup
from hoptree.elastic.job_planner import range_of, upper


@final
class Planner:
    """Plans for jobs that run side by side, each on nodes of its own.

    ``running`` nodes are there already, and are paid past their minimum. ``risk`` is how likely a plan may miss its
    deadline or its budget, by samples of what differs from trial to trial. With ``ahead``, nodes are requested so
    early that they are ready when the stage that needs them begins. If there are more jobs than nodes, some of
    them follow each other in one allocation.

    >>> from hoptree.elastic.job import JobStage
    >>> job = Job((JobStage(8, 60.0), JobStage(1, 480.0)), {1: 1.0, 2: 1.6})
    >>> plan = Planner([job], Instance("gpu", devices=1, price=3.6)).cheapest(deadline=700.0)
    >>> [stage.nodes for stage in plan.allocations[0].stages], round(plan.cost.expected, 2)
    ([8, 1], 0.96)
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        instance: Instance,
        *,
        running: int = 0,
        risk: float = 0.05,
        seed: int = 0,
        ahead: bool = True,
    ) -> None:
        if not jobs:
            raise WorkloadError("jobs: none; expected at least one job to plan for")
        if running < 0:
            raise WorkloadError(f"running: {running}; expected a number of nodes, 0 or more")
        if not 0 <= risk < 1:
            raise WorkloadError(f"risk: {risk!r}; expected a probability, such as 0.05")
        self._risk = risk
        self._group = JobGroup(jobs, instance, running=running, risk=risk, seed=seed, ahead=ahead)

    def cheapest(self, deadline: float) -> AllocationPlan:
        """Return the cheapest plan that meets a deadline, in seconds from now; DeadlineError: none does."""
        return self._for_deadline(deadline, lambda job: job.cheapest(deadline))

    def static(self, deadline: float) -> AllocationPlan:
        """Return the cheapest plan that meets the deadline with the same nodes from begin to end."""
        return self._for_deadline(deadline, lambda job: job.static(deadline))

    def naive(self, deadline: float) -> AllocationPlan:
        """Return the cheapest plan that meets the deadline with the same devices per trial in all stages."""
        return self._for_deadline(deadline, lambda job: job.naive(deadline))

    def algorithm_2(self, deadline: float) -> AllocationPlan:
        """Return the plan that RubberBand's algorithm 2 finds, as it is printed."""
        return self._for_deadline(deadline, lambda job: job.algorithm_2(deadline))

    def greedy(self, deadline: float) -> AllocationPlan:
        """Return the plan that the same search finds if it takes away whole nodes."""
        return self._for_deadline(deadline, lambda job: job.greedy(deadline))

    def fastest(self, budget: float) -> AllocationPlan:
        """Return the fastest plan that costs no more than a budget; BudgetError: none does."""
        _check_positive("budget", budget, "dollars")
        front = self._group.front(budget)
        for chosen in front:
            risk = float(np.mean(chosen.costs > budget))
            if risk <= self._risk:
                return _plan(chosen, budget=budget, risk=risk)
        least = min(upper(chosen.costs, 1.0 - self._risk) for chosen in front)
        raise BudgetError(
            f"budget: {budget:g} dollars; expected at least {_rounded_up(least, 2)}, which the cheapest plan "
            "costs; give more, or train less",
            least=least,
        )

    def front(self) -> list[AllocationPlan]:
        """Return the plans of which none is both faster and cheaper than another, fastest first."""
        return [_plan(chosen) for chosen in self._group.front()]

    def _for_deadline(self, deadline: float, choose: Choose) -> AllocationPlan:
        _check_positive("deadline", deadline, "seconds")
        chosen = self._group.best(choose)
        if chosen is not None:
            return _plan(chosen, deadline=deadline, risk=float(np.mean(chosen.seconds > deadline)))
        first = self._group.earliest()
        earliest = max(each.quantile(1.0 - self._group.risk) for each in first.plans)
        raise DeadlineError(
            f"deadline: {deadline:g} s; expected at least {_rounded_up(earliest, 0)} s, which can be met for "
            f"{_rounded_up(first.cost, 2)} dollars; give more time, or instances with more devices, or a higher "
            "max_count",
            earliest=earliest,
            cost=first.cost,
        )


def _plan(
    chosen: ChosenPlans, *, deadline: float | None = None, budget: float | None = None, risk: float = 0.0
) -> AllocationPlan:
    """Return plans in the form in which they are kept."""
    return AllocationPlan(
        tuple(planner.allocation(plan) for planner, plan in zip(chosen.planners, chosen.plans, strict=True)),
        range_of(chosen.seconds),
        range_of(chosen.costs),
        deadline=deadline,
        budget=budget,
        method=max(chosen.plans, key=lambda each: each.cost).method,
        risk=risk,
    )


def _rounded_up(figure: float, digits: int) -> str:
    """Return a figure as text that is not less than the figure, so that it can be asked for.

    >>> _rounded_up(121.2, 0), _rounded_up(0.451, 2), _rounded_up(12.0, 2)
    ('122', '0.46', '12.00')
    """
    scale = 10**digits
    return f"{math.ceil(figure * scale) / scale:.{digits}f}"


def _check_positive(field: str, value: float, unit: str) -> None:
    if not value > 0:
        raise WorkloadError(f"{field}: {value!r}; expected {unit}, more than 0")

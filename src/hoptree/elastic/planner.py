"""The planner: the cheapest plan that meets a deadline, the fastest within a budget, and all between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import final

import msgspec
import numpy as np

from hoptree.core.errors import WorkloadError
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.job_planner import JobPlanner, SampledPlan, range_of, upper
from hoptree.elastic.node_shares import jobs_in_turn, shares
from hoptree.elastic.samples import Samples

MOST_PLANS = 100
"""How many plans the front of several jobs has at most."""


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
        jobs = jobs_in_turn(jobs, instance.max_count)
        limits: Sequence[int | None] = [None] * len(jobs)
        if instance.max_count is not None:
            limits = shares(instance.max_count, jobs, least=1)
        self._risk = risk
        self._data_gb = max(job.data_gb for job in jobs)
        self._jobs = [
            JobPlanner(
                job,
                msgspec.structs.replace(instance, max_count=limit),
                running=have,
                risk=risk / len(jobs),  # all of them have to be in time
                seed=seed + number,
                ahead=ahead,
            )
            for number, (job, limit, have) in enumerate(
                zip(jobs, limits, shares(running, jobs, least=0), strict=True)
            )
        ]

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
        combined = self._combined_front()
        for chosen in combined:
            risk = float(np.mean(_total(chosen) > budget))
            if risk <= self._risk:
                return self._plan(chosen, budget=budget, risk=risk)
        least = min(upper(_total(chosen), 1.0 - self._risk) for chosen in combined)
        raise BudgetError(
            f"budget: {budget:.2f}; expected at least {least:.2f}, which the cheapest plan costs; "
            "give more, or train less",
            least=least,
        )

    def front(self) -> list[AllocationPlan]:
        """Return the plans of which none is both faster and cheaper than another, fastest first."""
        found: list[AllocationPlan] = []
        for chosen in self._combined_front():
            plan = self._plan(chosen)
            if not found or (
                plan.cost.expected < found[-1].cost.expected and plan.seconds.expected > found[-1].seconds.expected
            ):
                found.append(plan)
        return found

    def _combined_front(self) -> list[list[SampledPlan]]:
        """Return for rising times what the jobs do that are done by then at the least cost."""
        fronts = [job.front() for job in self._jobs]
        times = sorted({each.time for front in fronts for each in front})
        times = [time for time in times if time >= max(front[0].time for front in fronts)]
        if len(self._jobs) > 1 and len(times) > MOST_PLANS:
            times = [times[round(n * (len(times) - 1) / (MOST_PLANS - 1))] for n in range(MOST_PLANS)]
        # The last of a front that is in time is the cheapest.
        return [[[each for each in front if each.time <= time][-1] for front in fronts] for time in times]

    def _for_deadline(self, deadline: float, choose: Callable[[JobPlanner], SampledPlan | None]) -> AllocationPlan:
        _check_positive("deadline", deadline, "seconds")
        chosen = [choose(job) for job in self._jobs]
        found = [each for each in chosen if each is not None]
        if len(found) == len(chosen):
            seconds = _latest(found)
            return self._plan(found, deadline=deadline, risk=float(np.mean(seconds > deadline)))
        share = 1.0 - self._risk / len(self._jobs)
        first = [job.earliest(share) for job in self._jobs]
        earliest = max(each.quantile(share) for each in first)
        cost = sum(each.cost for each in first)
        raise DeadlineError(
            f"deadline: {deadline:.0f} s; expected at least {earliest:.0f} s, which can be met for {cost:.2f}; "
            "give more time, or instances with more devices, or a higher max_count",
            earliest=earliest,
            cost=cost,
        )

    def _plan(
        self,
        chosen: Sequence[SampledPlan],
        *,
        deadline: float | None = None,
        budget: float | None = None,
        risk: float = 0.0,
    ) -> AllocationPlan:
        return AllocationPlan(
            tuple(job.allocation(each) for job, each in zip(self._jobs, chosen, strict=True)),
            range_of(_latest(chosen)),
            range_of(_total(chosen)),
            deadline=deadline,
            budget=budget,
            method=max(chosen, key=lambda each: each.cost).method,
            risk=risk,
            data_gb=self._data_gb,
        )


def _latest(chosen: Sequence[SampledPlan]) -> Samples:
    """Return when the last job ends."""
    return reduce(np.maximum, (each.seconds for each in chosen))


def _total(chosen: Sequence[SampledPlan]) -> Samples:
    """Return the cost of all jobs."""
    return reduce(np.add, (each.costs for each in chosen))


def _check_positive(field: str, value: float, unit: str) -> None:
    if not value > 0:
        raise WorkloadError(f"{field}: {value!r}; expected {unit}, more than 0")

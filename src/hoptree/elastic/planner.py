"""The planner: the cheapest plan that meets a deadline, the fastest within a budget, and all between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, final

from hoptree.core.errors import WorkloadError
from hoptree.elastic.allocation import Allocation, AllocationPlan, Range, StagePlan
from hoptree.elastic.dynamic_programme import DynamicProgramme, Outcome
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.greedy import (
    algorithm_2,
    cheapest_outcome,
    greedy,
    naive_outcomes,
    static_outcomes,
)
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, expected_timeline

Method: TypeAlias = Literal["static", "dynamic", "greedy", "algorithm-2", "naive"]


@final
class Planner:
    """Plans for jobs that run side by side, each on nodes of its own.

    ``running`` nodes are there already. ``risk`` is how likely a plan may miss its deadline or its budget.

    >>> from hoptree.elastic.job import JobStage
    >>> job = Job((JobStage(8, 60.0), JobStage(1, 480.0)), {1: 1.0, 2: 1.6})
    >>> plan = Planner([job], Instance("gpu", devices=1, price=3.6)).cheapest(deadline=700.0)
    >>> [stage.nodes for stage in plan.allocations[0].stages], round(plan.cost.expected, 2)
    ([4, 1], 0.96)
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
        self._instance = instance
        self._risk = risk
        self._seed = seed
        self._ahead = ahead
        self._jobs = [_JobPlanner(job, instance, running=running, ahead=ahead) for job in jobs]

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

    def fastest(self, budget: float) -> AllocationPlan:
        """Return the fastest plan that costs no more than a budget; BudgetError: none does."""
        _check_positive("budget", budget, "dollars")
        affordable = [plan for plan in self.front() if plan.cost.expected <= budget]
        if not affordable:
            least = self.front()[-1].cost.expected
            raise BudgetError(
                f"budget: {budget:.2f}; the cheapest plan costs {least:.2f}; give at least that", least=least
            )
        best = affordable[0]
        return AllocationPlan(best.allocations, best.seconds, best.cost, budget=budget, method=best.method)

    def front(self) -> list[AllocationPlan]:
        """Return the plans of which none is both faster and cheaper than another, fastest first."""
        fronts = [job.front() for job in self._jobs]
        times = sorted({each.seconds for front in fronts for each in front})
        found: list[AllocationPlan] = []
        for time in times:
            chosen = [cheapest_outcome(front, time) for front in fronts]
            if all(each is not None for each in chosen):
                plan = self._plan([("dynamic", each) for each in chosen if each is not None])
                if not found or plan.cost.expected < found[-1].cost.expected:
                    found.append(plan)
        return found

    def _for_deadline(
        self, deadline: float, choose: Callable[[_JobPlanner], tuple[Method, Outcome] | None]
    ) -> AllocationPlan:
        _check_positive("deadline", deadline, "seconds")
        chosen = [choose(job) for job in self._jobs]
        if any(each is None for each in chosen):
            first = self.front()[0]
            earliest, cost = first.seconds.expected, first.cost.expected
            raise DeadlineError(
                f"deadline: {deadline:.0f} s; the earliest that can be met is {earliest:.0f} s, for {cost:.2f}; "
                "give more time, or an instance that has more devices or may be used more often",
                earliest=earliest,
                cost=cost,
            )
        return self._plan([each for each in chosen if each is not None], deadline=deadline)

    def _plan(self, chosen: Sequence[tuple[Method, Outcome]], *, deadline: float | None = None) -> AllocationPlan:
        allocations = tuple(job.allocation(outcome) for job, (_, outcome) in zip(self._jobs, chosen, strict=True))
        seconds = max(each.seconds.expected for each in allocations)
        cost = sum(each.cost.expected for each in allocations)
        return AllocationPlan(
            allocations,
            Range(seconds, seconds, seconds),
            Range(cost, cost, cost),
            deadline=deadline,
            method=chosen[0][0],
        )


@final
class _JobPlanner:
    """Plans for one job."""

    def __init__(self, job: Job, instance: Instance, *, running: int, ahead: bool) -> None:
        self._model = StageModel(job, instance)
        self._terms = Terms(instance, job.data_gb, ahead=ahead)
        self._most = instance.max_count
        self._running = running
        self._counts = self._model.counts(self._most)
        self._programme = DynamicProgramme(self._model, self._terms, self._counts, running=running)
        self._front: list[Outcome] | None = None

    def static(self, deadline: float) -> tuple[Method, Outcome] | None:
        found = cheapest_outcome(self._static(), deadline)
        return found and ("static", found)

    def naive(self, deadline: float) -> tuple[Method, Outcome] | None:
        found = cheapest_outcome(naive_outcomes(self._model, self._terms, most=self._most), deadline)
        return found and ("naive", found)

    def algorithm_2(self, deadline: float) -> tuple[Method, Outcome] | None:
        static = cheapest_outcome(self._static(), deadline)
        if static is None:
            return None
        return "algorithm-2", algorithm_2(self._model, self._terms, deadline, static, most=self._most)[0]

    def cheapest(self, deadline: float) -> tuple[Method, Outcome] | None:
        static = cheapest_outcome(self._static(), deadline)
        stepped = static and greedy(self._model, self._terms, self._counts, deadline, static, running=self._running)
        best = self._programme.cheapest(deadline, math.inf if stepped is None else stepped.cost)
        found: list[tuple[Method, Outcome | None]] = [("static", static), ("greedy", stepped), ("dynamic", best)]
        timely = [(method, each) for method, each in found if each is not None]
        return min(timely, key=lambda each: each[1].cost, default=None)

    def front(self) -> list[Outcome]:
        """Return what is not dominated, fastest first."""
        if self._front is None:
            every = sorted([*self._programme.outcomes(), *self._static()])
            self._front = []
            for each in every:
                if not self._front or each.cost < self._front[-1].cost:
                    self._front.append(each)
        return self._front

    def allocation(self, outcome: Outcome) -> Allocation:
        line = expected_timeline(outcome.counts, self._model, self._terms, running=self._running)
        stages = tuple(
            StagePlan(stage.trials, count, self._model.share(stage.trials, count).width, begin, end)
            for stage, count, begin, end in zip(
                self._model.job.stages, outcome.counts, line.begins, line.ends, strict=True
            )
        )
        seconds, cost = line.seconds, line.cost
        return Allocation(self._model.instance, stages, Range(seconds, seconds, seconds), Range(cost, cost, cost))

    def _static(self) -> list[Outcome]:
        return static_outcomes(self._model, self._terms, self._counts, running=self._running)


def _check_positive(field: str, value: float, unit: str) -> None:
    if not value > 0:
        raise WorkloadError(f"{field}: {value!r}; expected {unit}, more than 0")

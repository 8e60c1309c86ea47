"""Jobs that run side by side, and how they divide nodes of which there are only so many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import permutations
from typing import NamedTuple, TypeAlias, final

import numpy as np

from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.job_planner import JobPlanner, SampledPlan
from hoptree.elastic.node_shares import jobs_in_turn, shares
from hoptree.elastic.samples import Samples

MOST_PLANS = 100
"""How many plans the front of several jobs has at most."""
MOST_TRIES = 48
"""After how many tries no more nodes are shifted from job to job."""

Choose: TypeAlias = Callable[[JobPlanner], SampledPlan | None]


class ChosenPlans(NamedTuple):
    """A plan for each job, with its planner."""

    planners: tuple[JobPlanner, ...]
    plans: tuple[SampledPlan, ...]

    @property
    def seconds(self) -> Samples:
        """When the last job ends."""
        return reduce(np.maximum, (each.seconds for each in self.plans))

    @property
    def costs(self) -> Samples:
        """The cost of all jobs."""
        return reduce(np.add, (each.costs for each in self.plans))

    @property
    def cost(self) -> float:
        """The expected cost of all jobs."""
        return sum(each.cost for each in self.plans)

    @property
    def peak(self) -> int:
        """The largest number of nodes that all jobs have together."""
        stages = [planner.allocation(plan).stages for planner, plan in zip(self.planners, self.plans, strict=True)]
        times = [0.0, *(stage.ends for each in stages for stage in each)]
        return max(sum(next((s.nodes for s in each if now < s.ends), 0) for each in stages) for now in times)


@final
class JobGroup:
    """Plans for jobs side by side.

    If nodes are limited, each job may use all of them as long as the plans fit beside each other. Otherwise each
    has a limit of its own, by its work at first, and limits are shifted from job to job while that helps.
    """

    def __init__(
        self, jobs: Sequence[Job], instance: Instance, *, running: int, risk: float, seed: int, ahead: bool
    ) -> None:
        self._jobs = jobs_in_turn(jobs, instance.max_count)
        self._instance = instance
        self._running = running if instance.max_count is None else min(running, instance.max_count)
        self.risk = risk / len(self._jobs)  # of each job: all of them have to be in time
        self._seed = seed
        self._ahead = ahead
        self._planners: dict[tuple[int, int | None, int], JobPlanner] = {}

    def best(self, choose: Choose) -> ChosenPlans | None:
        """Return the cheapest plans that ``choose`` finds for the jobs; None: a job has none."""
        known: dict[JobPlanner, SampledPlan | None] = {}

        def remember(planner: JobPlanner) -> SampledPlan | None:
            if planner not in known:
                known[planner] = choose(planner)
            return known[planner]

        alone = self._chosen(self._alone(), remember)
        if alone is None:
            return None
        if self._fits(alone):
            again = self._chosen(self._resplit(alone), remember)
            return again if again is not None and again.cost < alone.cost and self._fits(again) else alone

        def rank(limits: tuple[int, ...]) -> tuple[float, float]:
            plans = [remember(planner) for planner in self._limited(limits)]
            missing = sum(each is None for each in plans)
            return missing, sum(each.cost for each in plans if each is not None)

        found = self._chosen(self._limited(self._shifted(rank)), remember)
        return self._chosen(self.earliest().planners, remember) if found is None else found

    def earliest(self) -> ChosenPlans:
        """Return the plans that can meet the earliest deadline."""
        share = 1.0 - self.risk
        alone = self._chosen(self._alone(), JobPlanner.earliest)
        assert alone is not None
        if self._fits(alone):
            return alone

        def rank(limits: tuple[int, ...]) -> tuple[float, float]:
            plans = [planner.earliest() for planner in self._limited(limits)]
            return max(each.quantile(share) for each in plans), sum(each.cost for each in plans)

        found = self._chosen(self._limited(self._shifted(rank)), JobPlanner.earliest)
        assert found is not None
        return found

    def front(self, budget: float | None = None) -> list[ChosenPlans]:
        """Return plans of which none is expected to be both faster and cheaper than another, fastest first.

        With a budget, plans that cost no more are sought once more, if there is one job.
        """
        planners = self._alone()
        found = [each for each in self._combined(planners) if self._fits(each)]
        if found and self._running and len(planners) > 1:
            found += [each for each in self._combined(self._resplit(found[0])) if self._fits(each)]
        if budget is not None and len(planners) == 1:
            found += [ChosenPlans(tuple(planners), (each,)) for each in planners[0].within(budget)]
        if self._instance.max_count is not None and len(self._jobs) > 1:
            found += self._combined(self._limited(self._proportional()))
        figures = [(float(each.seconds.mean()), float(each.costs.mean()), each) for each in found]
        front: list[ChosenPlans] = []
        least, latest = math.inf, -math.inf
        for seconds, cost, each in sorted(figures, key=lambda figure: figure[:2]):
            if cost < least and seconds > latest:
                front.append(each)
                least, latest = cost, seconds
        return front

    def _combined(self, planners: Sequence[JobPlanner]) -> list[ChosenPlans]:
        """Return for rising times what the jobs do that are done by then at the least cost."""
        fronts = [planner.front() for planner in planners]
        first = max(front[0].time for front in fronts)
        times = sorted({each.time for front in fronts for each in front if each.time >= first})
        if len(fronts) > 1 and len(times) > MOST_PLANS:
            times = [times[round(n * (len(times) - 1) / (MOST_PLANS - 1))] for n in range(MOST_PLANS)]
        # The last of a front that is in time is the cheapest.
        return [
            ChosenPlans(
                tuple(planners), tuple([each for each in front if each.time <= time][-1] for front in fronts)
            )
            for time in times
        ]

    def _chosen(self, planners: Sequence[JobPlanner], choose: Choose) -> ChosenPlans | None:
        plans = [choose(planner) for planner in planners]
        found = tuple(each for each in plans if each is not None)
        return ChosenPlans(tuple(planners), found) if len(found) == len(plans) else None

    def _fits(self, chosen: ChosenPlans) -> bool:
        most = self._instance.max_count
        return most is None or len(self._jobs) == 1 or chosen.peak <= most

    def _alone(self) -> list[JobPlanner]:
        """Return planners that may use all nodes."""
        running = shares(self._running, self._jobs, least=0)
        return [self._planner(index, self._instance.max_count, have) for index, have in enumerate(running)]

    def _resplit(self, chosen: ChosenPlans) -> list[JobPlanner]:
        """Return planners to which the nodes that are running belong as they are needed at first."""
        left, running = self._running, list[int]()
        for plan in chosen.plans:
            running.append(min(left, plan.counts[0]))
            left -= running[-1]
        running[0] += left
        return [self._planner(index, self._instance.max_count, have) for index, have in enumerate(running)]

    def _proportional(self) -> tuple[int, ...]:
        assert self._instance.max_count is not None
        return tuple(shares(self._instance.max_count, self._jobs, least=1))

    def _limited(self, limits: Sequence[int]) -> list[JobPlanner]:
        """Return planners that may each use so many nodes."""
        running = shares(self._running, self._jobs, least=0)
        return [
            self._planner(index, limit, min(have, limit))
            for index, (limit, have) in enumerate(zip(limits, running, strict=True))
        ]

    def _shifted(self, rank: Callable[[tuple[int, ...]], tuple[float, float]]) -> tuple[int, ...]:
        """Return limits that no shift of a node from one job to another improves."""
        limits = self._proportional()
        best = rank(limits)
        shift, tries = max(1, max(limits) // 4), 0
        while shift and tries < MOST_TRIES:
            before = best
            for of, to in permutations(range(len(limits)), 2):
                if limits[of] > shift:
                    other = tuple(n + shift * ((job == to) - (job == of)) for job, n in enumerate(limits))
                    tries += 1
                    if rank(other) < best:
                        best, limits = rank(other), other
            if best >= before:
                shift //= 2
        return limits

    def _planner(self, index: int, limit: int | None, running: int) -> JobPlanner:
        key = (index, limit, running)
        if key not in self._planners:
            self._planners[key] = JobPlanner(
                self._jobs[index],
                self._instance,
                limit=limit,
                running=running,
                risk=self.risk,
                seed=self._seed + index,
                ahead=self._ahead,
            )
        return self._planners[key]

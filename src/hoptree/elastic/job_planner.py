"""Plans for one job: candidates from all methods, compared on the same samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np

from hoptree.elastic.allocation import Allocation, Range, StagePlan
from hoptree.elastic.dynamic_programme import FEW_LABELS, MOST_LABELS, TOLERANCE, DynamicProgramme, Outcome
from hoptree.elastic.greedy import algorithm_2, cheapest_outcome, greedy, naive_outcomes, static_outcomes
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.samples import Samples, StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import NodeTimeline, Terms, expected_timeline, timeline

Method: TypeAlias = Literal["static", "dynamic", "greedy", "algorithm-2", "naive"]
RETRIES = 8
"""How often a plan is sought for an earlier deadline, because the last one was late in too many samples."""
CLOSE = 0.01
"""Which share of the time until the deadline may remain."""
STARTS = 2
"""From how many plans steps are taken that save money by the samples."""
SWEEPS = 4
"""How often all stages are gone through for steps that save money by the samples."""
FRONT_LABELS = 96
"""The labels of the dynamic programme for the whole front."""
SAMPLED_LABELS = 48
"""The labels of the dynamic programme if its plans are compared by samples afterwards."""


class SampledPlan(NamedTuple):
    """A plan of a job; ``seconds`` and ``costs`` are samples, one if there is no spread."""

    method: Method
    counts: tuple[int, ...]
    seconds: Samples
    costs: Samples

    @property
    def time(self) -> float:
        """The expected time."""
        return float(self.seconds.mean())

    @property
    def cost(self) -> float:
        """The expected cost."""
        return float(self.costs.mean())

    def quantile(self, share: float) -> float:
        """Return by when it is done in that share of the samples."""
        return upper(self.seconds, share)

    def late(self, deadline: float) -> float:
        """Return in which part of the samples the deadline is missed."""
        return float((self.seconds > deadline).mean())


@final
class JobPlanner:
    """Plans for one job of which at most the share ``risk`` of the samples misses the deadline."""

    def __init__(
        self, job: Job, instance: Instance, *, limit: int | None, running: int, risk: float, seed: int, ahead: bool
    ) -> None:
        self._model = StageModel(job, instance)
        self._terms = Terms(instance, job.data_gb, ahead=ahead)
        self._most = limit
        self._running = running
        self._risk = risk
        self._counts = self._model.counts(self._most)
        self._programme = DynamicProgramme(self._model, self._terms, self._counts, running=running)
        spread = any(stage.spread > 0 for stage in job.stages)
        self._sampler = StageSampler(self._model, seed=seed) if spread else None
        self._labels = SAMPLED_LABELS if spread else MOST_LABELS
        self._candidates: dict[tuple[int, ...], SampledPlan] = {}
        self._outcomes: list[Outcome] = []  # of the dynamic programme, once the front is known
        self._front: list[SampledPlan] | None = None
        self._static = static_outcomes(self._model, self._terms, self._counts, running=running)

    def static(self, deadline: float) -> SampledPlan | None:
        """Return the cheapest plan with the same nodes in all stages."""
        return self._best((self._candidate("static", each) for each in self._static), deadline)

    def naive(self, deadline: float) -> SampledPlan | None:
        """Return the cheapest plan with the same devices per trial in all stages."""
        outcomes = naive_outcomes(self._model, self._terms, running=self._running, most=self._most)
        return self._best((self._candidate("naive", each) for each in outcomes), deadline)

    def algorithm_2(self, deadline: float) -> SampledPlan | None:
        """Return the plan of algorithm 2."""

        def find(target: float) -> list[SampledPlan]:
            static = cheapest_outcome(self._static, target)
            if static is None:
                return []
            found = algorithm_2(self._model, self._terms, target, static, running=self._running, most=self._most)
            return [self._candidate("algorithm-2", found)]

        return self._best(self._in_time(find, deadline), deadline)

    def greedy(self, deadline: float) -> SampledPlan | None:
        """Return the plan of the greedy search."""

        def find(target: float) -> list[SampledPlan]:
            static = cheapest_outcome(self._static, target)
            return [] if static is None else [self._stepped(target, static)]

        return self._best(self._in_time(find, deadline), deadline)

    def cheapest(self, deadline: float) -> SampledPlan | None:
        """Return the cheapest plan of all methods."""
        if self._sampler is None:
            found = self._search(deadline)
        else:
            found = list(self._known())
            likely = self._best(found, deadline)
            if likely is not None:
                # The search knows expected times only: leave it so much time less as this plan's samples need more.
                slack = likely.quantile(1.0 - self._risk) - self._expected(likely).seconds
                found += self._search(deadline - max(0.0, slack))
            timely = sorted(
                (each for each in found if each.late(deadline) <= self._risk), key=lambda each: each.cost
            )
            starts = list(dict.fromkeys(each.counts for each in timely))[:STARTS]
            for counts in starts or [self._quickest().counts]:
                found.append(self._improved(self._candidates[counts], deadline))
        static = self.static(deadline)
        return self._best(found if static is None else [static, *found], deadline)

    def front(self) -> list[SampledPlan]:
        """Return the plans of which none is both faster and cheaper than another, fastest first."""
        if self._front is None:
            self._front = []
            for each in sorted([*self._known(), self.earliest()], key=lambda each: (each.time, each.cost)):
                if not self._front or each.cost < self._front[-1].cost:
                    self._front.append(each)
        return self._front

    def within(self, budget: float) -> list[SampledPlan]:
        """Return plans that are expected to cost no more than a budget and are not dominated."""
        outcomes = self._programme.outcomes(budget=budget * (1 + TOLERANCE), most=self._labels)
        return [self._candidate("dynamic", each) for each in outcomes]

    def earliest(self) -> SampledPlan:
        """Return the plan that can meet the earliest deadline."""
        return self._improved(self._quickest(), 0.0)

    def allocation(self, chosen: SampledPlan) -> Allocation:
        """Return a plan in the form in which it is kept."""
        line = self._line(chosen.counts)
        stages = tuple(
            StagePlan(stage.trials, count, self._model.share(stage.trials, count).width, _mean(begin), _mean(end))
            for stage, count, begin, end in zip(
                self._model.job.stages, chosen.counts, line.begins, line.ends, strict=True
            )
        )
        return Allocation(self._model.instance, stages, range_of(chosen.seconds), range_of(chosen.costs))

    def _known(self) -> list[SampledPlan]:
        """Return all static plans, and those that the dynamic programme finds without a deadline."""
        if not self._outcomes:
            self._outcomes = self._programme.outcomes(most=min(self._labels, FRONT_LABELS))
        found = [self._candidate("static", each) for each in self._static]
        return [*found, *(self._candidate("dynamic", each) for each in self._outcomes)]

    def _quickest(self) -> SampledPlan:
        return min(self._known(), key=lambda each: (each.quantile(1.0 - self._risk), each.cost))

    def _improved(self, plan: SampledPlan, deadline: float) -> SampledPlan:
        """Return a plan that is in time and costs less by the samples: a step at a time, in one or two stages."""
        if self._sampler is None:
            return plan

        def rank(each: SampledPlan) -> tuple[float, float]:
            return max(deadline, each.quantile(1.0 - self._risk)), each.cost

        for _ in range(SWEEPS):
            before = plan
            for stage in range(len(plan.counts)):
                for counts in self._near(plan.counts, stage):
                    other = self._candidate("dynamic", Outcome(0.0, 0.0, counts))
                    plan = min(plan, other, key=rank)
            if plan is before:
                break
        return plan

    def _near(self, counts: tuple[int, ...], stage: int) -> Iterator[tuple[int, ...]]:
        """Yield plans with a little fewer or more nodes in a stage, or in it and the next one."""
        place = bisect_left(self._counts, counts[stage])
        near = set(self._counts[max(0, place - 2) : place + 3])
        near |= {2 * counts[stage], -(-counts[stage] // 2)} & set(self._counts)
        near |= set(counts[max(0, stage - 1) : stage + 2])
        for count in sorted(near):
            yield (*counts[:stage], count, *counts[stage + 1 :])
            yield (*counts[:stage], count, count, *counts[stage + 2 :])[: len(counts)]

    def _search(self, deadline: float) -> list[SampledPlan]:
        """Return what the greedy search and the dynamic programme find by expected times."""
        static = cheapest_outcome(self._static, deadline)
        found = [] if static is None else [self._stepped(deadline, static)]
        budget = self._expected(found[0]).cost if found else math.inf
        known = cheapest_outcome(self._outcomes, deadline)
        if known is not None:
            budget = min(budget, known.cost)
            found.append(self._candidate("dynamic", known))
        limits = (self._labels,) if known is not None else (FEW_LABELS, self._labels)
        best = self._programme.cheapest(deadline, budget, limits)
        return found if best is None else [*found, self._candidate("dynamic", best)]

    def _stepped(self, deadline: float, static: Outcome) -> SampledPlan:
        found = greedy(self._model, self._terms, self._counts, deadline, static, running=self._running)
        return self._candidate("greedy", found)

    def _expected(self, chosen: SampledPlan) -> NodeTimeline:
        return expected_timeline(chosen.counts, self._model, self._terms, running=self._running)

    def _in_time(self, find: Callable[[float], list[SampledPlan]], deadline: float) -> list[SampledPlan]:
        """Return what is found for the target, and for others until it seldom misses the deadline, but uses it."""
        found: list[SampledPlan] = []
        target = deadline
        for _ in range(RETRIES):
            new = find(target)
            if not new:
                break
            found += new
            left = deadline - min(each.quantile(1.0 - self._risk) for each in new)
            if 0.0 <= left <= CLOSE * deadline:
                break
            target += left if left > 0 else min(left, -0.001 * deadline)
        return found

    def _best(self, candidates: Iterable[SampledPlan], deadline: float) -> SampledPlan | None:
        """Return the cheapest plan that is seldom late, of several the fastest."""
        timely = [each for each in candidates if each.late(deadline) <= self._risk]
        least = min((each.cost for each in timely), default=0.0) * (1 + TOLERANCE)
        return min((each for each in timely if each.cost <= least), key=lambda each: each.time, default=None)

    def _candidate(self, method: Method, outcome: Outcome) -> SampledPlan:
        """Return a plan with its samples; the same plan, whatever found it, has the same figures."""
        found = self._candidates.get(outcome.counts)
        if found is None:
            line = self._line(outcome.counts)
            found = SampledPlan(method, outcome.counts, np.atleast_1d(line.seconds), np.atleast_1d(line.cost))
            self._candidates[outcome.counts] = found
        return found._replace(method=method)

    def _line(self, counts: tuple[int, ...]) -> Any:
        if self._sampler is None:
            return expected_timeline(counts, self._model, self._terms, running=self._running)
        times = self._sampler.times(counts)
        return timeline(counts, times, self._model, self._terms, running=self._running, longer=np.maximum)


def upper(samples: Samples, share: float) -> float:
    """Return a value that at least that share of the samples does not exceed."""
    return float(np.quantile(samples, share, method="higher"))


def range_of(samples: Samples) -> Range:
    """Return the mean of samples, and between what nine of ten lie."""
    if samples.size == 1:
        return Range(float(samples[0]), float(samples[0]), float(samples[0]))
    return Range(float(samples.mean()), float(np.quantile(samples, 0.05)), float(np.quantile(samples, 0.95)))


def _mean(value: Any) -> float:
    return float(np.mean(value))

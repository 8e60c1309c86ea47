"""Promotion before a rung has ended: of trials that are certain to be among its best, and whether that pays."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import final

import msgspec
import numpy as np

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.samples import Samples, StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import StageTime, Terms, timeline

SAMPLES = 64


def certain_to_stay(losses: Mapping[str, float], trials: int, keep: int) -> list[str]:
    """Return which trials are among the ``keep`` best of a rung whatever the others report, the best first.

    ``losses`` are those that have been reported, of ``trials`` in the rung. Of equal losses, the earlier report is
    the better one.

    >>> certain_to_stay({"a": 0.3, "b": 0.1, "c": 0.2}, trials=4, keep=2)
    ['b']
    """
    if not 0 <= keep <= trials or len(losses) > trials:
        raise WorkloadError(
            f"keep: {keep} of {trials} trials, {len(losses)} reported; expected no more than there are"
        )
    waiting = trials - len(losses)
    ranked = sorted(losses, key=lambda name: losses[name])
    return ranked[: max(0, keep - waiting)]


class EarlyPromotion(msgspec.Struct, frozen=True):
    """How much less time and money a plan is expected to take with early promotion; negative: more."""

    seconds: float
    cost: float

    @property
    def pays(self) -> bool:
        """Whether it saves money and takes no longer."""
        return self.cost > 0 and self.seconds >= 0


def early_promotion(
    job: Job,
    instance: Instance,
    counts: Sequence[int],
    *,
    seed: int = 0,
    ahead: bool = True,
    samples: int = SAMPLES,
) -> EarlyPromotion:
    """Return what early promotion saves, by simulation, with a number of nodes for each stage.

    Which trial is the best is drawn, like its times. A promoted trial begins as soon as enough devices are free.
    The nodes of a stage are released when all of its trials have ended, with and without early promotion.
    """
    model, terms = StageModel(job, instance), Terms(instance, job.data_gb, ahead=ahead)
    sampler = StageSampler(model, seed=seed, samples=samples)
    generator = np.random.default_rng(seed)
    ranks = [
        np.argsort(generator.random((stage.trials, samples)), axis=0).astype(np.float64) for stage in job.stages
    ]
    figures: list[tuple[float, float]] = []
    for early in (False, True):
        ends = np.array(
            [
                _StageSimulation(model, counts, sampler, ranks, sample, early=early).ends()
                for sample in range(samples)
            ]
        )
        lasted = np.diff(ends, axis=1, prepend=0.0)
        times = [
            StageTime(lasted[:, index], model.busy(index, count), float(lasted[:, index].mean()))
            for index, count in enumerate(counts)
        ]
        line = timeline(counts, times, model, terms, longer=np.maximum)
        figures.append((float(np.mean(line.seconds)), float(np.mean(line.cost))))
    (seconds, cost), (early_seconds, early_cost) = figures
    return EarlyPromotion(seconds - early_seconds, cost - early_cost)


@final
class _StageSimulation:
    """One run of all stages, with trials as tasks that need devices."""

    def __init__(
        self,
        model: StageModel,
        counts: Sequence[int],
        sampler: StageSampler,
        ranks: Sequence[Samples],
        sample: int,
        *,
        early: bool,
    ) -> None:
        self._stages = model.job.stages
        self._counts = [count * model.instance.devices for count in counts]
        self._shares = [model.share(stage.trials, count) for stage, count in zip(self._stages, counts, strict=True)]
        self._seconds = [sampler.trials(index)[:, sample] for index in range(len(counts))]
        self._ranks = [each[:, sample] for each in ranks]
        self._early = early
        self._stage = 0  # the first that has not ended
        self._ended: list[dict[str, float]] = [{} for _ in counts]
        self._begun = [0] * len(counts)
        self._waiting: list[int] = []  # the stages of trials that may begin, in the order of promotion
        self._running: list[tuple[float, int, int]] = []  # when a trial ends, its stage, its number

    def ends(self) -> list[float]:
        """Return when each stage ends."""
        ends: list[float] = []
        used, now = 0, 0.0
        self._waiting = [0] * self._stages[0].trials
        while len(ends) < len(self._stages):
            used = self._begin(now, used)
            now, stage, trial = heapq.heappop(self._running)
            used -= self._shares[stage].width
            self._ended[stage][str(trial)] = float(self._ranks[stage][trial])
            self._promote(stage)
            while self._stage < len(self._stages) and self._all_ended(self._stage):
                ends.append(now)
                self._stage += 1
        return ends

    def _begin(self, now: float, used: int) -> int:
        """Begin the trials for which devices are free, and return how many devices are in use."""
        capacity = self._counts[self._stage]
        waiting, self._waiting = self._waiting, []
        for position, stage in enumerate(waiting):
            share = self._shares[stage]
            # What began on more devices before may still hold more than there are now.
            if used + share.width > capacity and self._running:
                self._waiting = waiting[position:]
                break
            trial = self._begun[stage]
            self._begun[stage] += 1
            heapq.heappush(self._running, (now + self._seconds[stage][trial] / share.speed, stage, trial))
            used += share.width
        return used

    def _promote(self, stage: int) -> None:
        """Let trials of the next stage begin."""
        if stage + 1 == len(self._stages):
            return
        trials, keep = self._stages[stage].trials, min(self._stages[stage + 1].trials, self._stages[stage].trials)
        if self._all_ended(stage):
            number = self._stages[stage + 1].trials
        elif self._early:
            number = len(certain_to_stay(self._ended[stage], trials, keep))
        else:
            number = 0
        promoted = self._begun[stage + 1] + self._waiting.count(stage + 1)
        self._waiting += [stage + 1] * (number - promoted)

    def _all_ended(self, stage: int) -> bool:
        return len(self._ended[stage]) == self._stages[stage].trials

"""What is left of a job during a run, read from the state of the study."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, final

from hoptree.core.lineage import History, Values, segments
from hoptree.core.plan import Plan
from hoptree.core.trial import Trial
from hoptree.driver.planned_jobs import PlannedJob
from hoptree.driver.stage_work import StageWork, TrainingTimes, relative_spread
from hoptree.elastic.job import JobStage
from hoptree.search.rungs import Rung

if TYPE_CHECKING:
    from hoptree.core.study_state import StudyState


@final
class RemainingStages:
    """What is left of one job."""

    def __init__(self, state: StudyState, job: PlannedJob, members: Sequence[Trial], times: TrainingTimes) -> None:
        self._state = state
        self._job = job
        self._members = members
        self._times = times

    def by_rungs(self) -> tuple[int, list[JobStage]]:
        """Return how many rungs have closed, and the stages that are left."""
        closed, stages, first = 0, list[JobStage](), 0
        for position, bracket in enumerate(self._job.brackets):
            rows = slice(first, first + len(bracket.rungs))
            works, spreads = self._job.stages[rows], self._job.spreads[rows]
            first += len(bracket.rungs)
            end = self._job.brackets[position + 1].first if position + 1 < len(self._job.brackets) else math.inf
            members = [t for t in self._members if t.asked_by and bracket.first <= t.asked_by[1] < end]
            live = [trial for trial in members if trial.ending is None]
            rung = max(
                (bracket.rung(trial.until) for trial in members if trial.ending in (None, "complete")), default=-1
            )
            if members and not live:  # the trials of a rung that has just closed are continued next
                rung = len(bracket.rungs) if rung < 0 else rung + 1
            rung = max(rung, 0)
            closed += rung
            if rung == len(bracket.rungs):
                continue
            if live:
                now = open_work(self._state.plan, live)
                stages.append(now.stage(self._times, spread=_spread_left(self._state.plan, live)))
            scale = self._scale(works[rung], live, bracket.rungs, rung)
            for later in range(rung + bool(live), len(bracket.rungs)):
                work = works[later]._replace(
                    lineages=min(works[later].lineages, len(members) or works[later].lineages)
                )
                stages.append(work.stage(self._times, scale=scale, spread=spreads[later]))
        return closed, stages

    def _scale(self, work: StageWork, live: Sequence[Trial], rungs: Sequence[Rung], rung: int) -> float:
        """Return how much longer the trials that are left take for a unit than those of the play."""
        played = work.size and work.seconds(self._times.unit) / work.size
        if not live or not played:
            return 1.0
        begin = rungs[rung - 1].epochs if rung else 0
        partitions = self._state.settings.partitions
        mean = sum(
            _mean_seconds(trial.history, partitions, begin, rungs[rung].epochs, self._times.unit) for trial in live
        ) / len(live)
        return mean / played

    def by_units(self) -> tuple[int, list[JobStage]]:
        """Return how many played stages are trained by now, by number of units, and the stages that are left."""
        works, plan = self._job.stages, self._state.plan
        live = [trial for trial in self._members if trial.ending is None]
        now = open_work(plan, live)
        if not self._members:
            return 0, [work.stage(self._times) for work in works]
        done = plan.work(self._members, done=True).unique
        index, before = 0, 0.0
        while index < len(works) - 1 and before + works[index].size <= done:
            before += works[index].size
            index += 1
        if not live:
            return len(works), []
        later = works[index + 1 :]
        size = sum(work.size for work in later)
        left = max(0.0, sum(work.size for work in works) - done - now.size)
        stages = [now.stage(self._times, spread=_spread_left(plan, live))]
        if size and left:
            stages += [work.stage(self._times, scale=left / size) for work in later]
        return index, stages


def _mean_seconds(phases: History, partitions: int, begin: int, end: int, unit: Callable[[Values], float]) -> float:
    """Return the mean seconds of a trial's units from one epoch to another."""
    first, last = begin * partitions, end * partitions
    parts = segments(phases, partitions, last)
    ends = [*(part.start for part in parts[1:]), last]
    total = sum(
        max(0, stop - max(first, part.start)) * unit(part.values) for part, stop in zip(parts, ends, strict=True)
    )
    return total / max(1, last - first)


def open_work(plan: Plan, live: Iterable[Trial]) -> StageWork:
    """Return what has to be trained for trials: units that no stored state covers, each once."""
    units: Counter[Values] = Counter()
    evaluations: Counter[Values] = Counter()
    places = {place for trial in live for place in trial.open.values()}
    for stage in plan.stages(places):
        units[plan.nodes[stage.node].values] += stage.last - stage.first
    for node, _ in places:
        evaluations[node.values] += 1
    tips = {max(trial.open.values(), key=lambda place: place.unit) for trial in live if trial.open}
    return StageWork(len(tips), dict(units), dict(evaluations))


def _spread_left(plan: Plan, live: Sequence[Trial]) -> float:
    """Return how much the units that trials have left differ, relative to their mean."""
    left: list[float] = []
    for trial in live:
        if trial.open:
            node, unit = max(trial.open.values(), key=lambda place: place.unit)
            source = plan.source(node, unit)
            left.append(float(unit - (source.unit if source is not None else 0)))
    return relative_spread(left)

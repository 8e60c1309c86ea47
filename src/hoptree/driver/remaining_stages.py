"""What is left of a job during a run, read from the state of the study."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, final

from hoptree.core.lineage import History, Values, segments
from hoptree.core.plan import Plan
from hoptree.core.trial import Trial
from hoptree.driver.planned_jobs import PlannedJob
from hoptree.driver.stage_work import StageWork, TrainingTimes, relative_spread
from hoptree.elastic.job import JobStage

if TYPE_CHECKING:
    from hoptree.core.study_state import StudyState


TrialUnits: TypeAlias = tuple[tuple[Values, int], ...]
"""Units by values."""
KnownUnits: TypeAlias = dict[tuple[int, int, int], TrialUnits]
"""By trial, the units from one epoch to another; histories of trials do not change."""


@final
class RemainingStages:
    """What is left of one job."""

    def __init__(
        self,
        state: StudyState,
        job: PlannedJob,
        members: Sequence[Trial],
        times: TrainingTimes,
        known: KnownUnits,
    ) -> None:
        self._known = known
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
            begin = bracket.rungs[rung - 1].epochs if rung else 0
            compared = [t for t in members if t.ending in (None, "complete") and bracket.rung(t.until) == rung]
            scale = self._scale(works[rung], compared, begin, bracket.rungs[rung].epochs)
            for later in range(rung + bool(live), len(bracket.rungs)):
                work = works[later]._replace(
                    lineages=min(works[later].lineages, len(members) or works[later].lineages)
                )
                stages.append(work.stage(self._times, scale=scale, spread=spreads[later]))
        return closed, stages

    def _scale(self, work: StageWork, members: Sequence[Trial], begin: int, end: int) -> float:
        """Return how much longer trials take for a unit, from one epoch to another, than those of the play."""
        if not members or not work.size:
            return 1.0
        played = work.seconds(self._times.unit) / work.size
        units = [self._units_of(trial, begin, end) for trial in members]
        seconds = sum(count * self._times.unit(values) for parts in units for values, count in parts)
        size = sum(count for parts in units for _, count in parts)
        return seconds / size / played if played else 1.0

    def _units_of(self, trial: Trial, begin: int, end: int) -> TrialUnits:
        key = trial.number, begin, end
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _trial_units(trial.history, self._state.settings.partitions, begin, end)
        return found

    def by_units(self) -> tuple[int, list[JobStage]]:
        """Return how many played stages are trained by now, by number of units, and the stages that are left."""
        works, plan = self._job.stages, self._state.plan
        live = [trial for trial in self._members if trial.ending is None]
        now = open_work(plan, live)
        if not self._members:
            return 0, [work.stage(self._times) for work in works]
        requested = plan.work(self._members).unique
        done = requested - now.size
        index, before = 0, 0.0
        while index < len(works) - 1 and before + works[index].size <= done:
            before += works[index].size
            index += 1
        if not live:
            return len(works), []
        here, later = works[index], works[index + 1 :]
        size = sum(work.size for work in later)
        left = max(0.0, sum(work.size for work in works) - requested)  # what is still to be requested
        rest = min(left, max(0.0, before + here.size - requested))  # in this stage
        both = now.plus(here.scaled(rest / here.size if here.size else 0.0))
        stages = [both.stage(self._times, spread=0.0 if rest else _spread_left(plan, live))]
        stages += [work.stage(self._times, scale=min(1.0, (left - rest) / size)) for work in later if size]
        return index, stages


def _trial_units(phases: History, partitions: int, begin: int, end: int) -> TrialUnits:
    """Return the values of a trial's units from one epoch to another, with the number of units."""
    first, last = begin * partitions, end * partitions
    parts = segments(phases, partitions, last)
    ends = [*(part.start for part in parts[1:]), last]
    counts = [(part.values, stop - max(first, part.start)) for part, stop in zip(parts, ends, strict=True)]
    return tuple((values, count) for values, count in counts if count > 0)


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

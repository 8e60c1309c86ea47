"""The chronicler: a watch of the drive loop, or of a journal read again, that remembers what happened when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from hoptree.core.actions import EndTrial, Evaluate, Report, RunUnit
from hoptree.core.events import (
    DriverStarted,
    StateEvaluated,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.plan import Node, Trial
from hoptree.core.steps import AnyRun, Step
from hoptree.core.study_state import StudyState
from hoptree.report.study_timeline import Hop, StudyProgress, StudyTimeline, TimedReport, TreeNode, TrialTimeline
from hoptree.report.timeline import Span, Timeline, short_name

_MOST_MOMENTS = 2_000
_OTHERS = "other trials"


@final
class TimelineBuilder:
    """Listens to the steps of an engine, or of a journal, and tells of them when asked.

    A journal has the moments at which units were given out and ended; a unit begins when it is given out, or
    when its worker has ended what it did before.
    """

    def __init__(self, state: StudyState) -> None:
        self.state = state
        self._now = 0.0
        self._units = 0
        self._given: dict[int, float] = {}  # by run, when it was given out
        self._free: dict[str, float] = {}  # since when a worker has nothing under way
        self._lost: dict[str, float] = {}
        self._there: dict[str, str] = {}  # who is there, and what it is called
        self._called: dict[str, str] = {}  # … of all who ever were
        self._spans: list[Span] = []
        self._hops: list[Hop] = []
        self._made: dict[tuple[int, int], float] = {}
        self._seconds: dict[tuple[int, int], float] = {}
        self._told: dict[int, dict[int, TimedReport]] = {}  # by trial and epoch
        self._grants: dict[int, list[tuple[float, int]]] = {}
        self._ended: dict[int, float] = {}
        self._sources: dict[int, int] = {}

    def see(self, step: Step) -> None:
        """Take an event in, with what the engine made of it."""
        event, now, run = step.event, step.now, step.run
        self._now = now
        match event:
            case UnitFinished():
                if isinstance(run, RunUnit):
                    self._finished(run, now)
            case StateEvaluated() if run is not None:
                self._end(run, now, "evaluation", riding=step.evaluating)
            case UnitFailed() | UnitCancelled() if run is not None:
                self._end(run, now, "failed", riding=step.evaluating)
            case WorkerLost(worker):
                self._gone(worker, now, step.lost)
            case DriverStarted():
                for worker in list(self._there):
                    self._gone(worker, now, [each for each in step.lost if each.worker == worker])
            case WorkerJoined(worker):
                if worker in self._lost:
                    self._spans.append(Span(worker, self._lost.pop(worker), now, "down", 0, "", -1, -1))
                self._free[worker] = now
                if worker not in self._there:
                    known = self._called.get(worker, "")
                    free = known and known not in self._there.values()
                    name = known if free else short_name(self._there.values())
                    self._there[worker] = self._called[worker] = name
            case TrialAsked(trial=number) | TrialExtended(trial=number):
                self._grants.setdefault(number, []).append((now, event.until))
            case TrialBranched(trial=number):
                self._grants.setdefault(number, []).append((now, event.until))
                self._sources[number] = event.source
        for action in step.actions:
            if isinstance(action, RunUnit | Evaluate):
                self._given[action.run] = now
            elif isinstance(action, Report):
                told = TimedReport(
                    action.epoch, now, self._units / self.state.plan.partitions, dict(action.metrics)
                )
                self._told.setdefault(action.trial, {}).setdefault(action.epoch, told)
            elif isinstance(action, EndTrial):
                self._ended[action.trial] = now

    # --- runs -------------------------------------------------------------------------------------------

    def _finished(self, run: RunUnit, now: float) -> None:
        begun = self._span(run, self._given.pop(run.run, now), now, "unit")
        self._units += 1
        self._seconds[run.node, run.unit] = now - begun
        self._made[run.node, run.unit + 1] = now
        if run.home and run.home != run.worker:
            left = self._made.get((run.source, run.unit), begun)
            self._hops.append(Hop(run.node, run.home, min(left, begun), run.worker, begun))

    def _end(self, run: AnyRun, now: float, kind: str, *, riding: bool) -> None:
        """Note the end of an evaluation, or of what came to nothing; an evaluation may ride on a unit."""
        if riding and isinstance(run, RunUnit):
            self._span(run, now, now, kind)
            return
        at = self._given.pop(run.run, now)
        # What was taken back before it began took no time.
        if kind == "evaluation" or self._free.get(run.worker, 0.0) <= now:
            self._span(run, at, now, kind)

    def _span(self, action: AnyRun, at: float, now: float, kind: str) -> float:
        """Note what a worker did since it was given it, or since it was free for it; return when that began."""
        free = self._free.get(action.worker, 0.0)
        begun = free if kind == "evaluation" and isinstance(action, RunUnit) else max(at, free)
        begun = min(begun, now)
        partition, epoch = (action.partition, action.epoch) if isinstance(action, RunUnit) else (-1, -1)
        self._spans.append(Span(action.worker, begun, now, kind, action.node, "", partition, epoch))
        self._free[action.worker] = now
        return begun

    def _gone(self, worker: str, now: float, lost: Sequence[AnyRun]) -> None:
        """End what ran on a worker that is gone; what was queued behind it never began."""
        riding = [run for run in lost if run.run not in self._given]
        if riding:
            self._span(riding[0], now, now, "failed")
        elif lost:
            self._span(lost[0], self._given[lost[0].run], now, "failed")
        for run in lost:
            self._given.pop(run.run, None)
        self._lost[worker] = now
        self._there.pop(worker, None)

    # --- telling ----------------------------------------------------------------------------------------

    def chronicle(
        self,
        name: str,
        metric: str,
        maximize: bool,
        *,
        only: str | None = None,
        facts: dict[str, str] | None = None,
        environments: tuple[dict[str, str], ...] = (),
        created: float = 0.0,
    ) -> StudyTimeline:
        """Return what has happened so far; ``only`` names the study whose trials are told of, of a group.

        Workers and hops are those of the whole group: they served all of it.
        """
        trials = [trial for trial in self.state.trials.values() if only is None or trial.study == only]
        numbers = {trial.number: number for number, trial in enumerate(trials)}
        seconds = self._lineage_seconds()
        courses = tuple(self._course(trial, numbers, seconds) for trial in trials)
        twigs = tuple(self._twigs(trials, numbers))
        return StudyTimeline(
            name=name,
            metric=metric,
            maximize=maximize,
            partitions=self.state.plan.partitions,
            courses=courses,
            timeline=self._timeline(numbers),
            hops=tuple(self._named_hops()),
            moments=tuple(self._moments(courses)),
            twigs=twigs,
            facts=facts or {},
            environments=environments,
            created=created,
        )

    def _course(
        self, trial: Trial, numbers: dict[int, int], seconds: Callable[[Trial], list[float]]
    ) -> TrialTimeline:
        told = tuple(each for _, each in sorted(self._told.get(trial.number, {}).items()))
        grants = tuple(self._grants.get(trial.number, ()))
        sums = seconds(trial) if told else []
        source = self._sources.get(trial.number)
        return TrialTimeline(
            number=numbers[trial.number],
            config=dict(trial.history[-1].config),
            state=trial.ending or "running",
            error=trial.reason,
            begun=grants[0][0] if grants else 0.0,
            ended=self._ended.get(trial.number) if trial.ending else None,
            reports=told,
            grants=grants,
            seconds=tuple(sums[min(each.epoch, len(sums) - 1)] for each in told),
            source=None if source is None else numbers.get(source),
        )

    def _lineage_seconds(self) -> Callable[[Trial], list[float]]:
        """Return what gives a trial's seconds after each epoch, from the units that were trained.

        Units that came from the store were not measured here: they count as the mean of those that were, of their
        node if there are any.
        """
        plan = self.state.plan
        by_node: dict[int, list[float]] = {}
        for (node, _), taken in self._seconds.items():
            by_node.setdefault(node, []).append(taken)
        usual = math.fsum(self._seconds.values()) / len(self._seconds) if self._seconds else 0.0
        means = {node: math.fsum(each) / len(each) for node, each in by_node.items()}

        def seconds(trial: Trial) -> list[float]:
            total, sums = 0.0, [0.0]
            first = 0
            for node, end in plan.way(trial, max(trial.done, trial.reached) * plan.partitions):
                mean = means.get(node.id, usual)
                for unit in range(first, end):
                    total += self._seconds.get((node.id, unit), mean)
                    if (unit + 1) % plan.partitions == 0:
                        sums.append(total)
                first = end
            return sums

        return seconds

    def _twigs(self, trials: list[Trial], numbers: dict[int, int]) -> list[TreeNode]:
        plan = self.state.plan
        reach: dict[int, int] = {}
        passing: dict[int, list[int]] = {}
        for trial in trials:
            for node, end in plan.way(trial, trial.epochs * plan.partitions):
                reach[node.id] = max(reach.get(node.id, 0), end)
                passing.setdefault(node.id, []).append(numbers[trial.number])
        return [self._twig(plan.nodes[node], end, tuple(passing[node])) for node, end in sorted(reach.items())]

    def _twig(self, node: Node, end: int, trials: tuple[int, ...]) -> TreeNode:
        partitions = self.state.plan.partitions
        parent = node.parent
        told = max((unit for unit in node.reports if unit <= end), default=0)
        return TreeNode(
            node=node.id,
            parent=None if parent is None or parent.parent is None else parent.id,
            start=node.start / partitions,
            end=end / partitions,
            trials=trials,
            values=dict(node.values.at(node.start / partitions)),
            told=told / partitions,
            metrics=dict(node.reports.get(told, {})),
        )

    def _timeline(self, numbers: dict[int, int]) -> Timeline:
        plan = self.state.plan
        passing: dict[int, list[int]] = {}
        for trial in self.state.trials.values():
            if trial.number in numbers:  # as far as it was granted: one that failed has no report
                for node, _ in plan.way(trial, trial.until * plan.partitions):
                    passing.setdefault(node.id, []).append(numbers[trial.number])
        labels = {node: _passing(tuple(trials)) for node, trials in passing.items()}
        lanes: dict[str, int] = {}  # nodes of the same trials have one colour and one name
        for lane, label in sorted(labels.items()):
            lanes.setdefault(label, lane)
        spans = tuple(
            Span(
                self._called.get(span.worker, span.worker),
                span.start,
                span.end,
                span.kind,
                lanes.get(labels.get(span.lane, ""), span.lane),
                labels.get(span.lane, _OTHERS),
                span.partition,
                span.epoch,
            )
            for span in self._spans
        )
        names = {*(self._called.get(name, name) for name in self._free), *(span.worker for span in spans)}
        return Timeline(spans, self._now, tuple(sorted(names, key=_natural)))

    def _named_hops(self) -> list[Hop]:
        def called(worker: str) -> str:
            return self._called.get(worker, worker)

        return [Hop(h.lane, called(h.source), h.left, called(h.worker), h.begun) for h in self._hops]

    def _moments(self, courses: tuple[TrialTimeline, ...]) -> list[StudyProgress]:
        """Return the sums over time: a moment for every report and for units, but no more than can be drawn."""
        got, alone = _Sum(), _Sum()
        for course in courses:
            epoch, before = 0, 0.0
            for told, after in zip(course.reports, course.seconds, strict=True):
                got.add(told.now, told.epoch - epoch)
                alone.add(told.now, after - before)
                epoch, before = told.epoch, after
        trained, spent = _Sum(), _Sum()
        for span in self._spans:
            if span.kind == "unit":
                trained.add(span.end, 1 / self.state.plan.partitions)
                spent.add(span.end, span.end - span.start)
        times = sorted({0.0, *got.times, *trained.times})
        step = -(-len(times) // _MOST_MOMENTS)
        times = [*times[:-1:step], times[-1]]
        sums = [each.at(times) for each in (got, trained, spent, alone)]
        return [StudyProgress(*values) for values in zip(times, *sums, strict=True)]


@final
class _Sum:
    """Amounts that came at times."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._amounts: list[float] = []

    def add(self, now: float, amount: float) -> None:
        self.times.append(now)
        self._amounts.append(amount)

    def at(self, times: list[float]) -> list[float]:
        """Return what had come together at each of the times, which rise."""
        order = sorted(zip(self.times, self._amounts, strict=True))
        sums, index = [], 0
        so_far: list[float] = []
        total = 0.0
        for now in times:
            so_far.clear()
            while index < len(order) and order[index][0] <= now:
                so_far.append(order[index][1])
                index += 1
            total += math.fsum(so_far)
            sums.append(total)
        return sums


def _passing(trials: tuple[int, ...]) -> str:
    """Name a node by its trials.

    >>> _passing((3,)), _passing((0, 1, 2)), _passing((0, 4, 7))
    ('trial 3', 'trials 0-2', 'trials 0,4,7')
    """
    if len(trials) == 1:
        return f"trial {trials[0]}"
    if trials[-1] - trials[0] == len(trials) - 1:
        return f"trials {trials[0]}-{trials[-1]}"
    return f"trials {','.join(map(str, trials[:3]))}{',…' if len(trials) > 3 else ''}"


def _natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)

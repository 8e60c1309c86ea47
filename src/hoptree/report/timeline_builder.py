"""Builds the timeline of a study from the steps of an event loop, or of a journal that is read again."""

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

_MOST_POINTS = 2_000
_OTHERS = "other trials"


@final
class TimelineBuilder:
    """Observes the steps of an engine or a journal, and returns the timeline on request.

    A journal holds the times at which units were assigned and ended; a unit starts when it is assigned, or when its
    worker has finished its previous run.
    """

    def __init__(self, state: StudyState) -> None:
        self.state = state
        self._now = 0.0
        self._units = 0
        self._assigned: dict[int, float] = {}  # by run, when it was assigned
        self._free: dict[str, float] = {}  # by worker, when it became idle
        self._lost: dict[str, float] = {}
        self._there: dict[str, str] = {}  # short names of the current workers
        self._called: dict[str, str] = {}  # … of all workers so far
        self._spans: list[Span] = []
        self._hops: list[Hop] = []
        self._made: dict[tuple[int, int], float] = {}
        self._seconds: dict[tuple[int, int], float] = {}
        self._reports: dict[int, dict[int, TimedReport]] = {}  # by trial and epoch
        self._grants: dict[int, list[tuple[float, int]]] = {}
        self._ended: dict[int, float] = {}
        self._sources: dict[int, int] = {}

    def see(self, step: Step) -> None:
        """Process an event and the resulting actions."""
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
                self._left(worker, now, step.lost)
            case DriverStarted():
                for worker in list(self._there):
                    self._left(worker, now, [each for each in step.lost if each.worker == worker])
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
                self._assigned[action.run] = now
            elif isinstance(action, Report):
                report = TimedReport(
                    action.epoch, now, self._units / self.state.plan.partitions, dict(action.metrics)
                )
                self._reports.setdefault(action.trial, {}).setdefault(action.epoch, report)
            elif isinstance(action, EndTrial):
                self._ended[action.trial] = now

    # --- runs -------------------------------------------------------------------------------------------

    def _finished(self, run: RunUnit, now: float) -> None:
        begun = self._span(run, self._assigned.pop(run.run, now), now, "unit")
        for worker in run.crew:
            self._spans.append(Span(worker, begun, now, "unit", run.node, "", run.partition, run.epoch))
            self._free[worker] = now
        self._units += 1
        self._seconds[run.node, run.unit] = now - begun
        self._made[run.node, run.unit + 1] = now
        if run.home and run.home != run.worker:
            left = self._made.get((run.source, run.unit), begun)
            self._hops.append(Hop(run.node, run.home, min(left, begun), run.worker, begun))

    def _end(self, run: AnyRun, now: float, kind: str, *, riding: bool) -> None:
        """Record the end of an evaluation or of a failed run; an evaluation may be part of a unit's run."""
        if riding and isinstance(run, RunUnit):
            self._span(run, now, now, kind)
            return
        at = self._assigned.pop(run.run, now)
        # A run that was cancelled before it started took no time.
        if kind == "evaluation" or self._free.get(run.worker, 0.0) <= now:
            self._span(run, at, now, kind)

    def _span(self, action: AnyRun, at: float, now: float, kind: str) -> float:
        """Record a span since the run was assigned, or since its worker was idle; return its start."""
        free = self._free.get(action.worker, 0.0)
        begun = free if kind == "evaluation" and isinstance(action, RunUnit) else max(at, free)
        begun = min(begun, now)
        partition, epoch = (action.partition, action.epoch) if isinstance(action, RunUnit) else (-1, -1)
        self._spans.append(Span(action.worker, begun, now, kind, action.node, "", partition, epoch))
        self._free[action.worker] = now
        return begun

    def _left(self, worker: str, now: float, lost: Sequence[AnyRun]) -> None:
        """End the current run of a worker that has left; runs queued after it never started."""
        riding = [run for run in lost if run.run not in self._assigned]
        if riding:
            self._span(riding[0], now, now, "failed")
        elif lost:
            self._span(lost[0], self._assigned[lost[0].run], now, "failed")
        for run in lost:
            self._assigned.pop(run.run, None)
        self._lost[worker] = now
        self._there.pop(worker, None)

    # --- the timeline -----------------------------------------------------------------------------------

    def study_timeline(
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
        """Return the timeline so far; ``only`` names the study of a group whose trials are included.

        Workers and hops are those of the whole group, because they are shared.
        """
        trials = [trial for trial in self.state.trials.values() if only is None or trial.study == only]
        numbers = {trial.number: number for number, trial in enumerate(trials)}
        seconds = self._lineage_seconds()
        trial_timelines = tuple(self._trial_timeline(trial, numbers, seconds) for trial in trials)
        tree_nodes = tuple(self._tree(trials, numbers))
        return StudyTimeline(
            name=name,
            metric=metric,
            maximize=maximize,
            partitions=self.state.plan.partitions,
            trials=trial_timelines,
            timeline=self._timeline(numbers),
            hops=tuple(self._named_hops()),
            progress=tuple(self._progress(trial_timelines)),
            tree=tree_nodes,
            facts=facts or {},
            environments=environments,
            created=created,
        )

    def _trial_timeline(
        self, trial: Trial, numbers: dict[int, int], seconds: Callable[[Trial], list[float]]
    ) -> TrialTimeline:
        reports = tuple(each for _, each in sorted(self._reports.get(trial.number, {}).items()))
        grants = tuple(self._grants.get(trial.number, ()))
        sums = seconds(trial) if reports else []
        source = self._sources.get(trial.number)
        return TrialTimeline(
            number=numbers[trial.number],
            config=dict(trial.history[-1].config),
            state=trial.ending or "running",
            error=trial.reason,
            begun=grants[0][0] if grants else 0.0,
            ended=self._ended.get(trial.number) if trial.ending else None,
            reports=reports,
            grants=grants,
            seconds=tuple(sums[min(each.epoch, len(sums) - 1)] for each in reports),
            source=None if source is None else numbers.get(source),
        )

    def _lineage_seconds(self) -> Callable[[Trial], list[float]]:
        """Return a function that gives a trial's training time after each epoch, from the measured units.

        Units from the store were not measured here: they count as the mean of the measured ones, of their node if
        there are any.
        """
        plan = self.state.plan
        by_node: dict[int, list[float]] = {}
        for (node, _), taken in self._seconds.items():
            by_node.setdefault(node, []).append(taken)
        overall = math.fsum(self._seconds.values()) / len(self._seconds) if self._seconds else 0.0
        means = {node: math.fsum(each) / len(each) for node, each in by_node.items()}

        def seconds(trial: Trial) -> list[float]:
            total, sums = 0.0, [0.0]
            first = 0
            for node, end in plan.path_with_ends(trial, max(trial.done, trial.reached) * plan.partitions):
                mean = means.get(node.id, overall)
                for unit in range(first, end):
                    total += self._seconds.get((node.id, unit), mean)
                    if (unit + 1) % plan.partitions == 0:
                        sums.append(total)
                first = end
            return sums

        return seconds

    def _tree(self, trials: list[Trial], numbers: dict[int, int]) -> list[TreeNode]:
        plan = self.state.plan
        reach: dict[int, int] = {}
        passing: dict[int, list[int]] = {}
        for trial in trials:
            for node, end in plan.path_with_ends(trial, trial.epochs * plan.partitions):
                reach[node.id] = max(reach.get(node.id, 0), end)
                passing.setdefault(node.id, []).append(numbers[trial.number])
        return [self._tree_node(plan.nodes[node], end, tuple(passing[node])) for node, end in sorted(reach.items())]

    def _tree_node(self, node: Node, end: int, trials: tuple[int, ...]) -> TreeNode:
        partitions = self.state.plan.partitions
        parent = node.parent
        reported = max((unit for unit in node.reports if unit <= end), default=0)
        return TreeNode(
            node=node.id,
            parent=None if parent is None or parent.parent is None else parent.id,
            start=node.start / partitions,
            end=end / partitions,
            trials=trials,
            values=dict(node.values.at(node.start / partitions)),
            reported=reported / partitions,
            metrics=dict(node.reports.get(reported, {})),
        )

    def _timeline(self, numbers: dict[int, int]) -> Timeline:
        plan = self.state.plan
        passing: dict[int, list[int]] = {}
        for trial in self.state.trials.values():
            if trial.number in numbers:  # up to the granted epochs: a failed trial may have no report
                for node, _ in plan.path_with_ends(trial, trial.until * plan.partitions):
                    passing.setdefault(node.id, []).append(numbers[trial.number])
        labels = {node: _passing(tuple(trials)) for node, trials in passing.items()}
        lanes: dict[str, int] = {}  # nodes with the same trials have one colour and one name
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

    def _progress(self, trial_timelines: tuple[TrialTimeline, ...]) -> list[StudyProgress]:
        """Return the sums over time: a point for every report and unit, but no more than can be drawn."""
        got, alone = _Sum(), _Sum()
        for trial_timeline in trial_timelines:
            epoch, before = 0, 0.0
            for report, after in zip(trial_timeline.reports, trial_timeline.seconds, strict=True):
                got.add(report.now, report.epoch - epoch)
                alone.add(report.now, after - before)
                epoch, before = report.epoch, after
        trained, spent = _Sum(), _Sum()
        for span in self._spans:
            if span.kind == "unit":
                trained.add(span.end, 1 / self.state.plan.partitions)
                spent.add(span.end, span.end - span.start)
        times = sorted({0.0, *got.times, *trained.times})
        step = -(-len(times) // _MOST_POINTS)
        times = [*times[:-1:step], times[-1]]
        sums = [each.at(times) for each in (got, trained, spent, alone)]
        return [StudyProgress(*values) for values in zip(times, *sums, strict=True)]


@final
class _Sum:
    """A sum over time: amounts with their times."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._amounts: list[float] = []

    def add(self, now: float, amount: float) -> None:
        self.times.append(now)
        self._amounts.append(amount)

    def at(self, times: list[float]) -> list[float]:
        """Return the sum at each of the times, which are sorted."""
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
    """Return the label of a node: its trials.

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

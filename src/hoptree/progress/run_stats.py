"""Statistics of a run's trials and workers, counted from events and actions."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import final

import msgspec

from hoptree.core.actions import EndTrial, Evaluate, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    DriverStarted,
    StateEvaluated,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRetried,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.plan import Trial
from hoptree.core.schedules import Value
from hoptree.core.steps import Step
from hoptree.report.study_timeline import standing
from hoptree.report.timeline import short_name
from hoptree.search.protocol import Goal

_ENOUGH = 8  # values of a hyper-parameter; more are not counted


@final
class TrialStats:
    """A trial with its number in its study, and the curve of the goal's metric."""

    __slots__ = ("_epochs", "ending", "goal", "number", "study", "trial", "values")

    def __init__(self, trial: Trial, number: int, goal: Goal) -> None:
        self.trial = trial
        self.number = number
        self.study = trial.study
        self.goal = goal
        self.values: list[float] = []  # by epoch
        self._epochs: list[int] = []
        self.ending = ""

    def note(self, epoch: int, value: float) -> None:
        """Add a report; most arrive in order, but reports from the store may arrive after trained ones."""
        place = bisect_left(self._epochs, epoch)
        if self._epochs[place : place + 1] == [epoch]:
            self.values[place] = value
        else:
            self._epochs.insert(place, epoch)
            self.values.insert(place, value)

    @property
    def loss(self) -> float:
        """The loss of its last report; infinite before the first."""
        return self.goal.loss({self.goal.metric: self.values[-1]}) if self.values else float("inf")


def _rank(trial_stats: TrialStats) -> tuple[int, float, int]:
    return standing(trial_stats.ending, trial_stats.loss), trial_stats.loss, trial_stats.number


class Failure(msgspec.Struct, frozen=True):
    """A trial that failed since the driver started."""

    study: str
    number: int
    reason: str


@final
class RunStats:
    """Processes events and actions, each at little cost, and holds what displays show.

    ``goals`` holds the goal of every study.
    """

    def __init__(
        self,
        engine: Engine,
        goals: Mapping[str, Goal],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.goals = dict(goals)
        self.trials: dict[int, TrialStats] = {}
        self.live: dict[int, TrialStats] = {}
        self.endings: Counter[str] = Counter()
        self.best: dict[str, TrialStats] = {}
        self.failures: deque[Failure] = deque(maxlen=100)
        self.workers: dict[str, str] = {}  # short names for display, by name
        self.queues: dict[str, list[RunUnit | Evaluate]] = {}
        self.units = 0
        self.since: dict[str, float] = {}  # by worker, when it started its current run
        self._elapsed = self._reported = 0.0  # seconds of runs by this clock, and as workers report them
        self.searched: dict[str, None] = {}  # hyper-parameters whose values differ between trials, in order
        self._different: dict[str, set[str]] = {}  # the first few values by name
        self._common: dict[str, Value] | None = None
        self._named: Counter[str] = Counter()
        for trial in engine.trials.values():
            self._follow(trial)
            for epoch, metrics in trial.curve.items():
                self._report(trial.number, epoch, metrics)
            if trial.ending is not None:
                self._end(trial.number, trial.ending)

    def see(self, step: Step) -> None:
        """Process an event and the resulting actions: an observer of the event loop."""
        match step.event:
            case UnitFinished(run, worker, seconds, _):
                self.units += 1
                self._finished(worker, run, seconds)
            case StateEvaluated(run=run, worker=worker, seconds=seconds):
                self._finished(worker, run, seconds)
            case UnitFailed(run=run, worker=worker) | UnitCancelled(run=run, worker=worker):
                self._finished(worker, run)
            case TrialAsked(trial=number) | TrialBranched(trial=number):
                self._follow(self.engine.trials[number])
            case TrialExtended(trial=number) | TrialRetried(trial=number):
                self._continue(number)
            case WorkerJoined(worker):
                self._join(worker)
            case WorkerLost(worker):
                self.workers.pop(worker, None)
                self.queues.pop(worker, None)
                self.since.pop(worker, None)
                for lost in step.lost:  # trained together with workers that are still there
                    if isinstance(lost, RunUnit) and lost.crew:
                        for other in (lost.worker, *lost.crew):
                            self._finished(other, lost.run)
            case DriverStarted():
                self.workers.clear()
                self.queues.clear()
                self.since.clear()
            case _:
                pass
        if isinstance(step.run, RunUnit):
            for worker in step.run.crew:
                self._finished(worker, step.run.run)
        for action in step.actions:
            match action:
                case RunUnit() | Evaluate():
                    self._assigned(action)
                case Report(trial, epoch, metrics):
                    self._report(trial, epoch, metrics)
                case EndTrial(trial, ending, reason):
                    self._end(trial, ending, reason)

    # --- trials -------------------------------------------------------------------------------------------

    def _follow(self, trial: Trial) -> None:
        if trial.number in self.trials:  # a duplicate message
            return
        goal = self.goals.get(trial.study) or next(iter(self.goals.values()))
        self.trials[trial.number] = self.live[trial.number] = TrialStats(trial, self._named[trial.study], goal)
        self._named[trial.study] += 1
        self._compare(dict(trial.history[-1].config))

    def _compare(self, config: dict[str, Value]) -> None:
        """Update which hyper-parameters are searched: values that all trials share need not be shown."""
        common = self._common
        for name, value in config.items():
            seen = self._different.setdefault(name, set())
            if len(seen) < _ENOUGH:
                seen.add(repr(value))
        if common is None:
            self._common = dict(config)
            return
        for name in [name for name in common if name not in config or config[name] != common[name]]:
            del common[name]
            self.searched[name] = None
        for name in config:
            if name not in common:
                self.searched[name] = None

    def distinguishing(self, config: Mapping[str, Value]) -> list[str]:
        """Return the names whose values differ between trials, those with most values first; all if none differ."""
        names = [name for name in config if name in self.searched] or list(config)
        return sorted(names, key=lambda name: -len(self._different.get(name, ())))

    def _report(self, number: int, epoch: int, metrics: Mapping[str, float]) -> None:
        trial_stats = self.trials[number]
        trial_stats.note(epoch, float(metrics.get(trial_stats.goal.metric, float("nan"))))
        best = self.best.get(trial_stats.study)
        if best is trial_stats:  # its last report may be worse
            self._choose(trial_stats.study)
        elif math.isfinite(trial_stats.loss) and (
            best is None or (trial_stats.loss, trial_stats.number) < (best.loss, best.number)
        ):
            self.best[trial_stats.study] = trial_stats

    def _choose(self, study: str) -> None:
        """Set the best trial: the one with the best finite last report among those that have not failed."""
        fit = [each for each in self.trials.values() if each.study == study and each.ending != "failed"]
        finite = (each for each in fit if math.isfinite(each.loss))
        best = min(finite, key=lambda each: (each.loss, each.number), default=None)
        if best is None:
            self.best.pop(study, None)
        else:
            self.best[study] = best

    def final(self) -> list[TrialStats]:
        """Return the best trial of every finished study, as its results define it.

        If no trial has ended it is the best so far.
        """
        ended: dict[str, list[TrialStats]] = {}
        for each in self.trials.values():
            if math.isfinite(each.loss) and each.ending in ("complete", "stopped"):
                ended.setdefault(each.study, []).append(each)
        return [min(ended.get(study, ()), key=_rank, default=best) for study, best in self.best.items()]

    def _continue(self, number: int) -> None:
        trial_stats = self.trials[number]
        if trial_stats.ending and trial_stats.trial.ending is None:
            self.endings[trial_stats.ending] -= 1
            trial_stats.ending = ""
            self.live[number] = trial_stats

    def _end(self, number: int, ending: str, reason: str = "") -> None:
        trial_stats = self.trials[number]
        if trial_stats.ending:  # a complete trial that is then stopped
            self.endings[trial_stats.ending] -= 1
        trial_stats.ending = ending
        self.endings[ending] += 1
        self.live.pop(number, None)
        if ending == "failed":
            if self.best.get(trial_stats.study) is trial_stats:
                self._choose(trial_stats.study)
            if reason:
                self.failures.append(Failure(trial_stats.study, trial_stats.number, reason))

    # --- workers ------------------------------------------------------------------------------------------

    def _join(self, worker: str) -> None:
        if worker not in self.workers:
            self.workers[worker] = short_name(self.workers.values())

    def _assigned(self, action: RunUnit | Evaluate) -> None:
        for worker in (action.worker, *(action.crew if isinstance(action, RunUnit) else ())):
            queue = self.queues.setdefault(worker, [])
            if not queue:
                self.since[worker] = self.clock()
            queue.append(action)

    @property
    def overhead(self) -> float:
        """The ratio of the time that runs take to what workers report: states move, and drivers decide."""
        return max(1.0, self._elapsed / self._reported) if self._reported else 1.0

    def _finished(self, worker: str, run: int, seconds: float = 0.0) -> None:
        """Remove a finished run from a worker's queue: keep the runs that the engine still expects."""
        known = self.engine.workers.by_name.get(worker)
        if known is not None and (queue := self.queues.get(worker)):
            if queue[0].run == run:
                now = self.clock()
                if seconds > 0:  # an average over about the last hundred runs
                    self._elapsed = 0.99 * self._elapsed + now - self.since.get(worker, now)
                    self._reported = 0.99 * self._reported + seconds
                self.since[worker] = now
            left = {run.number for run in known.queue}
            self.queues[worker] = [action for action in queue if action.run in left]

"""The tally: what a driver has seen of its trials and workers so far, counted from events and actions."""

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

_TELLING = 8  # values of a hyper-parameter from which on more do not matter


@final
class TrialStats:
    """A trial as it is shown: by the number that its study gives it, with the curve of the goal's metric."""

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
        """Add a report; most come in order, but what the store knew may come after what was trained."""
        place = bisect_left(self._epochs, epoch)
        if self._epochs[place : place + 1] == [epoch]:
            self.values[place] = value
        else:
            self._epochs.insert(place, epoch)
            self.values.insert(place, value)

    @property
    def loss(self) -> float:
        """How bad its last report is; infinite before the first."""
        return self.goal.loss({self.goal.metric: self.values[-1]}) if self.values else float("inf")


def _rank(followed: TrialStats) -> tuple[int, float, int]:
    return standing(followed.ending, followed.loss), followed.loss, followed.number


class Failure(msgspec.Struct, frozen=True):
    """A trial that failed since the driver began."""

    study: str
    number: int
    reason: str


@final
class RunStats:
    """Takes in events and actions, each at little cost, and knows at any time what there is to show.

    ``goals`` has the goal of every study.
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
        self.followed: dict[int, TrialStats] = {}
        self.live: dict[int, TrialStats] = {}
        self.endings: Counter[str] = Counter()
        self.best: dict[str, TrialStats] = {}
        self.failures: deque[Failure] = deque(maxlen=100)
        self.workers: dict[str, str] = {}  # by their names, what they are called here
        self.queues: dict[str, list[RunUnit | Evaluate]] = {}
        self.units = 0
        self.since: dict[str, float] = {}  # by worker, when it began what it does
        self._took = self._said = 0.0  # seconds, by this clock and by the workers'
        self.searched: dict[str, None] = {}  # names whose values differ from trial to trial, in order
        self._different: dict[str, set[str]] = {}  # by name, the first few of its values
        self._common: dict[str, Value] | None = None
        self._named: Counter[str] = Counter()
        for trial in engine.trials.values():
            self._follow(trial)
            for epoch, metrics in trial.curve.items():
                self._report(trial.number, epoch, metrics)
            if trial.ending is not None:
                self._end(trial.number, trial.ending)

    def see(self, step: Step) -> None:
        """Take in what happened and what came of it; a watch of the drive loop."""
        match step.event:
            case UnitFinished(run, worker, seconds, _):
                self.units += 1
                self._over(worker, run, seconds)
            case StateEvaluated(run=run, worker=worker, seconds=seconds):
                self._over(worker, run, seconds)
            case UnitFailed(run=run, worker=worker) | UnitCancelled(run=run, worker=worker):
                self._over(worker, run)
            case TrialAsked(trial=number) | TrialBranched(trial=number):
                self._follow(self.engine.trials[number])
            case TrialExtended(trial=number) | TrialRetried(trial=number):
                self._go_on(number)
            case WorkerJoined(worker):
                self._join(worker)
            case WorkerLost(worker):
                self.workers.pop(worker, None)
                self.queues.pop(worker, None)
                self.since.pop(worker, None)
            case _:
                pass
        for action in step.actions:
            match action:
                case RunUnit() | Evaluate():
                    self._given(action)
                case Report(trial, epoch, metrics):
                    self._report(trial, epoch, metrics)
                case EndTrial(trial, ending, reason):
                    self._end(trial, ending, reason)

    # --- trials -------------------------------------------------------------------------------------------

    def _follow(self, trial: Trial) -> None:
        if trial.number in self.followed:  # a message that came twice
            return
        goal = self.goals.get(trial.study) or next(iter(self.goals.values()))
        self.followed[trial.number] = self.live[trial.number] = TrialStats(trial, self._named[trial.study], goal)
        self._named[trial.study] += 1
        self._compare(dict(trial.history[-1].config))

    def _compare(self, config: dict[str, Value]) -> None:
        """Find out what is searched: values that all trials have in common need not be shown."""
        common = self._common
        for name, value in config.items():
            seen = self._different.setdefault(name, set())
            if len(seen) < _TELLING:
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

    def telling(self, config: Mapping[str, Value]) -> list[str]:
        """Return the names that tell a trial from others, those with the most values first; all, if none does."""
        names = [name for name in config if name in self.searched] or list(config)
        return sorted(names, key=lambda name: -len(self._different.get(name, ())))

    def _report(self, number: int, epoch: int, metrics: Mapping[str, float]) -> None:
        followed = self.followed[number]
        followed.note(epoch, float(metrics.get(followed.goal.metric, float("nan"))))
        leader = self.best.get(followed.study)
        if leader is followed:  # it may have got worse
            self._choose(followed.study)
        elif math.isfinite(followed.loss) and (
            leader is None or (followed.loss, followed.number) < (leader.loss, leader.number)
        ):
            self.best[followed.study] = followed

    def _choose(self, study: str) -> None:
        """Find the best trial anew: the one with the best finite last report, of those that have not failed."""
        fit = [each for each in self.followed.values() if each.study == study and each.ending != "failed"]
        finite = (each for each in fit if math.isfinite(each.loss))
        best = min(finite, key=lambda each: (each.loss, each.number), default=None)
        if best is None:
            self.best.pop(study, None)
        else:
            self.best[study] = best

    def final(self) -> list[TrialStats]:
        """Return the best trial of every study when it is over: the one that its results name.

        Where no trial has ended it is the best so far.
        """
        ended: dict[str, list[TrialStats]] = {}
        for each in self.followed.values():
            if math.isfinite(each.loss) and each.ending in ("complete", "stopped"):
                ended.setdefault(each.study, []).append(each)
        return [min(ended.get(study, ()), key=_rank, default=best) for study, best in self.best.items()]

    def _go_on(self, number: int) -> None:
        followed = self.followed[number]
        if followed.ending and followed.trial.ending is None:
            self.endings[followed.ending] -= 1
            followed.ending = ""
            self.live[number] = followed

    def _end(self, number: int, ending: str, reason: str = "") -> None:
        followed = self.followed[number]
        if followed.ending:  # a complete trial that is given up
            self.endings[followed.ending] -= 1
        followed.ending = ending
        self.endings[ending] += 1
        self.live.pop(number, None)
        if ending == "failed":
            if self.best.get(followed.study) is followed:
                self._choose(followed.study)
            if reason:
                self.failures.append(Failure(followed.study, followed.number, reason))

    # --- workers ------------------------------------------------------------------------------------------

    def _join(self, worker: str) -> None:
        if worker not in self.workers:
            self.workers[worker] = short_name(self.workers.values())

    def _given(self, action: RunUnit | Evaluate) -> None:
        queue = self.queues.setdefault(action.worker, [])
        if not queue:
            self.since[action.worker] = self.clock()
        queue.append(action)

    @property
    def toll(self) -> float:
        """How much longer things take, seen from here, than workers say: states move, and drivers decide."""
        return max(1.0, self._took / self._said) if self._said else 1.0

    def _over(self, worker: str, run: int, seconds: float = 0.0) -> None:
        """Note that a worker is done with something: what is left is what the engine still expects of it."""
        known = self.engine.workers.by_name.get(worker)
        if known is not None and (queue := self.queues.get(worker)):
            if queue[0].run == run:
                now = self.clock()
                if seconds > 0:  # of the last hundred or so
                    self._took = 0.99 * self._took + now - self.since.get(worker, now)
                    self._said = 0.99 * self._said + seconds
                self.since[worker] = now
            left = {run.number for run in known.queue}
            self.queues[worker] = [action for action in queue if action.run in left]

"""Median stopping: stop a trial that is worse than the median of the others at the same epoch."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import Any, final

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate
from hoptree.search.jobs import Jobs
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Decision, Goal, Sampler, Search, Stop
from hoptree.search.sampling import make_sampler
from hoptree.search.trial_source import TrialSource
from hoptree.search.widening import EarlierSearch, drawn_one_by_one, only_more


@final
class MedianStopping(msgspec.Struct, frozen=True):
    """Train ``trials`` trials for ``epochs`` epochs, and stop those that are worse than the median.

    At every report from the epoch ``grace`` on, a trial is stopped if its best loss so far is worse than the median
    of the other trials' losses at that epoch; with ``average``, the median of their average losses up to it, which
    is Vizier's rule and stops later. The other trials are all that reached the epoch, including trials stopped
    since; at least ``startup`` of them are needed. NaN counts as infinite, and a trial equal to the median goes on.

    ``concurrent`` trials run at a time: use at least the number of workers. Decisions depend on the order of the
    reports.
    """

    trials: int
    epochs: int
    grace: int = 1
    every: int = 1
    startup: int = 5
    average: bool = False
    concurrent: int = 16
    sampler: Any = "random"

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("trials", self.trials, 1)
        checks.whole("epochs", self.epochs, 1)
        checks.whole("grace", self.grace, 0, "the epochs that every trial is granted")
        checks.whole("every", self.every, 1, "trials can be stopped only at reports")
        checks.whole("startup", self.startup, 1)
        checks.boolean("average", self.average, "whether other trials count with their average loss")
        checks.whole("concurrent", self.concurrent, 1)
        if self.grace > self.epochs:
            raise WorkloadError(f"grace: {self.grace} of {self.epochs} epochs; expected at most {self.epochs}")

    def budget_estimate(self) -> BudgetEstimate:
        """Return the epochs that it grants, though few trials are trained to their last epoch."""
        granted = float(self.trials * self.epochs)
        return BudgetEstimate(float(self.trials * self.grace), granted, granted)

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        return _Search(self, make_sampler(self.sampler, space, seed, self.trials), goal)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more trials."""
        only_more(self, earlier, space, "trials")
        drawn_one_by_one(self, earlier[-1].procedure, "trials")
        return self.search(space, goal, seed)


@final
class _Curve:
    """The losses that a trial has reported so far."""

    __slots__ = ("best", "count", "last", "stopped", "total")

    def __init__(self) -> None:
        self.best = math.inf
        self.total = 0.0
        self.last = (0, math.inf)
        self.count = 0
        self.stopped = False

    def add(self, epoch: int, loss: float, average: bool) -> float:
        """Add a loss; return the value that this trial contributes to the median at this epoch."""
        self.best = min(self.best, loss)
        self.total += loss
        self.count += 1
        self.last = (epoch, loss)
        bar = self.total / self.count if average else loss
        return math.inf if math.isnan(bar) else bar  # inf - inf is NaN


@final
class _Search:
    def __init__(self, settings: MedianStopping, sampler: Sampler, goal: Goal) -> None:
        self._settings = settings
        self._sampler = sampler
        self._goal = goal
        self._jobs = Jobs(goal)
        self._source = TrialSource(sampler, self._jobs, settings.trials, settings.epochs, settings.every)
        self._curves: dict[int, _Curve] = {}  # of the trials under way
        self._bars: dict[int, list[float]] = {}  # by epoch, sorted

    def start(self) -> Sequence[Decision]:
        """Start as many trials as may run at a time."""
        return self._fill()

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Compare a trial at its report; fill the slot that an ended trial frees."""
        ended = self._jobs.tell(update)
        if isinstance(update, Report):
            return self._compare(update)
        if ended is None:
            return ()
        curve = self._curves.pop(update.trial)
        epoch, loss = (ended.epoch, math.inf) if update.ending == "failed" else curve.last
        self._sampler.tell(ended.trial, epoch, loss)
        return self._fill()

    def _compare(self, report: Report) -> list[Decision]:
        settings, epoch = self._settings, report.epoch
        curve = self._curves.get(report.trial)
        if curve is None or curve.stopped:  # reports from the cache arrive all at once
            return []
        bar = curve.add(epoch, self._goal.loss(report.metrics), settings.average)
        others = self._bars.setdefault(epoch, [])
        is_compared = settings.grace <= epoch < settings.epochs and len(others) >= settings.startup
        worse = is_compared and curve.best > _median(others)
        insort(others, bar)
        if not worse:
            return []
        curve.stopped = True
        return [Stop(report.trial)]

    def _fill(self) -> list[Decision]:
        decisions: list[Decision] = []
        while len(self._jobs) < self._settings.concurrent and (decision := self._source.train()) is not None:
            self._curves[self._source.started - 1] = _Curve()
            decisions.append(decision)
        return decisions


def _median(ordered: list[float]) -> float:
    """Return the median of a sorted list."""
    half = len(ordered) // 2
    if len(ordered) % 2 or ordered[half - 1] == ordered[half]:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2

"""Playing a search: one run of it with made-up reports, to learn which trials it grants how many epochs, and when.

Nothing is trained: every trial takes one step of time for each epoch, and all of them train side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import (
    Asker,
    Event,
    Metrics,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialStopped,
)
from hoptree.core.keys import fraction
from hoptree.core.lineage import History, branched, history

_MOST_GRANTS = 100_000  # a search that never ends is played up to here


class Grant(NamedTuple):
    """Epochs that a search grants to a trial: from ``begin`` (exclusive) to ``until``.

    ``wave`` counts the reports on which it depends: 0 at the start, and one more than that of the trial whose
    report it answers. ``reports`` are the epochs at which a report is due.
    """

    trial: int
    study: str
    asked_by: Asker | None
    history: History
    alone: bool
    begin: int
    until: int
    reports: tuple[int, ...]
    wave: int


class PlaysTrials(Protocol):
    """Requests trials, as a tuner does."""

    def start(self) -> Sequence[Event]:
        """Return the first requests."""
        ...

    def tell(self, update: Report | EndTrial) -> Sequence[Event]:
        """Take in a result, and return the requests that follow from it."""
        ...


def play(tuner: PlaysTrials, metrics: Sequence[str], salt: int = 0) -> list[Grant]:
    """Return the grants of a search, in order; ``salt`` chooses among the made-up values of the ``metrics``."""
    return _Play(tuner, metrics, salt).run()


@final
class _PlayedTrial:
    """A trial of a played search."""

    def __init__(self, event: TrialAsked | TrialBranched, source: _PlayedTrial | None) -> None:
        self.number = event.trial
        self.asked_by = event.asked_by
        self.every = event.every
        if isinstance(event, TrialBranched):
            assert source is not None
            self.history: History = branched(source.history, event.at, dict(event.config))
            self.study: str = source.study
            self.alone: bool = source.alone
            self.until = event.at
        else:
            self.history = history(dict(event.config))
            self.study, self.alone, self.until = event.study, event.alone, 0
        self.due: list[int] = []
        self.wave = 0
        self.reported = self.until
        self.has_ended = False
        self.is_stopped = False
        self.granted: int | None = None  # the index of its last grant

    def grant(self, until: int, wave: int) -> Grant | None:
        """Grant epochs; None if it has them already."""
        begin, self.wave = self.until, wave
        every = self.every
        reports = (*(range((begin // every + 1) * every, until, every) if every else ()), until)
        self.due += [epoch for epoch in reports if epoch not in self.due]
        self.has_ended = False
        if until <= begin:
            return None
        self.until = until
        asked = self.number, self.study, self.asked_by, self.history, self.alone
        return Grant(*asked, begin, until, reports, wave)


@final
class _Play:
    def __init__(self, tuner: PlaysTrials, metrics: Sequence[str], salt: int) -> None:
        self._tuner = tuner
        self._metrics = metrics
        self._salt = salt
        self._trials: dict[int, _PlayedTrial] = {}
        self._grants: list[Grant] = []
        self._clock: list[tuple[int, int, int]] = []  # time, sequence, trial
        self._sequence = 0

    def run(self) -> list[Grant]:
        """Play until nothing is granted any more."""
        self._apply(self._tuner.start(), 0, 0)
        while self._clock and len(self._grants) < _MOST_GRANTS:
            time, _, number = heappop(self._clock)
            trial = self._trials[number]
            if trial.has_ended or not trial.due:
                continue
            epoch = trial.due.pop(0)
            trial.reported = epoch
            self._apply(self._tuner.tell(Report(number, epoch, self._report(number, epoch))), time, trial.wave + 1)
            self._go_on(trial, time)
        return [grant for grant in self._grants if grant.until > grant.begin]

    def _go_on(self, trial: _PlayedTrial, time: int) -> None:
        """Train a trial to its next report, or end it if it has none."""
        if trial.has_ended:
            return
        if trial.due:
            self._schedule(trial, time)
        else:
            trial.has_ended = True
            self._apply(self._tuner.tell(EndTrial(trial.number, "complete", "")), time, trial.wave + 1)

    def _report(self, number: int, epoch: int) -> Metrics:
        level = fraction("outlook", number, self._salt)
        return dict.fromkeys(self._metrics, level + 1.0 / (1 + epoch))

    def _schedule(self, trial: _PlayedTrial, time: int) -> None:
        self._sequence += 1
        heappush(self._clock, (time + max(0, trial.due[0] - trial.reported), self._sequence, trial.number))

    def _apply(self, events: Sequence[Event], time: int, wave: int) -> None:
        for event in events:
            match event:
                case TrialAsked() | TrialBranched():
                    source = self._trials[event.source] if isinstance(event, TrialBranched) else None
                    trial = self._trials[event.trial] = _PlayedTrial(event, source)
                    self._grant(trial, event.until, time, wave)
                case TrialExtended(number, until):
                    self._grant(self._trials[number], until, time, wave)
                case TrialStopped(number):
                    trial = self._trials[number]
                    if not trial.is_stopped:
                        self._cut(trial)
                        trial.is_stopped, trial.has_ended, trial.due = True, True, []
                        self._apply(self._tuner.tell(EndTrial(number, "stopped", "")), time, wave)
                case _:
                    pass

    def _cut(self, trial: _PlayedTrial) -> None:
        """Let the last grant of a trial that is stopped end at its last report."""
        if trial.granted is not None and trial.due:
            grant = self._grants[trial.granted]
            end = max(grant.begin, trial.reported)
            reports = tuple(epoch for epoch in grant.reports if epoch <= end)
            self._grants[trial.granted] = grant._replace(until=end, reports=reports)

    def _grant(self, trial: _PlayedTrial, until: int, time: int, wave: int) -> None:
        waited = bool(trial.due)
        grant = trial.grant(until, wave)
        if grant is not None:
            trial.granted = len(self._grants)
            self._grants.append(grant)
        if not waited:
            self._schedule(trial, time)

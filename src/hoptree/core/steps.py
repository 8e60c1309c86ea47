"""Steps: what the engine took in and what it decided, with the run that an event is about.

One index says what every run number stands for, so that nobody who follows the engine keeps a map of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, final

from hoptree.core.actions import Action, CancelUnit, Evaluate, RunUnit
from hoptree.core.events import (
    DriverStarted,
    Event,
    StateEvaluated,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerLost,
)

AnyRun: TypeAlias = RunUnit | Evaluate


class Step(NamedTuple):
    """One step of an engine.

    ``run`` is what the event is about, if it is about a run that was under way, and ``evaluating`` whether its unit
    had been trained before, so that the event is about its evaluation. ``lost`` are the runs that ended with their
    worker. With ``more`` further events of the same moment follow.
    """

    event: Event
    now: float
    more: bool
    actions: Sequence[Action]
    run: AnyRun | None = None
    evaluating: bool = False
    lost: Sequence[AnyRun] = ()


@final
class RunIndex:
    """The runs under way, by number; ``issued`` is the number of the next one."""

    def __init__(self) -> None:
        self.issued = 0
        self._runs: dict[int, AnyRun] = {}
        self._trained: set[int] = set()  # units that are done and being evaluated

    def __len__(self) -> int:
        return len(self._runs)

    def under_way(self) -> list[AnyRun]:
        """Return the runs that were given out and have not ended, oldest first."""
        return list(self._runs.values())

    def find(self, number: int) -> AnyRun | None:
        """Return a run that is under way."""
        return self._runs.get(number)

    def is_evaluating(self, number: int) -> bool:
        """Return whether what a run still owes is an evaluation."""
        return number in self._trained or isinstance(self._runs.get(number), Evaluate)

    def has_trained(self, number: int) -> bool:
        """Return whether the unit of a run is done, and its evaluation is not."""
        return number in self._trained

    def resume(self, run: AnyRun, *, trained: bool) -> None:
        """Take in a run that was under way when a snapshot was taken."""
        self._runs[run.run] = run
        if trained:
            self._trained.add(run.run)

    def step(self, event: Event, now: float, more: bool, actions: Sequence[Action]) -> Step:
        """Take in one step of the engine, and return it with what it is about."""
        run: AnyRun | None = None
        evaluating = False
        lost: Sequence[AnyRun] = ()
        kind = type(event)
        if kind is UnitFinished:  # by type, and first: with every unit
            run = self._finished(event)  # type: ignore[arg-type]
        elif isinstance(event, (StateEvaluated, UnitFailed, UnitCancelled)):
            run = self._runs.get(event.run)
            if run is not None and run.worker != event.worker:
                run = None
            if run is not None:
                evaluating = self.is_evaluating(event.run)
                self._forget(event.run)
        elif isinstance(event, (WorkerLost, DriverStarted)):
            worker = event.worker if isinstance(event, WorkerLost) else None
            lost = [each for each in self._runs.values() if worker is None or each.worker == worker]
            for each in lost:
                self._forget(each.run)
        for action in actions:
            kind_of = type(action)
            if kind_of is RunUnit or kind_of is Evaluate:
                number = action.run  # type: ignore[union-attr]
                self._runs[number] = action  # type: ignore[assignment]
                self.issued = max(self.issued, number + 1)
            elif kind_of is CancelUnit and action.silent and action.run in self._runs:  # type: ignore[union-attr]
                self._forget(action.run)  # type: ignore[union-attr]
        return Step(event, now, more, actions, run, evaluating, lost)

    def _finished(self, event: UnitFinished) -> AnyRun | None:
        """Return the run whose unit is done, unless it was told before."""
        number = event.run
        run = self._runs.get(number)
        if run is None or run.worker != event.worker or number in self._trained or type(run) is Evaluate:
            return None
        if run.evaluate:  # type: ignore[union-attr]
            self._trained.add(number)
        else:
            del self._runs[number]
        return run

    def _forget(self, number: int) -> None:
        del self._runs[number]
        self._trained.discard(number)

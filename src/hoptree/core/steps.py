"""Steps: an event, the actions that followed from it, and the run that the event is about.

``RunIndex`` maps run numbers to runs, so that observers of the engine need no map of their own.
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

    ``run`` is the run under way that the event is about, if any, and ``evaluating`` whether its unit was trained
    before, so that the event is about its evaluation. ``lost`` are the runs that were lost with their worker. With
    ``more`` further events of the same moment follow.
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
        self._trained: set[int] = set()  # runs whose unit is trained and whose state is being evaluated

    def __len__(self) -> int:
        return len(self._runs)

    def under_way(self) -> list[AnyRun]:
        """Return the runs that have not ended, oldest first."""
        return list(self._runs.values())

    def find(self, number: int) -> AnyRun | None:
        """Return a run that is under way."""
        return self._runs.get(number)

    def is_evaluating(self, number: int) -> bool:
        """Return whether a run is evaluating."""
        return number in self._trained or isinstance(self._runs.get(number), Evaluate)

    def has_trained(self, number: int) -> bool:
        """Return whether the unit of a run is trained, and its evaluation is not done."""
        return number in self._trained

    def resume(self, run: AnyRun, *, trained: bool) -> None:
        """Add a run that was under way when a snapshot was taken."""
        self._runs[run.run] = run
        if trained:
            self._trained.add(run.run)

    def step(self, event: Event, now: float, more: bool, actions: Sequence[Action]) -> Step:
        """Record one step of the engine, and return it with its run."""
        run: AnyRun | None = None
        evaluating = False
        lost: Sequence[AnyRun] = ()
        kind = type(event)
        if kind is UnitFinished:  # compare types, and this one first: it is the most frequent
            run = self._finished(event)  # type: ignore[arg-type]
        elif isinstance(event, (StateEvaluated, UnitFailed, UnitCancelled)):
            run = self._runs.get(event.run)
            if run is not None and run.worker != event.worker:
                run = None
            if run is not None:
                evaluating = self.is_evaluating(event.run)
                self._remove(event.run)
        elif isinstance(event, (WorkerLost, DriverStarted)):
            worker = event.worker if isinstance(event, WorkerLost) else None
            lost = [each for each in self._runs.values() if worker is None or self._needs(each, worker)]
            for each in lost:
                self._remove(each.run)
        for action in actions:
            kind_of = type(action)
            if kind_of is RunUnit or kind_of is Evaluate:
                number = action.run  # type: ignore[union-attr]
                self._runs[number] = action  # type: ignore[assignment]
                self.issued = max(self.issued, number + 1)
            elif kind_of is CancelUnit and action.silent and action.run in self._runs:  # type: ignore[union-attr]
                self._remove(action.run)  # type: ignore[union-attr]
        return Step(event, now, more, actions, run, evaluating, lost)

    def _needs(self, run: AnyRun, worker: str) -> bool:
        """Return whether a run is lost with a worker: its own, or one that trains its unit together with others."""
        if run.worker == worker:
            return True
        return isinstance(run, RunUnit) and worker in run.crew and run.run not in self._trained

    def _finished(self, event: UnitFinished) -> AnyRun | None:
        """Return the run whose unit is trained; None for a repeated message."""
        number = event.run
        run = self._runs.get(number)
        if run is None or run.worker != event.worker or number in self._trained or type(run) is Evaluate:
            return None
        if run.evaluate:  # type: ignore[union-attr]
            self._trained.add(number)
        else:
            del self._runs[number]
        return run

    def _remove(self, number: int) -> None:
        del self._runs[number]
        self._trained.discard(number)

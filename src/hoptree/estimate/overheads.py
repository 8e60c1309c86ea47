"""What a worker needs besides training and evaluating: to load a state, build a model, and exchange messages.

It is the gap between the end of a run, as the driver sees it, and the beginning of what the worker did next. A
gap is long if the worker waited for others; the median ignores those, as long as workers are busy most of the time.
"""

from __future__ import annotations

from statistics import median
from typing import final

from hoptree.core.actions import RunUnit
from hoptree.core.events import DriverStarted, StateEvaluated, UnitFinished
from hoptree.core.steps import Step

_ENOUGH = 2_000  # gaps of each kind that are kept


@final
class Overheads:
    """Observes steps, of a run or of a journal."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}  # by worker: when it ended something
        self._units: list[float] = []
        self._evaluations: list[float] = []

    def watch(self, step: Step) -> None:
        """Learn from a step: an observer of the drive loop, or of a replay."""
        match step.event:
            case DriverStarted():
                self._last.clear()
            case UnitFinished(worker=worker, seconds=seconds) if (
                isinstance(step.run, RunUnit) and not step.run.crew
            ):
                self._note(self._units, worker, step.now, seconds)
            case StateEvaluated(worker=worker, seconds=seconds):
                self._note(self._evaluations, worker, step.now, seconds)
            case _:
                pass

    def _note(self, gaps: list[float], worker: str, now: float, seconds: float) -> None:
        before = self._last.get(worker)
        self._last[worker] = now
        if before is not None and seconds > 0 and len(gaps) < _ENOUGH:
            gaps.append(max(0.0, now - before - seconds))

    @property
    def unit(self) -> float | None:
        """Seconds for each unit; None while nothing was measured."""
        return median(self._units) if self._units else None

    @property
    def evaluation(self) -> float | None:
        """Seconds for each evaluation; None while nothing was measured."""
        return median(self._evaluations) if self._evaluations else None

"""Event sources that are looked at from time to time: requests of users, other drivers, costs, the display."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from hoptree.core.events import Event, WorkerDrained, WorkerJoined

if TYPE_CHECKING:
    from hoptree.core.engine import Engine
    from hoptree.core.steps import Step


@final
class Periodic:
    """Looks every ``period`` seconds, the first time at once; the period may change meanwhile."""

    def __init__(
        self,
        look: Callable[[], Sequence[Event]],
        period: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._period = period
        self._clock = clock
        self._last = -float("inf")

    def pause(self) -> float:
        """Return for how many seconds there is nothing to look at."""
        return max(0.0, self._last + self._period() - self._clock())

    def poll(self) -> Sequence[Event]:
        """Look, and return what has come."""
        self._last = self._clock()
        return self._look()


@final
class Draining:
    """Lets the runs under way end and gives no new ones out, once somebody asks to stop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked = False
        self._told: set[str] = set()

    @property
    def has_workers(self) -> bool:
        """Whether a worker has joined."""
        return bool(self._engine.workers.by_name)

    @property
    def is_over(self) -> bool:
        """Whether it was asked for, and nothing runs any more."""
        return self.asked and not self._engine.runs

    def see(self, step: Step) -> None:
        """Notice workers that come back: a watch of the drive loop."""
        if isinstance(step.event, WorkerJoined):
            self._told.discard(step.event.worker)

    def pause(self) -> float:
        """Return 0 while a worker has not been told."""
        return 0.0 if self._missing() else float("inf")

    def poll(self) -> Sequence[Event]:
        """Return that the workers are to leave."""
        missing = self._missing()
        self._told.update(missing)
        return [WorkerDrained(name) for name in missing]

    def _missing(self) -> list[str]:
        return [name for name in self._engine.workers.by_name if name not in self._told] if self.asked else []

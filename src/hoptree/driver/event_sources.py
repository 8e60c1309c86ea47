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
    """Calls ``look`` every ``period`` seconds, the first time at once; the period may change meanwhile."""

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
        """Return the seconds until the next call is due."""
        return max(0.0, self._last + self._period() - self._clock())

    def poll(self) -> Sequence[Event]:
        """Call ``look`` and return its events."""
        self._last = self._clock()
        return self._look()


@final
class StopRequest:
    """Whether the driver was asked to stop, by another thread, by Ctrl-C, or by another process."""

    def __init__(self) -> None:
        self.asked = False


@final
class Draining:
    """Lets running units finish and starts no new ones, once a stop is requested."""

    def __init__(self, engine: Engine, stop: StopRequest) -> None:
        self._engine = engine
        self._stop = stop
        self._drained: set[str] = set()

    @property
    def has_workers(self) -> bool:
        """Whether a worker has joined."""
        return bool(self._engine.workers.by_name)

    @property
    def is_over(self) -> bool:
        """Whether a stop was requested and nothing runs any more."""
        return self._stop.asked and not self._engine.runs

    def see(self, step: Step) -> None:
        """Note workers that join again: an observer of the drive loop."""
        if isinstance(step.event, WorkerJoined):
            self._drained.discard(step.event.worker)

    def pause(self) -> float:
        """Return 0 while a worker has not been drained."""
        return 0.0 if self._undrained() else float("inf")

    def poll(self) -> Sequence[Event]:
        """Return an event for each worker that is to drain."""
        undrained = self._undrained()
        self._drained.update(undrained)
        return [WorkerDrained(name) for name in undrained]

    def _undrained(self) -> list[str]:
        return (
            [name for name in self._engine.workers.by_name if name not in self._drained] if self._stop.asked else []
        )

"""The nodes of a pool as its backend sees them: their events, and the names that workers join with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import final

from hoptree.backends.worker_handle import HasNodes, WorkerHandle, WorkerPool
from hoptree.core.events import Event


@final
class NodeWatch:
    """Passes on what happens to the nodes of a pool, if they are paid for.

    ``recruit`` starts the workers that are missing. Nodes are paid for while workers start and rehearse: what
    happens before the event loop runs keeps its time.
    """

    def __init__(self, pool: WorkerPool, offset: float, recruit: Callable[[], None]) -> None:
        self._pool = pool if isinstance(pool, HasNodes) and pool.elastic else None
        self._offset = offset
        self._recruit = recruit
        self._early: list[tuple[float, Event]] = []

    @property
    def are_paid(self) -> bool:
        """Whether nodes come and go, and are paid for."""
        return self._pool is not None

    def scale(self, nodes: int, release: Sequence[str]) -> None:
        """Have so many nodes; where nodes are not paid for, nothing happens."""
        if self._pool is not None:
            self._pool.scale(nodes, release)

    def look(self) -> list[Event]:
        """Return what has happened since the last call."""
        events = [] if self._pool is None else list(self._pool.node_events())
        if events:
            self._recruit()  # where there are nodes now
        return events

    def pause(self) -> float:
        """Return for how many seconds nobody needs to look."""
        return float("inf") if self._pool is None else self._pool.node_pause()

    def keep(self) -> None:
        """Keep what has happened before the event loop runs."""
        self._early += [(time.monotonic() + self._offset, event) for event in self.look()]

    def take_early(self) -> tuple[float, list[Event]] | None:
        """Return the first event that was kept, with its time."""
        if not self._early:
            return None
        now, event = self._early.pop(0)
        return now, [event]

    def name(self, worker: WorkerHandle) -> str:
        """Return the name of the node on which a worker runs, "" if it is not paid for."""
        return "" if self._pool is None else worker.node

"""Nodes that neither come nor go, for the accounts of a run on a backend that knows no nodes."""

from __future__ import annotations

from typing import final

import msgspec

from hoptree.backends.protocol import Backend, Task
from hoptree.core.events import Event, NodeStarted, WorkerJoined


@final
class FixedNodes:
    """A backend whose workers count as nodes of so many ``devices``, in the order in which they join."""

    def __init__(self, backend: Backend, devices: int) -> None:
        self._backend = backend
        self._devices = devices
        self._nodes: dict[str, str] = {}  # by worker

    def start(self) -> None:
        """Start the backend."""
        self._backend.start()

    def submit(self, action: Task) -> None:
        """Pass an action on."""
        self._backend.submit(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Return the events of the backend, with the nodes of workers."""
        now, events = self._backend.wait(seconds)
        found: list[Event] = []
        for event in events:
            if isinstance(event, WorkerJoined) and not event.node:
                found += self._joined(event)
            else:
                found.append(event)
        return now, found

    def stop(self, *, failed: bool) -> None:
        """Stop the backend."""
        self._backend.stop(failed=failed)

    def _joined(self, event: WorkerJoined) -> list[Event]:
        """Return the event with the worker's node, after the start of that node if it is new."""
        events: list[Event] = []
        if event.worker not in self._nodes:
            number, place = divmod(len(self._nodes), self._devices)
            self._nodes[event.worker] = f"node-{number}"
            if place == 0:
                events.append(NodeStarted(f"node-{number}", self._devices))
        return [*events, msgspec.structs.replace(event, node=self._nodes[event.worker])]

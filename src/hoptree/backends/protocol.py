"""The interface between the event loop and whatever runs units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from hoptree.core.actions import Task
from hoptree.core.events import Event

__all__ = ["Backend", "FindsStates", "KeepsTime", "NodeOffer", "ReportsTraffic", "ScalesNodes", "Task", "Wakeable"]


@runtime_checkable
class Backend(Protocol):
    """Carries out actions and reports their results as events; workers may join and leave at any time."""

    def start(self) -> None:
        """Start; workers announce themselves by events."""
        ...

    def submit(self, action: Task) -> None:
        """Accept an action; never wait for its result."""
        ...

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Wait for events, at most so many seconds; return the time and the events of that moment.

        Without a limit, returning no events means that there will never be any.
        """
        ...

    def stop(self, *, failed: bool) -> None:
        """Release everything; after a failure, keep what another driver could resume from."""
        ...


# --- optional protocols of a backend ------------------------------------------------------------------------


@runtime_checkable
class FindsStates(Protocol):
    """A backend that can resume from states of an earlier run; without it, all of them count as lost."""

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Return whether a state of an earlier run exists; if so, use it for this place from now on."""
        ...


@runtime_checkable
class Wakeable(Protocol):
    """A backend whose ``wait`` another thread, or a signal handler, can end early."""

    def wake(self) -> None:
        """Let ``wait`` return soon."""
        ...


@runtime_checkable
class ReportsTraffic(Protocol):
    """A backend that counts the units it has trained and the bytes it has moved."""

    units: int
    bytes_hopped: int
    bytes_between_nodes: int
    state_bytes: int  # mean size of a state
    made: dict[int, int]  # by node, a bit for each unit that was trained


@runtime_checkable
class ScalesNodes(Protocol):
    """A backend whose nodes come and go.

    It reports them by ``NodeStarted``, ``NodeReleased`` and ``NodeLost``, with the names that ``WorkerJoined`` has
    as ``node``.
    """

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        """Request so many nodes, and give others back: those named first, once their workers are drained.

        It may be called before ``start``. Where the number of nodes is fixed, nothing happens.
        """
        ...


@runtime_checkable
class KeepsTime(Protocol):
    """A backend with a clock of its own, such as a simulated one; others follow the computer's clock."""

    @property
    def now(self) -> float:
        """The time by which decisions about nodes are made."""
        ...


class NodeOffer(msgspec.Struct, frozen=True):
    """What a backend has of an instance type, before anything is requested.

    With ``scales``, nodes come when they are requested; otherwise the ``nodes`` that run are all there is.
    ``offered`` is None if that shows only when a node is requested.
    """

    scales: bool
    nodes: int
    offered: bool | None = None

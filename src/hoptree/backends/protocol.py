"""The waist between the drive loop and whatever runs units."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from hoptree.core.actions import Task
from hoptree.core.events import Event

__all__ = ["Backend", "FindsStates", "ReportsTraffic", "Task", "Wakeable"]


@runtime_checkable
class Backend(Protocol):
    """Carries actions out and says what came of them; workers may join and leave at any time."""

    def start(self) -> None:
        """Begin: workers announce themselves by events."""
        ...

    def submit(self, action: Task) -> None:
        """Take an action; never blocks on its result."""
        ...

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Wait for news, at most so many seconds; return the time and the events of that moment.

        Without a limit, no events mean that nothing will ever come.
        """
        ...

    def stop(self, *, failed: bool) -> None:
        """Let everything go; after a failure, what another driver could go on from stays."""
        ...


# --- what a backend may do besides ------------------------------------------------------------------------


@runtime_checkable
class FindsStates(Protocol):
    """A backend that can go on from states of an earlier run; without it all of them count as lost."""

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Return whether a state of an earlier run is there; then it stands for this place from now on."""
        ...


@runtime_checkable
class Wakeable(Protocol):
    """A backend whose ``wait`` another thread, or a signal handler, can end early."""

    def wake(self) -> None:
        """Let ``wait`` return soon."""
        ...


@runtime_checkable
class ReportsTraffic(Protocol):
    """A backend that counts what it has trained and moved."""

    units: int
    bytes_hopped: int
    bytes_between_nodes: int
    state_bytes: int  # of a state, on average
    made: dict[int, int]  # by node, a bit for each unit that was trained

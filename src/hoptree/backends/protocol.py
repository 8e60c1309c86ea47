"""The waist between the drive loop and whatever runs units."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit
from hoptree.core.events import Event

Task: TypeAlias = RunUnit | Evaluate | CancelUnit | DropState


class Backend(Protocol):
    """Carries actions out and says what came of them; workers may join and leave at any time."""

    def start(self) -> None:
        """Begin: workers announce themselves by events."""
        ...

    def submit(self, action: Task) -> None:
        """Take an action; never blocks on its result."""
        ...

    def wait(self) -> tuple[float, list[Event]]:
        """Wait for news; return the time and the events of that moment (none: nothing will ever come)."""
        ...

    def stop(self, *, failed: bool) -> None:
        """Let everything go; after a failure, what another driver could go on from stays."""
        ...

"""The last steps of an engine, for messages about events that cannot have happened."""

from __future__ import annotations

from collections import deque
from typing import final

from hoptree.core.actions import Action
from hoptree.core.errors import ProtocolError
from hoptree.core.events import Event


@final
class EventLog:
    """The last 4096 steps: time, event and actions."""

    def __init__(self) -> None:
        self.steps: deque[tuple[float, Event, list[Action]]] = deque(maxlen=4096)

    def story(self, run: int) -> str:
        """Return what is logged about one run, oldest first."""
        lines = [
            f"  at {now:g}: {record}"
            for now, event, actions in self.steps
            for record in (event, *actions)
            if getattr(record, "run", None) == run
        ]
        return "\n".join(lines) if lines else "  the log holds nothing about it"

    def recent(self, count: int = 20) -> str:
        """Return the last steps, oldest first."""
        lines = ["The last steps:"]
        for now, event, actions in list(self.steps)[-count:]:
            lines += [f"  at {now:g}: {event}", *(f"    -> {action}" for action in actions)]
        return "\n".join(lines)

    def impossible(self, event: Event, why: str, issued: int) -> ProtocolError:
        """Return the error for an event that cannot have happened; ``issued`` is how many runs were assigned."""
        last = f"last assigned run: {issued - 1}" if issued else "no run was assigned yet"
        story = self.story(getattr(event, "run", -1))
        return ProtocolError(f"{event}: this cannot have happened: {why} ({last}). Log of the run:\n{story}")

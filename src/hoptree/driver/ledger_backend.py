"""A backend wrapper that enters saved states in the store's ledger, for backends that do not do so themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from hoptree.backends.protocol import Backend, Task
from hoptree.core.actions import DropState, SaveState
from hoptree.core.events import Event, StateSaved

if TYPE_CHECKING:
    from hoptree.driver.state_reuse import StateIndex
    from hoptree.store.states import StateStore


@final
class LedgerBackend:
    """Passes actions and events on; enters saved states in the ledger, and releases them when they are dropped."""

    def __init__(self, backend: Backend, states: StateStore, index: StateIndex) -> None:
        self._backend = backend
        self._states = states
        self._index = index
        self._saving: dict[tuple[int, int], SaveState] = {}  # by place: states that are being saved
        self._dropped: set[str] = set()  # states that were dropped before they were saved

    def start(self) -> None:
        """Start the backend."""
        self._backend.start()

    def submit(self, action: Task) -> None:
        """Pass an action on, and note which state is to be saved or dropped."""
        if isinstance(action, SaveState):
            self._saving[action.node, action.unit] = action
        elif isinstance(action, DropState):
            if (action.node, action.unit) in self._saving:
                self._dropped.add(action.key)
            else:
                self._index.dropped(action.key)
        self._backend.submit(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Wait for events, and enter the states that were saved."""
        now, events = self._backend.wait(seconds)
        for event in events:
            if isinstance(event, StateSaved):
                self._enter(event.node, event.unit)
        return now, events

    def stop(self, *, failed: bool) -> None:
        """Stop the backend, and enter the states that were saved while it stopped."""
        try:
            self._backend.stop(failed=failed)
        finally:
            for node, unit in list(self._saving):
                self._enter(node, unit)

    def _enter(self, node: int, unit: int) -> None:
        action = self._saving.pop((node, unit), None)
        size = 0 if action is None else self._states.size(action.key)
        if action is not None and size:
            self._index.saved(action.key, size, action.seconds)
            if action.key in self._dropped:
                self._index.dropped(action.key)
        self._dropped.discard("" if action is None else action.key)

"""Where every state is (in shared memory, in the store, or in both) and which ones are being saved."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

import msgspec

from hoptree.backends.wakeup import Wakeup
from hoptree.worker.model_cache import LostStateError

if TYPE_CHECKING:
    from hoptree.store.states import StateStore

PlaceId: TypeAlias = tuple[int, int]  # node and unit: a place in the plan


class StateLocation(msgspec.Struct):
    """A state's key, the slot that holds it ("": only the store has it) and the worker that owns the slot."""

    key: str
    slot: str
    owner: str
    size: int
    seconds: float = 0.0  # of training since the last saved state before it
    saved: bool = False
    saving: bool = False
    durable: bool = True  # whether to save it durably
    dropped: bool = False  # while it was being saved, or found to be lost


class SaveLedger(Protocol):
    """Records which states the store holds for a study and which it no longer needs."""

    def saved(self, key: str, size: int, seconds: float) -> None:
        """Record a state that is now in the store."""
        ...

    def dropped(self, key: str) -> None:
        """Record a state that the study no longer needs; the store decides whether to keep it."""
        ...

    def has_room(self, size: int) -> bool:
        """Return whether the store may keep a state of that size that nobody needs."""
        ...


class StateTransport(Protocol):
    """Holds states on their way from one worker to the next."""

    def find_leftovers(self) -> dict[str, str]:
        """Return the slots of states that an earlier driver left, by key."""
        ...

    def write(self, location: StateLocation) -> None:
        """Copy a state to the store; called by the saving thread. Raise ``LostStateError`` if it is lost."""
        ...

    def free(self, location: StateLocation) -> None:
        """Let a state's slot be reused."""
        ...


@final
class StateTracker:
    """Tracks the states of a study and saves some in a background thread, so that training never waits.

    A slot is freed when its state is dropped, but not while the saving thread reads it.
    """

    def __init__(self, states: StateStore, ledger: SaveLedger, transport: StateTransport) -> None:
        self._states = states
        self._ledger = ledger
        self._free = transport.free
        self._locations: dict[PlaceId, StateLocation] = {}
        self._saver = _Saver(transport.write)

    @property
    def source(self) -> socket.socket:
        """Becomes readable when a state has been saved, or after ``wake``."""
        return self._saver.wakeup.source

    def wake(self) -> None:
        """Wake the thread that waits for the source."""
        self._saver.wakeup.notify()

    def find(self, place: PlaceId) -> StateLocation | None:
        """Return where a state is, if it is anywhere."""
        return self._locations.get(place)

    def put(self, place: PlaceId, location: StateLocation) -> None:
        """Record where a state is; a state that was trained twice replaces the first one.

        If the first one is being saved, it is freed afterwards.
        """
        known = self._locations.get(place)
        if known is not None and known.slot != location.slot and not known.saving:
            self._free(known)
        self._locations[place] = location

    def lose(self, place: PlaceId) -> None:
        """Remove a state that cannot be read, and free its slot."""
        location = self._locations.pop(place, None)
        if location is not None and location.saving:
            location.dropped = True
        elif location is not None:
            self._free(location)

    def drop(self, place: PlaceId) -> None:
        """Free a state's slot, and record that this study no longer needs the saved copy."""
        location = self._locations.pop(place, None)
        if location is None:
            return
        if location.saving:
            location.dropped = True
            return
        if location.saved:
            self._ledger.dropped(location.key)
        self._free(location)

    @property
    def backlog(self) -> int:
        """How many states wait to be saved."""
        return self._saver.waiting

    def save(self, place: PlaceId, seconds: float = 0.0, *, durable: bool = True) -> bool:
        """Save a state to the store in the background, unless it is there; ``seconds`` is its training time.

        Return whether it is being saved.
        """
        location = self._locations.get(place)
        if location is None or location.saving or location.saved:  # None: the store had it before this run
            return location is not None and location.saving
        location.seconds = seconds
        if location.key in self._states:  # from another study, or saved by a driver that was killed right after
            location.saved = True
            self._ledger.saved(location.key, location.size, seconds)
        elif location.slot:
            location.durable = durable
            location.saving = True
            self._saver.save(place, location)
        return location.saving

    def release_worker(self, owner: str) -> bool:
        """Save the states in a worker's slots and free the slots; return whether none is left."""
        for place, location in self._locations.items():
            if location.owner == owner and location.slot:
                self.save(place)
                if location.saved:
                    self._release_slot(location)
        return not any(location.owner == owner for location in self._locations.values())

    def fall_back_to_store(self, place: PlaceId) -> bool:
        """Free a state's slot if the store has the state too; return whether it has."""
        location = self._locations.get(place)
        if location is None or not location.saved or not location.slot:
            return False
        self._release_slot(location)
        return True

    def _release_slot(self, location: StateLocation) -> None:
        self._free(location)
        location.slot = location.owner = ""

    def take_results(self) -> tuple[list[PlaceId], list[PlaceId]]:
        """Return the places of states that were saved since the last call, and of those lost before that.

        Raise any other error that prevented a state from being saved.
        """
        saved: list[PlaceId] = []
        lost: list[PlaceId] = []
        failure: Exception | None = None
        for place, location, error in self._saver.results():
            location.saving = False
            if error is None:
                location.saved = True
                self._ledger.saved(location.key, location.size, location.seconds)
                saved.append(place)
            if location.dropped:
                if location.saved:
                    self._ledger.dropped(location.key)
                self._free(location)
            elif self._locations.get(place) is not location:  # it was trained again meanwhile
                self._free(location)
            elif isinstance(error, LostStateError):
                self.lose(place)
                lost.append(place)
            else:
                failure = failure or error
        if failure is not None:
            raise failure
        return saved, lost

    def close(self) -> None:
        """Wait until all requested states are saved, except lost ones; raise any other error."""
        try:
            self._saver.finish()
            self.take_results()
        finally:
            self._saver.wakeup.close()


_Result: TypeAlias = tuple[PlaceId, StateLocation, Exception | None]


@final
class _Saver:
    """A thread that copies states to the store, one at a time."""

    def __init__(self, write: Callable[[StateLocation], None]) -> None:
        self._write = write
        self._jobs: queue.SimpleQueue[tuple[PlaceId, StateLocation] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self.wakeup = Wakeup()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def save(self, place: PlaceId, location: StateLocation) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
            self._thread.start()
        self._jobs.put((place, location))

    def results(self) -> list[_Result]:
        self.wakeup.clear()
        found: list[_Result] = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def finish(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            place, location = job
            error: Exception | None = None
            try:
                self._write(location)
            except Exception as caught:
                error = caught
            self._done.put((place, location, error))
            self.wakeup.notify()

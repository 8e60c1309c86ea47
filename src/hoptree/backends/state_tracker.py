"""The shelf: where every state is, in shared memory, in the store or in both, and what is being saved."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

import msgspec

from hoptree.worker.model_cache import LostStateError

if TYPE_CHECKING:
    from hoptree.store.states import StateStore

PlaceId: TypeAlias = tuple[int, int]  # node and unit: a place in the plan


class StateLocation(msgspec.Struct):
    """Where a state is: its name, the slot it lies in ("": only the store has it), and that slot's owner."""

    key: str
    slot: str
    owner: str
    size: int
    seconds: float = 0.0  # of training, since something before it was saved
    saved: bool = False
    saving: bool = False
    durable: bool = True  # is to be so in the store
    dropped: bool = False  # while it was being saved, or found to be gone


class SaveLedger(Protocol):
    """Who is told what the store holds for a study, and what it needs no longer."""

    def saved(self, key: str, size: int, seconds: float) -> None:
        """Note a state that is in the store now."""
        ...

    def dropped(self, key: str) -> None:
        """Note a state that the study needs no longer; whether it stays is the store's affair."""
        ...

    def has_room(self, size: int) -> bool:
        """Return whether a state of that size may stay in the store when nobody needs it."""
        ...


class StateTransport(Protocol):
    """How states get from one worker to the next, and where they lie on the way."""

    def left(self) -> dict[str, str]:
        """Return where states lie that an earlier driver left, by key."""
        ...

    def write(self, stored: StateLocation) -> None:
        """Copy a state to the store; called by the thread that saves. One that is lost is a ``LostStateError``."""
        ...

    def free(self, stored: StateLocation) -> None:
        """Let the place where a state lies be used again."""
        ...


@final
class StateTracker:
    """Knows the states of a study; saves some of them behind the driver's back, so that training never waits.

    A slot is freed when its state is dropped, but not while it is being read by the thread that saves.
    """

    def __init__(self, states: StateStore, books: SaveLedger, hops: StateTransport) -> None:
        self._states = states
        self._books = books
        self._free = hops.free
        self._stored: dict[PlaceId, StateLocation] = {}
        self._saver = _Saver(hops.write)

    @property
    def doorbell(self) -> socket.socket:
        """Can be read when something has been saved, or somebody rang."""
        return self._saver.doorbell

    def ring(self) -> None:
        """Wake whoever waits for the doorbell."""
        self._saver.ring()

    def find(self, spot: PlaceId) -> StateLocation | None:
        """Return where a state is, if it is anywhere."""
        return self._stored.get(spot)

    def put(self, spot: PlaceId, stored: StateLocation) -> None:
        """Note where a state is; one that was made twice takes the place of the first.

        A first one that is being saved is freed when that is done.
        """
        known = self._stored.get(spot)
        if known is not None and known.slot != stored.slot and not known.saving:
            self._free(known)
        self._stored[spot] = stored

    def lose(self, spot: PlaceId) -> None:
        """Forget a state that cannot be read, and let go of where it lay."""
        stored = self._stored.pop(spot, None)
        if stored is not None and stored.saving:
            stored.dropped = True
        elif stored is not None:
            self._free(stored)

    def drop(self, spot: PlaceId) -> None:
        """Let go of a state: its slot is free, and the store need not keep it for us."""
        stored = self._stored.pop(spot, None)
        if stored is None:
            return
        if stored.saving:
            stored.dropped = True
            return
        if stored.saved:
            self._books.dropped(stored.key)
        self._free(stored)

    @property
    def backlog(self) -> int:
        """How many states wait to be saved."""
        return self._saver.waiting

    def save(self, spot: PlaceId, seconds: float = 0.0, *, durable: bool = True) -> bool:
        """Have a state written to the store, if it is not there; it took so long to train.

        Return whether it is on its way there.
        """
        stored = self._stored.get(spot)
        if stored is None or stored.saving or stored.saved:  # not ours: it is in the store since before
            return stored is not None and stored.saving
        stored.seconds = seconds
        if stored.key in self._states:  # another study's, or saved by a driver that was killed right after
            stored.saved = True
            self._books.saved(stored.key, stored.size, seconds)
        elif stored.slot:
            stored.durable = durable
            stored.saving = True
            self._saver.save(spot, stored)
        return stored.saving

    def leave(self, owner: str) -> bool:
        """Have what lies with a worker written, and let go of it there; return whether nothing is left there."""
        for spot, stored in self._stored.items():
            if stored.owner == owner and stored.slot:
                self.save(spot)
                if stored.saved:
                    self._free(stored)
                    stored.slot = stored.owner = ""
        return not any(stored.owner == owner for stored in self._stored.values())

    def has_copy(self, spot: PlaceId) -> bool:
        """Return whether the store has a state too; then where it lay is forgotten."""
        stored = self._stored.get(spot)
        if stored is None or not stored.saved or not stored.slot:
            return False
        self._free(stored)
        stored.slot = stored.owner = ""
        return True

    def saved(self) -> tuple[list[PlaceId], list[PlaceId]]:
        """Return what has been saved since this was asked last, and what was lost before it could be.

        Raise what else kept a state from being saved.
        """
        spots: list[PlaceId] = []
        gone: list[PlaceId] = []
        failure: Exception | None = None
        for spot, stored, error in self._saver.results():
            stored.saving = False
            if error is None:
                stored.saved = True
                self._books.saved(stored.key, stored.size, stored.seconds)
                spots.append(spot)
            if stored.dropped:
                if stored.saved:
                    self._books.dropped(stored.key)
                self._free(stored)
            elif self._stored.get(spot) is not stored:  # it was made again meanwhile
                self._free(stored)
            elif isinstance(error, LostStateError):
                self.lose(spot)
                gone.append(spot)
            else:
                failure = failure or error
        if failure is not None:
            raise failure
        return spots, gone

    def close(self) -> None:
        """Wait until all is saved that was to be and is not lost; raise what else kept it from being saved."""
        try:
            self._saver.finish()
            self.saved()
        finally:
            self._saver.close()


_Result: TypeAlias = tuple[PlaceId, StateLocation, Exception | None]


@final
class _Saver:
    """A thread that has states copied to the store, one at a time."""

    def __init__(self, write: Callable[[StateLocation], None]) -> None:
        self._write = write
        self._jobs: queue.SimpleQueue[tuple[PlaceId, StateLocation] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self.doorbell, self._button = socket.socketpair()
        self.doorbell.setblocking(False)
        self._button.setblocking(False)
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def save(self, spot: PlaceId, stored: StateLocation) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
            self._thread.start()
        self._jobs.put((spot, stored))

    def results(self) -> list[_Result]:
        with suppress(BlockingIOError):
            while self.doorbell.recv(4096):  # what comes after this rings again
                pass
        found: list[_Result] = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def ring(self) -> None:
        with suppress(BlockingIOError):  # full of rings that nobody has heard yet
            self._button.send(b"!")

    def finish(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.doorbell.close()
        self._button.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            spot, stored = job
            error: Exception | None = None
            try:
                self._write(stored)
            except Exception as caught:
                error = caught
            self._done.put((spot, stored, error))
            self.ring()

"""States of Ray workers: in the object store, by references that the driver owns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, final

import ray
from ray.exceptions import ObjectLostError, RayError

from hoptree.backends.state_tracker import StateLocation
from hoptree.worker.model_cache import LostStateError

if TYPE_CHECKING:
    from hoptree.backends.ray_handle import RayWorkerHandle
    from hoptree.store.states import StateStore

_SAVING = 600.0  # seconds in which a worker has to write a state, before another one tries


@final
class StateReferences:
    """References to states by slot; with ``copied``, the driver's node keeps a copy of each state as well."""

    def __init__(self, *, copied: bool = False) -> None:
        self.copied = copied
        self._states: dict[str, Any] = {}
        self._copies: dict[str, Future[Any] | None] = {}

    def find(self, slot: str) -> Any:
        """Return the reference to a state, None if there is none."""
        return self._states.get(slot)

    def hold(self, slot: str, state: Any, copy: Future[Any] | None = None) -> None:
        """Keep a state, and the copy of it that was fetched: Ray does not evict it while somebody holds it."""
        self._states[slot] = state
        if self.copied:
            self._copies[slot] = copy

    def release(self, slot: str) -> None:
        """Release a state; the object store frees its memory with the last reference."""
        self._states.pop(slot, None)
        self._copies.pop(slot, None)

    def clear(self) -> None:
        """Release all states."""
        self._states.clear()
        self._copies.clear()


@final
class RayStates:
    """Saves and frees states in the object store; ``workers`` returns the workers that run."""

    def __init__(
        self, states: StateStore, references: StateReferences, workers: Callable[[], Sequence[RayWorkerHandle]]
    ) -> None:
        self._states = states
        self._workers = workers
        self.references = references

    def find_leftovers(self) -> dict[str, str]:
        """Return nothing: states in the object store end with the driver that owned them."""
        return {}

    def write(self, location: StateLocation) -> None:
        """Let the worker that trained a state write it to the store, else another one, else the driver."""
        reference = self.references.find(location.slot)
        assert reference is not None, (
            f"state {location.key}: the slot {location.slot!r} was released before it was saved"
        )
        workers = [worker for worker in self._workers() if worker.joined]
        workers.sort(key=lambda worker: worker.name != location.owner)
        for worker in workers[:2]:
            try:
                ray.get(worker.actor.save.remote(location.key, reference, location.durable), timeout=_SAVING)
            except RayError as error:  # whatever else prevents saving, the driver runs into below
                if is_lost(error):
                    raise LostStateError(f"the state {location.key} was lost with its node") from error
            else:
                return
        try:
            arrays, meta = ray.get(reference)
        except RayError as error:
            raise LostStateError(f"the state {location.key} was lost with its node") from error
        self._states.put(location.key, arrays, meta, durable=location.durable)

    def free(self, location: StateLocation) -> None:
        """Release the reference to a state."""
        self.references.release(location.slot)


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that an object is lost, or that a call failed because its argument is."""
    cause = getattr(error, "cause", None)
    return isinstance(error, ObjectLostError) or (isinstance(cause, BaseException) and is_lost(cause))

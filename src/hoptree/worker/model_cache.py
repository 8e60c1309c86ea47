"""The cached models of a worker: states are loaded in place, and fetched before they are needed."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from hoptree.core.actions import Origin
from hoptree.store.errors import StateDamagedError, StoreError
from hoptree.worker.messages import StateSource
from hoptree.worker.slots import SlotDamagedError, SlotReader, SlotWriter

if TYPE_CHECKING:
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer
    from hoptree.trainers.gang import ModelPlacement

_COUNT = 16  # models that stay in memory …
_BYTES = 1 << 30  # … and the total size of their states; the one in use always stays


class LostStateError(Exception):
    """A state is missing or damaged and has to be trained again."""


@final
class CachedModel:
    """A model in memory, and the key of the state that it has ("": none, or half trained)."""

    __slots__ = ("key", "model", "size")

    def __init__(self, model: Any) -> None:
        self.model = model
        self.key = ""
        self.size = 0


@final
class ModelCache:
    """Provides models with a given state."""

    def __init__(self, trainer: Trainer, states: StateStore, writer: SlotWriter | None = None) -> None:
        self._trainer = trainer
        self._states = states
        self._writer = writer  # None: states are passed without slots
        self._reader = SlotReader()
        self._cached: OrderedDict[object, CachedModel] = OrderedDict()
        self._fetched: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def prefetch(self, source: StateSource) -> None:
        """Fetch a state in advance; called by another thread. An error here shows when the state is needed."""
        with suppress(StoreError, OSError, ValueError, MemoryError):
            if source.slot:
                self._reader.map(source.slot)
            elif source.key in self._states and not self._own_slot(source.key):
                self._fetched[source.key] = self._states.get(source.key)

    def provide(self, key: str, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Use this state the next time it is requested."""
        self._fetched = {key: state}

    def restore(
        self, origin: Origin, source: StateSource | None, placement: ModelPlacement | None = None
    ) -> CachedModel:
        """Return a cached model with a state loaded; without a source, the untrained model.

        With a ``placement``, the model is the part that this worker of a gang has; None is the whole model.
        """
        from hoptree.trainers.base import ModelState

        build = _build_key(origin, placement)
        cached = self._cached.get(build)
        if cached is None or source is None:
            cached = self._cached[build] = CachedModel(self._build(origin, placement))
        self._cached.move_to_end(build)
        self._evict()
        if source is not None:
            fetched = self._fetched.get(source.key)
            if cached.key != source.key:
                cached.key = ""
                self._trainer.load(cached.model, ModelState(*(fetched or self._fetch(source))))
                cached.key = source.key
            self._fetched.pop(source.key, None)
        return cached

    def has_others(self, origin: Origin, placement: ModelPlacement | None) -> bool:
        """Return whether models are cached besides one."""
        return any(build != _build_key(origin, placement) for build in self._cached)

    def drop_others(self, origin: Origin, placement: ModelPlacement | None) -> None:
        """Drop all cached models but one, which needs the memory."""
        for build in [build for build in self._cached if build != _build_key(origin, placement)]:
            del self._cached[build]

    def clear(self) -> None:
        """Drop all cached models."""
        self._cached.clear()

    def _build(self, origin: Origin, placement: ModelPlacement | None) -> Any:
        if placement is None:
            return self._trainer.build(origin.values, origin.seed)
        return self._trainer.build_part(origin.values, origin.seed, placement)

    def _evict(self) -> None:
        while len(self._cached) > 1 and (
            len(self._cached) > _COUNT or sum(each.size for each in self._cached.values()) > _BYTES
        ):
            self._cached.popitem(last=False)

    def _own_slot(self, key: str) -> str:
        return self._writer.find(key) if self._writer is not None else ""

    def _fetch(self, source: StateSource) -> tuple[dict[str, Any], dict[str, Any]]:
        slot = source.slot or self._own_slot(source.key)
        if slot:
            with suppress(OSError, ValueError, SlotDamagedError):
                header, arrays = self._reader.read(slot)
                if header.key == source.key:
                    return arrays, header.meta
        try:
            return self._states.get(source.key)
        except StateDamagedError as error:
            self._states.delete(source.key)
            raise LostStateError(f"the state {source.key} was damaged and is trained again: {error}") from error
        except (StoreError, OSError) as error:
            raise LostStateError(f"the state {source.key} is missing and is trained again: {error}") from error


def _build_key(origin: Origin, placement: ModelPlacement | None) -> object:
    return (origin.seed, *sorted(origin.values.items(), key=lambda item: item[0]), placement)

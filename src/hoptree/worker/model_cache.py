"""The models of a worker: resident, reloaded in place, their next states fetched before they are needed."""

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

_COUNT = 16  # models that stay in memory, …
_BYTES = 1 << 30  # … and how large their states may be together; the one in use stays in any case


class LostStateError(Exception):
    """A state is nowhere to be found, or damaged; it has to be trained again."""


@final
class CachedModel:
    """A model in memory, and the name of the state that is in it ("": none, or half trained)."""

    __slots__ = ("key", "model", "size")

    def __init__(self, model: Any) -> None:
        self.model = model
        self.key = ""
        self.size = 0


@final
class ModelCache:
    """Gives the loop a model with a given state in it."""

    def __init__(self, trainer: Trainer, states: StateStore, writer: SlotWriter | None = None) -> None:
        self._trainer = trainer
        self._states = states
        self._writer = writer  # None: states come and go without slots
        self._reader = SlotReader()
        self._resident: OrderedDict[object, CachedModel] = OrderedDict()
        self._fetched: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def prefetch(self, source: StateSource) -> None:
        """Bring a state near; called by another thread, and what fails here is tried again when it matters."""
        with suppress(StoreError, OSError, ValueError):
            if source.slot:
                self._reader.map(source.slot)
            elif source.key in self._states and not self._written(source.key):
                self._fetched[source.key] = self._states.get(source.key)

    def give(self, key: str, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Have a state that somebody has brought, for the next time it is asked for."""
        self._fetched = {key: state}

    def restore(self, origin: Origin, source: StateSource | None) -> CachedModel:
        """Return a resident model with a state in it; without a source, the untrained model."""
        from hoptree.trainers.base import ModelState

        build = (origin.seed, *sorted(origin.values.items(), key=lambda item: item[0]))
        resident = self._resident.get(build)
        if resident is None or source is None:
            resident = self._resident[build] = CachedModel(self._trainer.build(origin.values, origin.seed))
        self._resident.move_to_end(build)
        self._make_room()
        if source is not None:
            fetched = self._fetched.pop(source.key, None)
            if resident.key != source.key:
                resident.key = ""
                self._trainer.load(resident.model, ModelState(*(fetched or self._fetch(source))))
                resident.key = source.key
        return resident

    def _make_room(self) -> None:
        while len(self._resident) > 1 and (
            len(self._resident) > _COUNT or sum(resident.size for resident in self._resident.values()) > _BYTES
        ):
            self._resident.popitem(last=False)

    def _written(self, key: str) -> str:
        return self._writer.find(key) if self._writer is not None else ""

    def _fetch(self, source: StateSource) -> tuple[dict[str, Any], dict[str, Any]]:
        slot = source.slot or self._written(source.key)
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
            raise LostStateError(f"the state {source.key} is gone and is trained again: {error}") from error

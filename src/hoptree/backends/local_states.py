"""States of local workers: slots in shared memory, and on disk for what does not fit there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, final

from hoptree.backends.state_tracker import StateLocation
from hoptree.core.keys import identity
from hoptree.worker.messages import FreeSlot
from hoptree.worker.model_cache import LostStateError
from hoptree.worker.slots import SlotDamagedError, SlotReader, find_states

if TYPE_CHECKING:
    from hoptree.backends.processes import WorkerProcess
    from hoptree.store.states import StateStore


@final
class LocalStates:
    """The slots of a study; ``find_worker`` returns a worker that runs.

    Each driver writes to its own folder, named by the ``token`` of its lease: the slots of earlier drivers are
    found again, and those of a later driver are not touched.
    """

    def __init__(
        self,
        states: StateStore,
        folders: Sequence[Path],
        token: int,
        find_worker: Callable[[str], WorkerProcess | None],
    ) -> None:
        self._states = states
        self._folders = list(folders)
        self._token = token
        self._find_worker = find_worker
        self._reader = SlotReader()
        self.own_folders = [folder / str(token) for folder in folders]
        if token == 1:  # nobody has driven this study before: these slots belong to a deleted study of that name
            remove_slots(self._folders)
        for folder in self.own_folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def find_leftovers(self) -> dict[str, str]:
        """Return the slots that hold a complete state, of this driver and of earlier ones."""
        return find_states(slot_folders(self._folders, self._token))

    def write(self, location: StateLocation) -> None:
        """Copy a state from its slot to the store; raise ``LostStateError`` if the slot is missing or damaged."""
        try:
            header, arrays = self._reader.read(location.slot)
        except (OSError, ValueError, SlotDamagedError) as error:
            raise LostStateError(f"the state {location.key} is lost: {error}") from error
        if header.key != location.key:
            raise LostStateError(f"the state {location.key} is lost: {location.slot} holds {header.key}")
        self._states.put(location.key, arrays, header.meta, durable=location.durable)

    def free(self, location: StateLocation) -> None:
        """Return a slot to its owner; remove it if the owner has exited."""
        owner = self._find_worker(location.owner)
        if owner is not None:
            owner.send(FreeSlot(location.slot))
        elif location.slot:
            Path(location.slot).unlink(missing_ok=True)

    def close(self, *, keep: bool) -> None:
        """Remove the slots of this driver and of earlier ones, or keep them for the next driver."""
        if keep:
            _remove_empty([*slot_folders(self._folders, self._token), *self._folders])
        else:
            remove_slots(self._folders, self._token)


def slot_folders_of_study(store: Path, study: str) -> list[Path]:
    """Return the folders of a study's slots, the fastest first.

    They are the same for every driver, so that the slots of a killed driver are found again: in shared memory, and
    next to the store for states that do not fit there.
    """
    name = f"hoptree-{os.getuid()}-{identity('slots', os.fsencode(store), study)}"
    memory = Path("/dev/shm")  # noqa: S108 the name is unique by user, store and study
    home = memory if memory.is_dir() else Path(gettempdir())
    return [home / name, store / f"slots-{identity('slots', study)}"]


def slot_folders(folders: Sequence[Path], token: int | None = None) -> list[Path]:
    """Return the drivers' folders, up to that with ``token``, the earliest first."""
    found = [(int(path.name), path) for base in folders for path in base.glob("*") if path.name.isdecimal()]
    return [path for number, path in sorted(found) if token is None or number <= token]


def remove_slots(folders: Sequence[Path], token: int | None = None) -> None:
    """Remove the slots of drivers up to that with ``token``: later ones may be running."""
    for folder in slot_folders(folders, token):
        shutil.rmtree(folder, ignore_errors=True)
    _remove_empty(folders)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()

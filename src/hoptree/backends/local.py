"""The local pool: warm worker processes on this machine, states hopping through shared memory."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, final

from hoptree.backends.member import Member, Tidings
from hoptree.backends.processes import Process, make_setup
from hoptree.backends.sending import send_off
from hoptree.backends.shelf import Stored
from hoptree.core.lineage import digest
from hoptree.worker.messages import FreeSlot
from hoptree.worker.slots import SlotReader, find_states

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer


@final
class LocalPool:
    """So many processes, each with all partitions: they share them in the page cache.

    ``slots`` are folders for states on the way, the fastest first; what an earlier driver left there is found
    again.
    """

    def __init__(
        self, trainer: Trainer, dataset: Dataset, states: StateStore, *, workers: int, slots: Sequence[Path]
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._workers = workers
        self._slots = list(slots)
        self._session = secrets.token_hex(4)
        self._spawned = 0
        self._pickled = b""
        self._processes: dict[str, Process] = {}
        self._reader = SlotReader()
        for folder in self._slots:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # --- workers ----------------------------------------------------------------------------------------

    def recruit(self, members: Mapping[str, Member], lineages: int) -> Sequence[Member]:
        """Start a process for each worker that is missing."""
        self._pickled = self._pickled or send_off(self._trainer)
        self._processes = {name: process for name, process in self._processes.items() if name in members}
        return [self._spawn() for _ in range(self._workers - len(members))]

    def sources(self) -> Sequence[Any]:
        """Return the channels."""
        return [process.channel for process in self._processes.values()]

    def news(self, ready: Sequence[Any]) -> Tidings:
        """Return one message from each channel that has some; no message is the end."""
        return [(process, process.receive()) for process in self._processes.values() if process.channel in ready]

    def close(self, members: Sequence[Member], *, at_once: bool, failed: bool) -> None:
        """End all processes; only a failure leaves the slots, for the next driver."""
        processes = [self._processes[member.name] for member in members]
        for process in processes:
            process.ask_to_end(at_once=at_once)
        for process in processes:
            process.end()
        self._processes.clear()
        remove_slots(self._slots, all_of_them=not failed)

    def _spawn(self) -> Process:
        name = f"{self._session}-{self._spawned}"
        self._spawned += 1
        setup = make_setup(
            name, self._trainer.threads, self._pickled, self._dataset.path, self._states.location, self._slots
        )
        self._processes[name] = process = Process(name, setup)
        return process

    # --- states -----------------------------------------------------------------------------------------

    def left(self) -> dict[str, str]:
        """Return the slots that hold a whole state."""
        return find_states(self._slots)

    def write(self, stored: Stored) -> None:
        """Copy a state from its slot to the store."""
        header, arrays = self._reader.read(stored.slot)
        assert header.key == stored.key
        self._states.put(stored.key, arrays, header.meta, durable=stored.durable)

    def free(self, stored: Stored) -> None:
        """Give a slot back to its owner; that of a dead one is removed."""
        if stored.owner in self._processes:
            self._processes[stored.owner].send(FreeSlot(stored.slot))
        elif stored.slot:
            Path(stored.slot).unlink(missing_ok=True)


def slots_of(store: Path, study: str) -> list[Path]:
    """Return the folders of a study's slots, the fastest first.

    They are the same for every driver, so that what a killed one left is found: in shared memory, and beside the
    store for what does not fit there.
    """
    name = f"hoptree-{os.getuid()}-{digest(store, study)}"
    memory = Path("/dev/shm")  # noqa: S108 the name is ours alone by user, store and study
    home = memory if memory.is_dir() else Path(gettempdir())
    return [home / name, store / f"slots-{digest(study)}"]


def remove_slots(folders: Sequence[Path], *, all_of_them: bool) -> None:
    """Remove the folders of slots, or only the empty ones."""
    for folder in folders:
        if all_of_them:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()

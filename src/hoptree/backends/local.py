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

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.processes import WorkerProcess, make_setup
from hoptree.backends.state_tracker import StateLocation
from hoptree.backends.trainer_pickle import send_off
from hoptree.backends.worker_handle import WorkerHandle, WorkerMessages
from hoptree.core.keys import identity
from hoptree.worker.messages import FreeSlot
from hoptree.worker.model_cache import LostStateError
from hoptree.worker.slots import SlotDamagedError, SlotReader, find_states

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer


@final
class LocalPool:
    """So many processes, each with all partitions: they share them in the page cache.

    ``slots`` are folders for states on the way, the fastest first. Each driver has its own in there, by the
    ``token`` of its lease: what earlier ones left is found again, and what a later one owns is left alone.
    """

    one_machine = True

    def __init__(
        self,
        trainer: Trainer,
        dataset: Dataset,
        states: StateStore,
        *,
        workers: int,
        slots: Sequence[Path],
        token: int,
        heartbeat: float = beat_interval(LIMIT),
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._workers = workers
        self._slots = list(slots)
        self._token = token
        self._own = [folder / str(token) for folder in slots]
        self._heartbeat = heartbeat
        self._session = secrets.token_hex(4)
        self._spawned = 0
        self._pickled = b""
        self._processes: dict[str, WorkerProcess] = {}
        self._given_up: list[WorkerProcess] = []  # which may not have ended yet
        self._reader = SlotReader()
        if token == 1:  # nobody has driven this study before: what is there was a study's that is gone
            remove_slots(self._slots)
        for folder in self._own:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    # --- workers ----------------------------------------------------------------------------------------

    def recruit(self, members: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start a process for each worker that is missing."""
        self._pickled = self._pickled or send_off(self._trainer)
        self._given_up += [process for name, process in self._processes.items() if name not in members]
        self._given_up = [process for process in self._given_up if not process.ended]
        self._processes = {name: process for name, process in self._processes.items() if name in members}
        return [self._spawn() for _ in range(self._workers - len(members))]

    def sources(self) -> Sequence[Any]:
        """Return the channels."""
        return [process.channel for process in self._processes.values()]

    def news(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return one message from each channel that has some; no message is the end."""
        return [(process, process.receive()) for process in self._processes.values() if process.channel in ready]

    def close(self, members: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """End all processes; after a failure the slots stay, for the next driver."""
        processes = [self._processes[member.name] for member in members] + self._given_up
        try:
            for process in processes:
                process.ask_to_end(at_once=at_once)
            for process in processes:
                process.end()
        except BaseException:  # the user does not want to wait any longer
            for process in processes:
                process.kill()
            raise
        self._processes.clear()
        if failed:
            _remove_empty([*slot_folders(self._slots, self._token), *self._slots])
        else:
            remove_slots(self._slots, self._token)

    def _spawn(self) -> WorkerProcess:
        name = f"{self._session}-{self._spawned}"
        self._spawned += 1
        setup = make_setup(
            name,
            self._trainer.threads,
            self._pickled,
            self._dataset.path,
            self._states.location,
            self._own,
            self._heartbeat,
        )
        self._processes[name] = process = WorkerProcess(name, setup)
        return process

    # --- states -----------------------------------------------------------------------------------------

    def left(self) -> dict[str, str]:
        """Return the slots that hold a whole state, ours and those of earlier drivers."""
        return find_states(slot_folders(self._slots, self._token))

    def write(self, stored: StateLocation) -> None:
        """Copy a state from its slot to the store; a slot that is gone or damaged is a lost state."""
        try:
            header, arrays = self._reader.read(stored.slot)
        except (OSError, ValueError, SlotDamagedError) as error:
            raise LostStateError(f"the state {stored.key} is lost: {error}") from error
        if header.key != stored.key:
            raise LostStateError(f"the state {stored.key} is lost: {stored.slot} holds {header.key}")
        self._states.put(stored.key, arrays, header.meta, durable=stored.durable)

    def free(self, stored: StateLocation) -> None:
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
    name = f"hoptree-{os.getuid()}-{identity('slots', os.fsencode(store), study)}"
    memory = Path("/dev/shm")  # noqa: S108 the name is ours alone by user, store and study
    home = memory if memory.is_dir() else Path(gettempdir())
    return [home / name, store / f"slots-{identity('slots', study)}"]


def slot_folders(folders: Sequence[Path], token: int | None = None) -> list[Path]:
    """Return where drivers have their slots, those with a token up to ``token``, the earliest first."""
    found = [(int(path.name), path) for base in folders for path in base.glob("*") if path.name.isdecimal()]
    return [path for number, path in sorted(found) if token is None or number <= token]


def remove_slots(folders: Sequence[Path], token: int | None = None) -> None:
    """Remove the slots of drivers with a token up to ``token``: later ones may be at work."""
    for folder in slot_folders(folders, token):
        shutil.rmtree(folder, ignore_errors=True)
    _remove_empty(folders)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()

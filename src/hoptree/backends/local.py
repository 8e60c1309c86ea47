"""The local pool: warm worker processes on this machine, which exchange states through shared memory."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.backends.local_states import LocalStates, remove_slots, slot_folders, slot_folders_of_study
from hoptree.backends.processes import ProcessOptions, WorkerProcess, make_setup
from hoptree.backends.state_tracker import StateTransport
from hoptree.backends.trainer_pickle import pickle_trainer
from hoptree.backends.worker_handle import WorkerHandle, WorkerMessages

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

__all__ = ["LocalPool", "remove_slots", "slot_folders", "slot_folders_of_study"]


@final
class LocalPool:
    """A number of processes, each with all partitions: they share them in the page cache.

    ``slots`` are folders for states, the fastest first; ``token`` is the fencing token of the driver's lease.
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
        options: ProcessOptions = ProcessOptions(),  # noqa: B008 frozen
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._count = workers
        self._options = options
        self._seats: dict[
            str, int
        ] = {}  # by worker; a replacement takes the seat, and so the GPU, of a lost worker
        self._session = secrets.token_hex(4)
        self._started = 0
        self._pickled = b""
        self._processes: dict[str, WorkerProcess] = {}
        self._given_up: list[WorkerProcess] = []  # which may not have ended yet
        self._slots = LocalStates(states, slots, token, lambda name: self._processes.get(name))
        self.transport: StateTransport = self._slots

    def recruit(self, workers: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start a process for each worker that is missing."""
        self._pickled = self._pickled or pickle_trainer(self._trainer)
        self._given_up += [process for name, process in self._processes.items() if name not in workers]
        self._given_up = [process for process in self._given_up if not process.ended]
        self._processes = {name: process for name, process in self._processes.items() if name in workers}
        self._seats = {name: seat for name, seat in self._seats.items() if name in workers}
        free = [seat for seat in range(self._count) if seat not in self._seats.values()]
        return [self._start_process(seat) for seat in free[: self._count - len(workers)]]

    def sources(self) -> Sequence[Any]:
        """Return the channels."""
        return [process.channel for process in self._processes.values()]

    def messages(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return one message from each readable channel; None if the process has exited."""
        return [(process, process.receive()) for process in self._processes.values() if process.channel in ready]

    def close(self, workers: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """End all processes; after a failure the slots stay for the next driver."""
        processes = [self._processes[worker.name] for worker in workers] + self._given_up
        try:
            for process in processes:
                process.ask_to_end(at_once=at_once)
            for process in processes:
                process.end()
        except BaseException:  # the user interrupts the wait
            for process in processes:
                process.kill()
            raise
        self._processes.clear()
        self._slots.close(keep=failed)

    def _start_process(self, seat: int) -> WorkerProcess:
        name = f"{self._session}-{self._started}"
        self._started += 1
        setup = make_setup(
            name,
            self._trainer.threads,
            self._pickled,
            self._dataset.path,
            self._states.location,
            self._slots.own_folders,
            self._options.heartbeat,
        )
        setup = msgspec.structs.replace(setup, gpu=self._options.gpu(seat), memory=self._options.memory)
        self._seats[name] = seat
        self._processes[name] = process = WorkerProcess(name, setup, turn=self._started)
        return process

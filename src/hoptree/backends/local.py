"""The local backend: warm worker processes on this machine, states hopping through shared memory."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, final

import msgspec

from hoptree.backends.protocol import Task
from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit
from hoptree.core.errors import HoptreeError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.lineage import digest, seed_of
from hoptree.core.plan import Plan
from hoptree.worker.__main__ import SetUp
from hoptree.worker.messages import (
    Command,
    Failed,
    Forget,
    Forgotten,
    FreeSlot,
    Hello,
    Judge,
    Judged,
    Quit,
    Train,
    Trained,
    decode_news,
    encode,
)
from hoptree.worker.slots import SlotReader

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_CRASHES = 5  # workers in a row that die before they are ready


class DrainedError(HoptreeError):
    """The user asked to stop, and everything that ran has ended."""


class Stored(msgspec.Struct, frozen=True):
    """Where a state is: in a slot, in the store, or in both."""

    key: str
    slot: str
    owner: str
    size: int


@final
class _Process:
    """One worker process, as the driver sees it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], channel: Connection[Any, Any]) -> None:
        self.name = name
        self.process = process
        self.channel = channel
        self.ready = False
        self.queue: deque[int] = deque()

    def send(self, command: Command) -> None:
        """Say something; a worker that is gone is noticed when its channel is read."""
        with suppress(OSError):
            self.channel.send_bytes(encode(command))


@final
class LocalBackend:
    """Runs units in processes of their own; a worker that dies is replaced."""

    def __init__(
        self,
        trainer: Trainer,
        dataset: Dataset,
        states: StateStore,
        plan: Plan,
        *,
        workers: int,
        seed: int,
        slots: Path,
        begun: float = 0.0,
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._plan = plan
        self._workers = workers
        self._seed = seed
        self._offset = begun - time.monotonic()
        self._processes: dict[str, _Process] = {}
        self._spawned = 0
        self._stillborn = 0
        self._pickled = b""
        self._session = secrets.token_hex(4)
        self._stored: dict[tuple[int, int], Stored] = {}
        self._origins: dict[int, tuple[dict[str, Scalar], int]] = {}
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self._pending: list[Event] = []
        self._interrupts = 0
        self._drained = False
        self._old_handler: Any = None
        self._slots = slots
        slots.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._reader = SlotReader(slots)
        self._left = self._reader.keys()  # what an earlier driver left, if it was killed
        self.bytes_hopped = 0
        self.units = 0

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; each joins when it is ready."""
        import cloudpickle

        self._pickled = cloudpickle.dumps(self._trainer)
        if _in_main_thread():
            self._old_handler = signal.signal(signal.SIGINT, self._interrupted)
        for _ in range(self._workers):
            self._spawn()

    def submit(self, action: Task) -> None:
        """Pass an action on to its worker."""
        match action:
            case RunUnit():
                self._submit_unit(action)
            case Evaluate():
                self._runs[action.run] = action
                initial, build_seed = self._origin(action.node)
                slot = self._stored[action.node, action.unit].slot
                self._send(action.worker, action.run, Judge(action, slot, initial, build_seed))
            case CancelUnit(run, worker):
                if worker in self._processes:
                    self._processes[worker].send(Forget(run))
            case DropState(node, unit):
                self._drop(node, unit)
            case _:
                assert_never(action)

    def wait(self) -> tuple[float, list[Event]]:
        """Wait for news from any worker."""
        events, self._pending = self._pending, []
        while not events:
            if self._interrupts and not self._drained:
                self._drained = True
                events += [WorkerDrained(name) for name in self._processes]
                break
            if self._drained and not any(process.queue for process in self._processes.values()):
                raise DrainedError("stopped as asked; run again to go on")
            channels = {process.channel: process for process in self._processes.values()}
            for channel in wait(list(channels), timeout=1.0):
                events += self._news(channels[channel])  # type: ignore[index]
        return time.monotonic() + self._offset, events

    def stop(self) -> None:
        """End all workers and remove the slots; states that matter are in the store by now."""
        for process in self._processes.values():
            process.send(Quit())
        for process in self._processes.values():
            if any(process.queue):
                process.process.kill()
            try:
                process.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.process.kill()
                process.process.wait()
            process.channel.close()
        self._processes.clear()
        shutil.rmtree(self._slots, ignore_errors=True)
        if self._old_handler is not None:
            signal.signal(signal.SIGINT, self._old_handler)
            self._old_handler = None

    # --- states -----------------------------------------------------------------------------------------

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Know a state that an earlier run left in a slot or in the store; return whether it is there."""
        slot = self._left.get(key, "")
        if not slot and key not in self._states:
            return False
        self._stored[node, unit] = Stored(key, slot, "", 0)
        return True

    def save(self, node: int, unit: int) -> str:
        """Write a state to the store, if it is not there, and return its key."""
        stored = self._stored[node, unit]
        if stored.slot and stored.key not in self._states:
            header, arrays = self._reader.read(stored.slot)
            assert header.key == stored.key
            self._states.put(stored.key, arrays, header.meta)
        return stored.key

    def _drop(self, node: int, unit: int) -> None:
        stored = self._stored.pop((node, unit), None)
        if stored is None:
            return
        if stored.key in self._states:
            self._states.delete(stored.key)
        if stored.owner in self._processes:
            self._processes[stored.owner].send(FreeSlot(stored.slot))
        elif stored.slot:
            (self._slots / stored.slot).unlink(missing_ok=True)

    def _submit_unit(self, action: RunUnit) -> None:
        self._runs[action.run] = action
        initial, build_seed = self._origin(action.node)
        slot, key = "", ""
        if action.unit:
            source = self._stored.get((action.source, action.unit))
            if source is not None:
                slot, key = source.slot, source.key
                if source.owner != action.worker:
                    self.bytes_hopped += source.size
            else:  # made by the run ahead of it, on the same worker
                key = digest(self._plan.nodes[action.source].key, action.unit)
        shuffle = seed_of(self._seed, "shuffle", action.epoch, action.partition)
        self._send(action.worker, action.run, Train(action, slot, key, initial, build_seed, shuffle))

    def _origin(self, number: int) -> tuple[dict[str, Scalar], int]:
        """Return the values with which a lineage began, and the seed its model was built with."""
        found = self._origins.get(number)
        if found is None:
            origin = self._plan.nodes[number].origin
            found = self._origins[number] = (origin.values.at(0.0), seed_of(origin.key, "build"))
        return found

    # --- workers ----------------------------------------------------------------------------------------

    def _send(self, worker: str, run: int, command: Command) -> None:
        process = self._processes.get(worker)
        if process is not None:
            process.queue.append(run)
            process.send(command)

    def _spawn(self) -> None:
        name = f"{self._session}-{self._spawned}"
        self._spawned += 1
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(  # noqa: S603 our own interpreter and module
            [sys.executable, "-m", "hoptree.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        channel: Connection[Any, Any] = Connection(ours.detach())
        setup = SetUp(
            name,
            os.getpid(),
            sys.path,
            str(Path.cwd()),
            self._trainer.threads,
            self._pickled,
            str(self._dataset.path),
            str(self._states.folder),
            str(self._slots),
        )
        channel.send_bytes(encode(setup))
        self._processes[name] = _Process(name, process, channel)

    def _news(self, process: _Process) -> list[Event]:
        try:
            news = decode_news(process.channel.recv_bytes())
        except (EOFError, OSError):
            return self._died(process)
        name = process.name
        match news:
            case Hello():
                process.ready = True
                self._stillborn = 0
                return [WorkerJoined(name, tuple(range(self._dataset.partitions)))]
            case Trained(run, slot, key, size):
                action = self._runs[run]
                assert isinstance(action, RunUnit)
                self._stored[action.node, action.unit + 1] = Stored(key, slot, name, size)
                self.units += 1
                if not action.evaluate:
                    self._over(process, run)
                return [UnitFinished(run, name)]
            case Judged(run, metrics):
                self._over(process, run)
                return [StateEvaluated(run, name, metrics)]
            case Failed(run, reason, fault):
                self._over(process, run)
                return [UnitFailed(run, name, reason, fault)]
            case Forgotten(run):
                self._over(process, run)
                return [UnitCancelled(run, name)]
            case _:
                assert_never(news)

    def _over(self, process: _Process, run: int) -> None:
        self._runs.pop(run, None)
        if run in process.queue:
            process.queue.remove(run)

    def _died(self, process: _Process) -> list[Event]:
        """Replace a worker that is gone; what it ran was its doing unless somebody killed it from outside."""
        code = process.process.wait()
        process.channel.close()
        del self._processes[process.name]
        events: list[Event] = []
        if process.queue:
            run = process.queue[0]
            killed = -code in (signal.SIGKILL, signal.SIGTERM)
            reason = f"the worker died with {_how(code)}"
            events.append(UnitFailed(run, process.name, reason, "system" if killed else "user"))
        if process.ready:
            events.append(WorkerLost(process.name))
        else:
            self._stillborn += 1
            if self._stillborn >= _CRASHES:
                raise HoptreeError(f"workers: {_CRASHES} in a row died with {_how(code)} before they were ready")
        if not self._drained:
            self._spawn()
        return events

    def _interrupted(self, *_: object) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()

"""The main loop of a worker: load a state, train, write the new state to a slot, evaluate.

A worker stays warm: its data is mapped once, its models stay in memory, states are loaded in place, and a model
that already has the requested state is not loaded at all. A second thread reads commands: it fetches the next state
while a unit trains, cancels runs, reports the stack of a unit that takes too long, and ends the worker with its
driver, even in the middle of a unit.
"""

from __future__ import annotations

import errno
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, assert_never, final

from hoptree.worker.children import exit_if_forked
from hoptree.worker.limits import FileLimit, is_out_of_memory
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FirstUnitStarted,
    FreeSlot,
    HelpEnded,
    HoldPartitions,
    InputsObserved,
    MeasureBatches,
    Quit,
    Rehearse,
    RunCancelled,
    RunFailed,
    Stack,
    StorageFull,
    TrainUnit,
    UnitTrained,
    WorkerCommand,
    WorkerMessage,
    WorkerReady,
    decode_command,
    encode,
)
from hoptree.worker.model_cache import ModelCache
from hoptree.worker.runner import CommandRunner, failure
from hoptree.worker.slots import NoRoomError, SlotWriter
from hoptree.worker.tracebacks import user_stack, user_traceback

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer


@final
class WorkerLoop:
    """Serves one driver until that sends ``Quit`` or exits."""

    def __init__(
        self,
        channel: Connection,
        trainer: Trainer,
        dataset: Dataset,
        states: StateStore,
        slots: Sequence[Path],
        name: str,
    ) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._partitions = dataset.partitions
        self._writer = SlotWriter(slots, name)
        self._models = ModelCache(trainer, states, self._writer)
        self._runner = CommandRunner(trainer, dataset, self._models, [states.location, *map(str, slots)])
        self._commands: queue.SimpleQueue[WorkerCommand] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._interruptible = -1  # the run that may be interrupted at this moment
        self._pid = os.getpid()
        self._started = False  # whether it has started a unit
        self._limit = FileLimit()

    def serve(self) -> None:
        """Report that the worker is ready, and carry out commands one at a time."""
        signal.signal(signal.SIGUSR1, self._on_signal)
        threading.Thread(target=self._read_commands, name="commands", daemon=True).start()
        held = tuple(range(self._partitions))
        rendezvous = self._runner.open_rendezvous("127.0.0.1")
        self._send(WorkerReady(os.getpid(), held, self._runner.platform(), rendezvous))
        while True:
            command = self._commands.get()
            match command:
                case TrainUnit() | EvaluateState():
                    self._run(command)
                case FreeSlot(slot):
                    self._writer.free(slot)
                case Rehearse():
                    self._send_result(self._runner.rehearse(command, partition=0))
                    self._restore_limit()
                case MeasureBatches():
                    self._send_result(self._runner.measure(command))
                    self._restore_limit()
                case Quit():
                    return
                case CancelRun() | DumpStack() | HoldPartitions():
                    pass  # the thread that reads commands did it; a local worker has all partitions
                case _:
                    assert_never(command)

    # --- the thread that reads commands -------------------------------------------------------------------

    def _read_commands(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        try:
            while True:
                command = decode_command(self._channel.recv_bytes())
                self._commands.put(command)
                match command:
                    case TrainUnit(source=source) | EvaluateState(source=source) if source is not None:
                        self._models.prefetch(source)
                    case CancelRun(run):
                        self._cancelled.add(run)
                        if self._interruptible == run:
                            signal.pthread_kill(main, signal.SIGUSR1)
                    case DumpStack():
                        self._send(Stack(user_stack(sys._current_frames()[main])))
        except (EOFError, OSError):
            os._exit(0)  # the driver has exited: nobody waits for a result

    def _send(self, message: WorkerMessage) -> None:
        exit_if_forked(self._pid)
        data = encode(message)
        try:
            with self._sending:
                self._channel.send_bytes(data)
        except ConnectionError:
            os._exit(0)  # the driver has exited, as above

    # --- the main thread ----------------------------------------------------------------------------------

    def _send_result(self, message: WorkerMessage) -> None:
        """Send the inputs that the user's code has read, and then the result of a command."""
        for observations in self._runner.observed():
            self._send(InputsObserved(observations))
        self._send(message)

    def _run(self, command: TrainUnit | EvaluateState) -> None:
        """Carry out a run; an error of the user's code becomes a message, and the worker continues."""
        run = command.action.run
        try:
            if run in self._cancelled:
                raise _Cancelled
            if isinstance(command, TrainUnit) and command.gang is not None and command.gang.rank:
                self._help(command)
            elif isinstance(command, TrainUnit):
                self._train(command)
            else:
                self._send_result(self._runner.evaluate_state(command))
        except _Cancelled:
            self._send_result(RunCancelled(run))
        except NoRoomError as error:
            limited = self._limit.changed() if error.errno == errno.EFBIG else ""
            self._send_result(RunFailed(run, limited, "user") if limited else StorageFull(str(error.strerror)))
        except (Exception, SystemExit) as error:
            self._send_result(failure(run, error))
        self._cancelled.discard(run)
        self._restore_limit()

    def _restore_limit(self) -> None:
        """Undo a limit that a trial's code has set; if that fails, exit, so that another worker takes over."""
        if not self._limit.restore():
            os.kill(os.getpid(), signal.SIGKILL)

    def _train(self, command: TrainUnit) -> None:
        made = self._runner.train(command, self._interruptible_run)
        exit_if_forked(self._pid)
        try:
            slot = self._writer.write(command.target, made.state.arrays, made.state.meta)
        except NoRoomError:
            raise
        except OSError as error:  # the user's code is not involved
            self._send(
                RunFailed(command.action.run, f"its state cannot be written: {user_traceback(error)}", "system")
            )
            return
        seconds = self._runner.mark_kept(made, command.target)
        self._send_result(UnitTrained(command.action.run, slot, made.size, seconds))
        if command.action.evaluate:
            self._send_result(self._runner.evaluate(command, made.cached))

    def _help(self, command: TrainUnit) -> None:
        """Train a unit together with its leader, which reports the result or what went wrong."""
        try:
            made = self._runner.train(command, self._interruptible_run)
            exit_if_forked(self._pid)
            self._runner.mark_kept(made, command.target)
        except (Exception, SystemExit, _Cancelled) as error:
            exit_if_forked(self._pid)
            if isinstance(error, Exception) and is_out_of_memory(error):  # which the leader may never hear
                self._send_result(failure(command.action.run, error))
                return
        self._send_result(HelpEnded(command.action.run))

    @contextmanager
    def _interruptible_run(self, run: int) -> Iterator[None]:
        if not self._started:
            self._started = True
            self._send(FirstUnitStarted(run))
        self._interruptible = run
        try:
            if run in self._cancelled:  # it was cancelled after the first check
                raise _Cancelled
            yield
        finally:
            self._interruptible = -1

    def _on_signal(self, *_: object) -> None:
        """Interrupt the user's code, but never Hoptree's own."""
        if self._interruptible in self._cancelled:
            raise _Cancelled


class _Cancelled(BaseException):
    """The run was cancelled; not an Exception, so that the user's code does not catch it."""

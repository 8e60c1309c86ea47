"""The one loop of a worker: restore, train, hand on, evaluate.

A worker is warm: its data is mapped once, its models stay in memory and are reloaded in place, and a model whose
state is the one asked for is not reloaded at all. Commands are read by a thread of their own: it fetches the next
state while a unit trains, gives up a unit that nobody needs any more, says where a unit is that takes too long,
and ends the worker with its driver even in the middle of a unit.
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

from hoptree.worker.children import end_copy
from hoptree.worker.limits import FileLimit
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FirstUnitStarted,
    FreeSlot,
    HoldPartitions,
    InputsObserved,
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
    """Serves one driver until it says so or is gone."""

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
        self._speaking = threading.Lock()
        self._partitions = dataset.partitions
        self._writer = SlotWriter(slots, name)
        self._models = ModelCache(trainer, states, self._writer)
        self._runner = CommandRunner(trainer, dataset, self._models, [states.location, *map(str, slots)])
        self._commands: queue.SimpleQueue[WorkerCommand] = queue.SimpleQueue()
        self._forgotten: set[int] = set()
        self._interruptible = -1  # the run that may be given up at this moment
        self._pid = os.getpid()
        self._started = False  # whether it has begun a unit
        self._limit = FileLimit()

    def serve(self) -> None:
        """Announce the worker and carry out commands, one at a time."""
        signal.signal(signal.SIGUSR1, self._interrupted)
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        self._say(WorkerReady(os.getpid(), tuple(range(self._partitions)), self._runner.platform()))
        while True:
            command = self._commands.get()
            match command:
                case TrainUnit() | EvaluateState():
                    self._guard(command)
                case FreeSlot(slot):
                    self._writer.free(slot)
                case Rehearse():
                    self._tell(self._runner.rehearse(command, partition=0))
                    self._restore_limit()
                case Quit():
                    return
                case CancelRun() | DumpStack() | HoldPartitions():
                    pass  # the listener has seen to it; all partitions are here
                case _:
                    assert_never(command)

    # --- the thread that listens --------------------------------------------------------------------------

    def _listen(self) -> None:
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
                        self._forgotten.add(run)
                        if self._interruptible == run:
                            signal.pthread_kill(main, signal.SIGUSR1)
                    case DumpStack():
                        self._say(Stack(user_stack(sys._current_frames()[main])))
        except (EOFError, OSError):
            os._exit(0)  # the driver is gone: nobody waits for what runs here

    def _say(self, news: WorkerMessage) -> None:
        end_copy(self._pid)
        data = encode(news)
        try:
            with self._speaking:
                self._channel.send_bytes(data)
        except ConnectionError:
            os._exit(0)  # the driver is gone, as above

    # --- the thread that works ----------------------------------------------------------------------------

    def _tell(self, news: WorkerMessage) -> None:
        """Say what came of a command, and before that what the user's code has read."""
        for observations in self._runner.observed():
            self._say(InputsObserved(observations))
        self._say(news)

    def _guard(self, command: TrainUnit | EvaluateState) -> None:
        """Carry a run out; what the user's code raises is news, not the end of the worker."""
        run = command.action.run
        try:
            if run in self._forgotten:
                raise _GivenUp
            if isinstance(command, TrainUnit):
                self._train(command)
            else:
                self._tell(self._runner.judge(command))
        except _GivenUp:
            self._tell(RunCancelled(run))
        except NoRoomError as error:
            limited = self._limit.changed() if error.errno == errno.EFBIG else ""
            self._tell(RunFailed(run, limited, "user") if limited else StorageFull(str(error.strerror)))
        except (Exception, SystemExit) as error:
            self._tell(failure(run, error))
        self._forgotten.discard(run)
        self._restore_limit()

    def _restore_limit(self) -> None:
        """Let no trial suffer from a limit that another one's code has set: else another worker takes our place."""
        if not self._limit.restore():
            os.kill(os.getpid(), signal.SIGKILL)

    def _train(self, command: TrainUnit) -> None:
        made = self._runner.train(command, self._may_be_given_up)
        end_copy(self._pid)
        try:
            slot = self._writer.write(command.target, made.state.arrays, made.state.meta)
        except NoRoomError:
            raise
        except OSError as error:  # no code of the user's had a part in that
            self._say(RunFailed(command.action.run, f"its state cannot be kept: {user_traceback(error)}", "system"))
            return
        seconds = self._runner.handed_on(made, command.target)
        self._tell(UnitTrained(command.action.run, slot, made.size, seconds))
        if command.action.evaluate:
            self._tell(self._runner.evaluate(command, made.resident))

    @contextmanager
    def _may_be_given_up(self, run: int) -> Iterator[None]:
        if not self._started:
            self._started = True
            self._say(FirstUnitStarted(run))
        self._interruptible = run
        try:
            if run in self._forgotten:  # it came between the first look and here
                raise _GivenUp
            yield
        finally:
            self._interruptible = -1

    def _interrupted(self, *_: object) -> None:
        """Raise in the middle of the user's code, but only where nothing of ours is half done."""
        if self._interruptible in self._forgotten:
            raise _GivenUp


class _GivenUp(BaseException):
    """Nobody needs the unit any more; not an Exception, so that the user's code does not catch it."""

"""The one loop of a worker: restore, train, hand on, evaluate.

A worker is warm: its data is mapped once, its models stay in memory and are reloaded in place, and a model whose
state is the one asked for is not reloaded at all. Commands are read by a thread of their own: it fetches the next
state while a unit trains, gives up a unit that nobody needs any more, says where a unit is that takes too long,
and ends the worker with its driver even in the middle of a unit.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, final

from hoptree.worker.messages import (
    Command,
    Failed,
    Forget,
    Forgotten,
    FreeSlot,
    Full,
    Hello,
    Here,
    Judge,
    Judged,
    News,
    Quit,
    Rehearse,
    Rehearsed,
    Train,
    Trained,
    Where,
    decode_command,
    encode,
)
from hoptree.worker.models import Models, StateGoneError
from hoptree.worker.slots import NoRoomError, SlotWriter
from hoptree.worker.tracebacks import user_stack, user_traceback

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer


@final
class Loop:
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
        self._trainer = trainer
        self._dataset = dataset
        self._valid = dataset.valid()
        self._writer = SlotWriter(slots, name)
        self._models = Models(trainer, states, self._writer)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._forgotten: set[int] = set()
        self._interruptible = -1  # the run that may be given up at this moment

    def serve(self) -> None:
        """Announce the worker and carry out commands, one at a time."""
        signal.signal(signal.SIGUSR1, self._interrupted)
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        self._say(Hello(os.getpid()))
        while True:
            command = self._commands.get()
            match command:
                case Train() | Judge():
                    self._guard(command)
                case FreeSlot(slot):
                    self._writer.free(slot)
                case Rehearse(configs):
                    self._say(self._rehearse(configs))
                case Quit():
                    return
                case Forget() | Where():
                    pass  # the listener has seen to it
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
                    case Train(source=source) | Judge(source=source) if source is not None:
                        self._models.prefetch(source)
                    case Forget(run):
                        self._forgotten.add(run)
                        if self._interruptible == run:
                            signal.pthread_kill(main, signal.SIGUSR1)
                    case Where():
                        self._say(Here(user_stack(sys._current_frames()[main])))
        except (EOFError, OSError):
            os._exit(0)  # the driver is gone: nobody waits for what runs here

    def _say(self, news: News) -> None:
        data = encode(news)
        with self._speaking:
            self._channel.send_bytes(data)

    # --- the thread that works ----------------------------------------------------------------------------

    def _guard(self, command: Train | Judge) -> None:
        """Carry a run out; what the user's code raises is news, not the end of the worker."""
        run = command.action.run
        try:
            if run in self._forgotten:
                raise _GivenUp
            if isinstance(command, Train):
                self._train(command)
            else:
                self._judge(command)
        except _GivenUp:
            self._say(Forgotten(run))
        except StateGoneError as error:
            self._say(Failed(run, str(error), "system", lost=True))
        except NoRoomError as error:
            self._say(Full(str(error.strerror)))
        except MemoryError as error:
            self._say(Failed(run, f"out of memory\n{user_traceback(error)}", "user"))
        except Exception as error:
            self._say(Failed(run, user_traceback(error), "user"))
        self._forgotten.discard(run)

    def _rehearse(self, configs: Sequence[Mapping[str, Scalar]]) -> Rehearsed:
        from hoptree.trainers.rehearsal import rehearse

        reasons: list[str] = []
        for config in configs:
            try:
                names = rehearse(self._trainer, config, self._dataset.partition(0), self._valid)
            except Exception as error:
                reasons.append(user_traceback(error))
            else:
                return Rehearsed(list(names), [])
        return Rehearsed([], reasons)

    def _train(self, command: Train) -> None:
        from hoptree.trainers.base import UnitSpec

        action, partitions = command.action, self._dataset.partitions
        resident = self._models.restore(command.origin, command.source)
        unit = UnitSpec(action.values, action.unit, partitions, action.partition, action.seed, command.shuffle_seed)
        data = self._dataset.partition(action.partition)
        began = time.perf_counter()
        resident.key = ""
        with self._may_be_given_up(action.run):
            self._trainer.train(resident.model, data, unit)
        state = self._trainer.dump(resident.model)
        slot = self._writer.write(command.target, state.arrays, state.meta)
        resident.key = command.target
        resident.size = sum(array.nbytes for array in state.arrays.values())
        self._say(Trained(action.run, slot, resident.size, time.perf_counter() - began))
        if action.evaluate:
            self._evaluate(action.run, resident.model, action.values.at((action.unit + 1) / partitions))

    def _judge(self, command: Judge) -> None:
        resident = self._models.restore(command.origin, command.source)
        self._evaluate(command.action.run, resident.model, command.origin.values)

    def _evaluate(self, run: int, model: Any, values: Mapping[str, Scalar]) -> None:
        from hoptree.trainers.numbers import as_number

        metrics = {} if self._valid is None else self._trainer.evaluate(model, self._valid, values)
        self._say(Judged(run, {name: as_number(name, value) for name, value in metrics.items()}))

    @contextmanager
    def _may_be_given_up(self, run: int) -> Iterator[None]:
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

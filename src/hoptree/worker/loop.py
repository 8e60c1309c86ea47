"""The one loop of a worker: restore, train, hand on, evaluate.

A worker is warm: its data is mapped once, its models stay in memory and are reloaded in place, and a model whose
state is the one asked for is not reloaded at all. Commands are read by a thread of their own, so that a driver's
death ends the worker even in the middle of a unit.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, final

from hoptree.core.errors import HoptreeError
from hoptree.core.lineage import digest
from hoptree.worker.messages import (
    Command,
    Failed,
    Forget,
    Forgotten,
    FreeSlot,
    Hello,
    Judge,
    Judged,
    News,
    Quit,
    Train,
    Trained,
    decode_command,
    encode,
)
from hoptree.worker.slots import SlotReader, SlotWriter

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_RESIDENT = 8  # models of different build that stay in memory


@final
class _Resident:
    """A model in memory, and the key of the state that is in it ("": none, or half trained)."""

    __slots__ = ("key", "model")

    def __init__(self, model: Any) -> None:
        self.model = model
        self.key = ""


@final
class Loop:
    """Serves one driver until it says so or is gone."""

    def __init__(
        self, channel: Connection, trainer: Trainer, dataset: Dataset, states: StateStore, slots: Path, name: str
    ) -> None:
        self._channel = channel
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._reader = SlotReader(slots)
        self._writer = SlotWriter(slots, name)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._forgotten: set[int] = set()
        self._resident: OrderedDict[tuple[Any, ...], _Resident] = OrderedDict()
        self._valid: Mapping[str, Any] | None = None

    def serve(self) -> None:
        """Announce the worker and carry out commands, one at a time."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        self._valid = self._dataset.valid()
        self._say(Hello(os.getpid()))
        while True:
            command = self._commands.get()
            match command:
                case Train():
                    self._guard(command.action.run, lambda c=command: self._train(c))
                case Judge():
                    self._guard(command.action.run, lambda c=command: self._judge(c))
                case FreeSlot(slot):
                    self._writer.free(slot)
                case Quit():
                    return
                case Forget():
                    pass
                case _:
                    assert_never(command)

    def _listen(self) -> None:
        try:
            while True:
                command = decode_command(self._channel.recv_bytes())
                if isinstance(command, Forget):
                    self._forgotten.add(command.run)
                self._commands.put(command)
        except (EOFError, OSError):
            os._exit(0)  # the driver is gone: nobody waits for what runs here

    def _say(self, news: News) -> None:
        self._channel.send_bytes(encode(news))

    def _guard(self, run: int, work: Any) -> None:
        """Carry a run out; what the user's code raises is news, not the end of the worker."""
        if run in self._forgotten:
            self._forgotten.discard(run)
            self._say(Forgotten(run))
            return
        try:
            work()
        except _SystemFaultError as error:
            self._say(Failed(run, str(error), "system"))
        except MemoryError:
            self._say(Failed(run, "out of memory\n" + traceback.format_exc(), "user"))
        except Exception as error:
            self._say(Failed(run, user_traceback(error), "user"))

    def _train(self, command: Train) -> None:
        from hoptree.trainers.base import UnitSpec

        action = command.action
        resident = self._restore(command.initial, command.build_seed, command.slot, command.source_key)
        unit = UnitSpec(
            action.values,
            action.unit,
            self._dataset.partitions,
            action.partition,
            action.seed,
            command.shuffle_seed,
        )
        resident.key = ""
        self._trainer.train(resident.model, self._dataset.partition(action.partition), unit)
        key = digest(action.key, action.unit + 1)
        state = self._trainer.dump(resident.model)
        slot = self._writer.write(key, state.arrays, state.meta)
        resident.key = key
        size = sum(array.nbytes for array in state.arrays.values())
        self._say(Trained(action.run, slot, key, size))
        if action.evaluate:
            values = action.values.at((action.unit + 1) / self._dataset.partitions)
            self._evaluate(action.run, resident.model, values)

    def _judge(self, command: Judge) -> None:
        resident = self._restore(command.initial, command.build_seed, command.slot, command.action.key)
        self._evaluate(command.action.run, resident.model, command.initial)

    def _evaluate(self, run: int, model: Any, values: Mapping[str, Scalar]) -> None:
        metrics = {} if self._valid is None else self._trainer.evaluate(model, self._valid, values)
        self._say(Judged(run, metrics))

    def _restore(self, initial: Mapping[str, Scalar], seed: int, slot: str, key: str) -> _Resident:
        """Return a resident model with the state ``key`` in it; ``key`` "" is the untrained model."""
        from hoptree.trainers.base import ModelState

        build = (seed, *sorted(initial.items(), key=lambda item: item[0]))
        resident = self._resident.get(build)
        if resident is None or not key:
            resident = self._resident[build] = _Resident(self._trainer.build(initial, seed))
        self._resident.move_to_end(build)
        while len(self._resident) > _RESIDENT:
            self._resident.popitem(last=False)
        if key and resident.key != key:
            arrays, meta = self._fetch(slot, key)
            self._trainer.load(resident.model, ModelState(arrays, meta))
            resident.key = key
        return resident

    def _fetch(self, slot: str, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            if slot:
                header, arrays = self._reader.read(slot)
                if header.key != key:
                    raise _SystemFaultError(f"slot {slot} holds {header.key}, not {key}")
                return arrays, header.meta
            return self._states.get(key)
        except (OSError, KeyError, ValueError) as error:
            raise _SystemFaultError(f"the state {key} cannot be read: {error}") from error


class _SystemFaultError(Exception):
    """Something of ours is missing; the unit is tried again."""


def user_traceback(error: BaseException) -> str:
    """Return the traceback from the user's own code on, without our frames above it."""
    if isinstance(error, HoptreeError):  # says where in the user's code it happened by itself
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    own = [frame for frame in frames if not frame.filename.startswith(ours)]
    lines = traceback.format_list(own or frames)
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()

"""A worker as a Ray actor: the same runner as in a process, its states passed and returned as arrays.

Calls run in groups of threads: units one after another in the first, what may not wait for them (control) and what
should not hold them up (saving) beside it. A state comes as an argument that Ray has brought near before the call
begins, while the one before it still trains; it is read without a copy and loaded into the resident model. The
state after a unit is returned, so that the driver owns it and it outlives this worker.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeAlias

import msgspec
import ray

from hoptree.worker.children import end_copy
from hoptree.worker.memory import keep_memory
from hoptree.worker.messages import (
    EvaluateState,
    HoldPartitions,
    InputsObserved,
    PartitionsHeld,
    Rehearse,
    RunCancelled,
    SetupRefused,
    Stack,
    TrainUnit,
    UnitTrained,
    WorkerMessage,
    WorkerReady,
    decode_command,
    encode,
)
from hoptree.worker.tracebacks import user_stack, user_traceback

GROUPS = {"control": 3, "save": 1, "heartbeat": 1}

State: TypeAlias = tuple[dict[str, Any], dict[str, Any]]  # arrays, and the JSON beside them
Line: TypeAlias = tuple[str, str]  # the stream that it was written to, "stdout" or "stderr", and what it says


class ActorSetup(msgspec.Struct, frozen=True):
    """What an actor is told before anything else."""

    node: str
    threads: int
    paths: list[str]
    folder: str
    dataset: str
    fingerprint: str
    copy: bool
    partitions: tuple[int, ...]
    states: str
    sign: str  # a file in the store, which shows that the store is the driver's


class RayWorker:
    """Serves one driver; made into an actor class by ``ray.remote`` with its resources."""

    def __init__(self) -> None:
        self._forgotten: set[int] = set()
        self._pid = os.getpid()
        self._started = False  # whether it has begun a unit
        self._thread = 0
        self._resident: Any = None
        self._output = _Output()

    # --- units, one after another -----------------------------------------------------------------------

    def begin(self, setup: bytes, trainer: bytes) -> bytes:
        """Get ready, or say why that cannot be."""
        try:
            self._set_up(msgspec.msgpack.decode(setup, type=ActorSetup), trainer)
        except Exception as error:
            name = f"node {ray.util.get_node_ip_address()}"
            missing = isinstance(error, ModuleNotFoundError)
            fix = "; install it there, or name a runtime_env in ht.Ray(…)" if missing else ""
            reason = str(error) if _is_ours(error) or missing else user_traceback(error)
            return encode(SetupRefused(f"{name}: {reason}{fix}"))
        return encode(WorkerReady(os.getpid(), self._depot.partitions, self._runner.platform()))

    def rehearse(self, command: bytes) -> bytes:
        """Try configs on a few examples."""
        wanted = decode_command(command)
        assert isinstance(wanted, Rehearse)
        try:
            return self._answer(self._runner.rehearse(wanted, self._depot.partitions[0]))
        finally:
            end_copy(self._pid)

    def hold(self, command: bytes) -> bytes:
        """Have other partitions."""
        wanted = decode_command(command)
        assert isinstance(wanted, HoldPartitions)
        self._depot.hold(wanted.partitions)
        return encode(PartitionsHeld(self._depot.partitions))

    @ray.method(num_returns=2)
    def train(self, command: bytes, state: State | None) -> tuple[bytes, State | None]:
        """Run a unit; return what came of it, and the state after it."""
        from hoptree.worker.runner import failure

        wanted = decode_command(command)
        assert isinstance(wanted, TrainUnit)
        run = wanted.action.run
        self._resident = None
        self._thread = threading.get_ident()
        try:
            if run in self._forgotten:
                return encode(RunCancelled(run)), None
            if state is not None and wanted.source is not None:
                self._models.give(wanted.source.key, state)
            made = self._runner.train(wanted, self._starts)
            seconds = self._runner.handed_on(made, wanted.target)
        except (Exception, SystemExit) as error:
            return self._answer(failure(run, error)), None
        finally:
            end_copy(self._pid)
            self._forgotten.discard(run)
        self._resident = made.resident
        return self._answer(UnitTrained(run, "", made.size, seconds)), (made.state.arrays, made.state.meta)

    def evaluate(self, command: bytes) -> bytes:
        """Return the metrics of what the call before this one trained; nothing if it did not."""
        from hoptree.worker.runner import failure

        wanted = decode_command(command)
        assert isinstance(wanted, TrainUnit)
        if self._resident is None or self._resident.key != wanted.target:
            return b""
        try:
            return self._answer(self._runner.evaluate(wanted, self._resident))
        except (Exception, SystemExit) as error:
            return self._answer(failure(wanted.action.run, error))
        finally:
            end_copy(self._pid)

    def judge(self, command: bytes, state: State | None) -> bytes:
        """Return the metrics of a stored state."""
        from hoptree.worker.runner import failure

        wanted = decode_command(command)
        assert isinstance(wanted, EvaluateState)
        run = wanted.action.run
        try:
            if run in self._forgotten:
                return encode(RunCancelled(run))
            if state is not None:
                self._models.give(wanted.source.key, state)
            return self._answer(self._runner.judge(wanted))
        except (Exception, SystemExit) as error:
            return self._answer(failure(run, error))
        finally:
            end_copy(self._pid)
            self._forgotten.discard(run)

    def leave(self) -> None:
        """Put everything in order; whoever listens hears the rest of what was printed, and then that it was all."""
        with suppress(AttributeError):  # it never began
            self._depot.close()
        self._output.close()

    # --- beside them --------------------------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def arrive(self) -> None:
        """Return at once: there was room."""

    @ray.method(concurrency_group="heartbeat")
    def beat(self, seconds: float) -> bool:
        """Return after some seconds: a sign of life. Return whether a unit has begun here."""
        time.sleep(seconds)
        return self._started

    @ray.method(concurrency_group="control")
    def listen(self) -> list[Line]:
        """Return lines that were printed, when there are some; none: there will be no more, it has left.

        A call that fails says that the worker is gone.
        """
        return self._output.wait()

    @ray.method(concurrency_group="control")
    def forget(self, run: int) -> None:
        """Give up a run that has not begun; one that has will end, and nobody minds."""
        self._forgotten.add(run)

    @ray.method(concurrency_group="control")
    def where(self) -> bytes:
        """Say where in the user's code the unit under way is."""
        frame = sys._current_frames().get(self._thread)
        return encode(Stack(user_stack(frame) if frame is not None else ""))

    @ray.method(concurrency_group="save")
    def save(self, key: str, state: State, durable: bool) -> None:
        """Write a state to the store."""
        self._states.put(key, *state, durable=durable)

    def _answer(self, news: WorkerMessage) -> bytes:
        """Return news as the answer to a call, within what the user's code has read."""
        answer = encode(news)
        for observations in reversed(self._runner.observed()):
            answer = encode(InputsObserved(observations, answer))
        return answer

    @contextmanager
    def _starts(self, _run: int) -> Iterator[None]:
        """Note that the user's code begins with a unit."""
        self._started = True
        yield

    def _set_up(self, setup: ActorSetup, trainer: bytes) -> None:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(setup.threads)
        keep_memory()
        with suppress(OSError):  # another machine may not have that folder
            os.chdir(setup.folder)
        sys.path += [path for path in setup.paths if path not in sys.path]
        self._output.open()
        import cloudpickle

        from hoptree.store.states import open_states
        from hoptree.worker.model_cache import ModelCache
        from hoptree.worker.partition_cache import PartitionCache
        from hoptree.worker.runner import CommandRunner

        self._states = open_states(setup.states)
        if not self._states.has_marker(setup.sign):
            from hoptree.store.errors import StoreError

            raise StoreError(
                f"store: {setup.states} is not the driver's there; keep the store in a folder that all nodes see "
                "under one name, for example Study(…, store='/shared/hoptree'), or the states at a URL that all "
                "reach, for example Study(…, states='s3://bucket/hoptree')"
            )
        self._depot = PartitionCache(setup.dataset, setup.fingerprint, setup.node, copy=setup.copy)
        self._depot.hold(setup.partitions)
        loaded = cloudpickle.loads(trainer)
        self._models = ModelCache(loaded, self._states)
        ignored = [setup.states, setup.dataset]
        self._runner = CommandRunner(loaded, self._depot.dataset(), self._models, ignored, setup.folder)


class _Output:
    """What the user's code prints: kept for the driver, and in Ray's own log as well."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._streams: list[_Tee] = []
        self._closed = False
        self._some = threading.Condition()

    def open(self) -> None:
        """Hear what is printed from now on."""
        self._streams = [_Tee("stdout", sys.stdout, self), _Tee("stderr", sys.stderr, self)]
        sys.stdout, sys.stderr = self._streams

    def close(self) -> None:
        """Say that there will be no more; a line that was begun ends here."""
        self.add([(stream.name, stream.begun) for stream in self._streams if stream.begun])
        with self._some:
            self._closed = True
            self._some.notify_all()

    def add(self, lines: Sequence[Line]) -> None:
        with self._some:
            self._lines += lines
            self._some.notify_all()

    def wait(self) -> list[Line]:
        with self._some:
            self._some.wait_for(lambda: self._lines or self._closed)
            lines, self._lines = self._lines, []
            return lines


class _Tee:
    """A stream that passes on what is written, and gives whole lines to somebody."""

    def __init__(self, name: str, stream: TextIO, output: _Output) -> None:
        self.name = name
        self._stream = stream
        self._output = output
        self.begun = ""

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        if lines:
            self._output.add([(self.name, line) for line in lines])
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_ours(error: Exception) -> bool:
    from hoptree.core.errors import HoptreeError

    return isinstance(error, HoptreeError)

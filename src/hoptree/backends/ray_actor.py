"""A worker as a Ray actor: the same runner as in a process, with states passed and returned as arrays.

Calls run in concurrency groups: units one after another in the default group; control, saving and heartbeats in
others, so that neither waits for units nor delays them. A state is an argument that Ray fetches before the call
begins, while the previous unit still trains; it is read without a copy and loaded into the cached model. The state
after a unit is returned, so that the driver owns it and it outlives this worker.
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

from hoptree.worker.children import exit_if_forked
from hoptree.worker.memory import keep_memory
from hoptree.worker.messages import (
    EvaluateState,
    HelpEnded,
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
Line: TypeAlias = tuple[str, str]  # "stdout" or "stderr", and a line that was printed there


class ActorSetup(msgspec.Struct, frozen=True):
    """The first message to an actor."""

    node: str
    threads: int
    paths: list[str]
    folder: str
    dataset: str
    fingerprint: str
    copy: bool
    partitions: tuple[int, ...]
    states: str
    host: str  # where other workers find it
    marker: str  # a file in the store, which shows that it is the driver's store


class RayWorker:
    """Serves one driver; ``ray.remote`` makes an actor class of it, with the resources of a worker."""

    def __init__(self) -> None:
        self._cancelled: set[int] = set()
        self._pid = os.getpid()
        self._started = False  # whether it has started a unit
        self._thread = 0
        self._trained: Any = None
        self._current = -1, ""  # the run that it trains, and the name of the gang that does
        self._output = _Output()

    # --- units, one after another -----------------------------------------------------------------------

    def set_up(self, setup: bytes, trainer: bytes) -> bytes:
        """Load trainer and data; return ``WorkerReady``, or ``SetupRefused`` with the reason."""
        try:
            self._load(msgspec.msgpack.decode(setup, type=ActorSetup), trainer)
        except Exception as error:
            name = f"node {ray.util.get_node_ip_address()}"
            missing = isinstance(error, ModuleNotFoundError)
            fix = "; install it there, or set ht.Ray(runtime_env=…)" if missing else ""
            reason = str(error) if _is_ours(error) or missing else user_traceback(error)
            return encode(SetupRefused(f"{name}: {reason}{fix}"))
        rendezvous = self._runner.open_rendezvous(self._host)
        return encode(WorkerReady(os.getpid(), self._partitions.partitions, self._runner.platform(), rendezvous))

    def rehearse(self, command: bytes) -> bytes:
        """Try configs on a few examples."""
        request = decode_command(command)
        assert isinstance(request, Rehearse)
        try:
            return self._answer(self._runner.rehearse(request, self._partitions.to_rehearse))
        finally:
            exit_if_forked(self._pid)

    def hold_partitions(self, command: bytes) -> bytes:
        """Hold other partitions."""
        request = decode_command(command)
        assert isinstance(request, HoldPartitions)
        self._partitions.hold(request.partitions)
        return encode(PartitionsHeld(self._partitions.partitions))

    @ray.method(num_returns=2)
    def train(self, command: bytes, state: State | None) -> tuple[bytes, State | None]:
        """Run a unit; return its result and the state after it."""
        from hoptree.worker.limits import is_out_of_memory
        from hoptree.worker.runner import failure

        request = decode_command(command)
        assert isinstance(request, TrainUnit)
        run, gang = request.action.run, request.gang
        helps = gang is not None and gang.rank > 0
        self._trained = None
        self._thread = threading.get_ident()
        self._current = run, gang.name if gang is not None else ""
        try:
            if run in self._cancelled:
                return encode(HelpEnded(run) if helps else RunCancelled(run)), None
            if state is not None and request.source is not None:
                self._models.provide(request.source.key, state)
            made = self._runner.train(request, self._note_start)
            seconds = self._runner.mark_kept(made, request.target)
        except (Exception, SystemExit) as error:  # a leader reports what went wrong where another helps it
            silent = helps and not is_out_of_memory(error)  # which the leader may never hear
            return (encode(HelpEnded(run)) if silent else self._answer(failure(run, error))), None
        finally:
            exit_if_forked(self._pid)
            self._cancelled.discard(run)
        if helps:
            return self._answer(HelpEnded(run)), None
        self._trained = made.cached
        return self._answer(UnitTrained(run, "", made.size, seconds)), (made.state.arrays, made.state.meta)

    def evaluate(self, command: bytes) -> bytes:
        """Return the metrics of the unit that the previous call trained; nothing if that failed."""
        from hoptree.worker.runner import failure

        request = decode_command(command)
        assert isinstance(request, TrainUnit)
        if self._trained is None or self._trained.key != request.target:
            return b""
        try:
            return self._answer(self._runner.evaluate(request, self._trained))
        except (Exception, SystemExit) as error:
            return self._answer(failure(request.action.run, error))
        finally:
            exit_if_forked(self._pid)

    def evaluate_state(self, command: bytes, state: State | None) -> bytes:
        """Return the metrics of a stored state."""
        from hoptree.worker.runner import failure

        request = decode_command(command)
        assert isinstance(request, EvaluateState)
        run = request.action.run
        try:
            if run in self._cancelled:
                return encode(RunCancelled(run))
            if state is not None:
                self._models.provide(request.source.key, state)
            return self._answer(self._runner.evaluate_state(request))
        except (Exception, SystemExit) as error:
            return self._answer(failure(run, error))
        finally:
            exit_if_forked(self._pid)
            self._cancelled.discard(run)

    def shut_down(self) -> None:
        """Release the partitions and close the output; a reader gets the rest of the lines, then none."""
        with suppress(AttributeError):  # it was never set up
            self._partitions.close()
        self._output.close()

    # --- at the same time ---------------------------------------------------------------------------------

    @ray.method(concurrency_group="control")
    def ping(self) -> None:
        """Return at once: the actor runs."""

    @ray.method(concurrency_group="heartbeat")
    def heartbeat(self, seconds: float) -> bool:
        """Return after some seconds, as a heartbeat, whether a unit has started here."""
        time.sleep(seconds)
        return self._started

    @ray.method(concurrency_group="control")
    def read_output(self) -> list[Line]:
        """Wait for printed lines and return them; no lines mean that it was shut down and prints no more.

        If the call fails, the worker has exited.
        """
        return self._output.wait()

    @ray.method(concurrency_group="control")
    def cancel_run(self, run: int) -> None:
        """Cancel a run that has not started; one that has started runs to its end, and its result is ignored.

        One that waits for other workers does not wait any longer.
        """
        self._cancelled.add(run)
        current, gang = self._current
        if current == run and gang:
            self._runner.leave_gang(gang)

    @ray.method(concurrency_group="control")
    def dump_stack(self) -> bytes:
        """Return the stack of the current unit, from the user's code on."""
        frame = sys._current_frames().get(self._thread)
        return encode(Stack(user_stack(frame) if frame is not None else ""))

    @ray.method(concurrency_group="save")
    def save(self, key: str, state: State, durable: bool) -> None:
        """Write a state to the store."""
        self._states.put(key, *state, durable=durable)

    def _answer(self, message: WorkerMessage) -> bytes:
        """Return a message as the result of a call, wrapped in the inputs that the user's code has read."""
        answer = encode(message)
        for observations in reversed(self._runner.observed()):
            answer = encode(InputsObserved(observations, answer))
        return answer

    @contextmanager
    def _note_start(self, _run: int) -> Iterator[None]:
        """Note that the user's code starts a unit."""
        self._started = True
        yield

    def _load(self, setup: ActorSetup, trainer: bytes) -> None:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(setup.threads)
        keep_memory()
        with suppress(OSError):  # another machine may not have that folder
            os.chdir(setup.folder)
        sys.path += [path for path in setup.paths if path not in sys.path]
        self._output.open()
        self._host = setup.host
        import cloudpickle

        from hoptree.store.states import open_states
        from hoptree.worker.model_cache import ModelCache
        from hoptree.worker.partition_cache import PartitionCache
        from hoptree.worker.runner import CommandRunner

        self._states = open_states(setup.states)
        if not self._states.has_marker(setup.marker):
            from hoptree.store.errors import StoreError

            raise StoreError(
                f"store: {setup.states} is not the driver's store on this node; keep the store in a folder that "
                "all nodes share under one path, for example Study(…, store='/shared/hoptree'), or the states at a "
                "URL that all reach, for example Study(…, states='s3://bucket/hoptree')"
            )
        self._partitions = PartitionCache(setup.dataset, setup.fingerprint, setup.node, copy=setup.copy)
        self._partitions.hold(setup.partitions)
        loaded = cloudpickle.loads(trainer)
        loaded.check_machine()
        self._models = ModelCache(loaded, self._states)
        ignored = [setup.states, setup.dataset]
        self._runner = CommandRunner(loaded, self._partitions.dataset(), self._models, ignored, setup.folder)


class _Output:
    """The lines that the user's code prints: kept for the driver, and written to Ray's own log as well."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._streams: list[_Tee] = []
        self._closed = False
        self._changed = threading.Condition()

    def open(self) -> None:
        """Capture what is printed from now on."""
        self._streams = [_Tee("stdout", sys.stdout, self), _Tee("stderr", sys.stderr, self)]
        sys.stdout, sys.stderr = self._streams

    def close(self) -> None:
        """Stop; an unfinished line ends here."""
        self.add([(stream.name, stream.unfinished) for stream in self._streams if stream.unfinished])
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def add(self, lines: Sequence[Line]) -> None:
        with self._changed:
            self._lines += lines
            self._changed.notify_all()

    def wait(self) -> list[Line]:
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            lines, self._lines = self._lines, []
            return lines


class _Tee:
    """A stream that passes on what is written, and collects whole lines."""

    def __init__(self, name: str, stream: TextIO, output: _Output) -> None:
        self.name = name
        self._stream = stream
        self._output = output
        self.unfinished = ""

    def write(self, text: str) -> int:
        *lines, self.unfinished = (self.unfinished + text).split("\n")
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

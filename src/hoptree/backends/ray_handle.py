"""A Ray actor as the driver sees it: commands become calls, and finished calls become messages, in order."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple, assert_never, final

import msgspec
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
)

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.ray_actor import Line
from hoptree.backends.ray_states import StateReferences, is_lost
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FreeSlot,
    HoldPartitions,
    InputsObserved,
    MeasureBatches,
    Quit,
    Rehearse,
    RunFailed,
    SetupRefused,
    StateSource,
    TrainUnit,
    UnitTrained,
    WorkerCommand,
    WorkerMessage,
    decode_message,
    encode,
)

log = logging.getLogger("hoptree")

_START = 60.0  # seconds for imports of the user's code: they hold Python's lock, so that no call is answered
_EXITS = (ActorDiedError, ActorUnavailableError, ActorUnschedulableError, NodeDiedError, OutOfMemoryError)


class _Call(NamedTuple):
    """A call in progress: the run that it is for (-1: none), and the state that it will return, with its slot."""

    answer: Future[bytes]
    run: int = -1
    slot: str = ""
    state: Any = None
    copy: Future[Any] | None = None  # of that state, on the driver's node

    @property
    def done(self) -> bool:
        return self.answer.done() and (self.copy is None or self.copy.done())


@final
class RayWorkerHandle(WorkerHandle):
    """One actor; ``notify`` is called from Ray's threads whenever there may be messages.

    If references are copied, a unit has ended when the driver's node has its state as well: that node outlives all
    others. With ``echo``, the driver prints what the user's code prints.
    """

    def __init__(
        self,
        name: str,
        node: str,
        actor: Any,
        references: StateReferences,
        notify: Callable[[str], None],
        *,
        machine: str = "",
        echo: bool,
        heartbeat: float = beat_interval(LIMIT),
    ) -> None:
        super().__init__(name, node, machine)
        self.actor = actor
        self._references = references
        self._notify = notify
        self._echo = echo
        self._calls: deque[_Call] = deque()
        self._unordered: list[Future[bytes]] = []  # results that do not wait for those of other calls
        self._error: BaseException | None = None
        self._exit_reported = False
        self._dismissed = False
        self.requested_at = time.monotonic()
        self._ping: Future[None] = self._watch(actor.ping.remote())
        self._lines: Future[list[Line]] = self._watch(actor.read_output.remote())
        self._heartbeat = heartbeat
        self._running_since = self.requested_at
        self._beat: Future[bool] = actor.heartbeat.remote(0.0).future()

    def set_up(self, setup: bytes, trainer: Any) -> None:
        """Let it load trainer and data."""
        self._expect(self.actor.set_up.remote(setup, trainer))

    def send(self, command: WorkerCommand) -> None:
        """Turn a command into a call; its result becomes a message later."""
        match command:
            case TrainUnit(action=action, source=source):
                state = self._references.find(source.slot) if source is not None else None
                data = encode(_without_slot(command))
                answer, made = self.actor.train.remote(data, state)
                self._expect(answer, action.run, f"{self.name}/{action.run}", made)
                if action.evaluate and (command.gang is None or command.gang.rank == 0):
                    self._expect(self.actor.evaluate.remote(data), action.run)
            case EvaluateState(action=action, source=source):
                state = self._references.find(source.slot)
                self._expect(self.actor.evaluate_state.remote(encode(_without_slot(command)), state), action.run)
            case Rehearse():
                self._expect(self.actor.rehearse.remote(encode(command)))
            case HoldPartitions():
                self._expect(self.actor.hold_partitions.remote(encode(command)))
            case CancelRun(run):
                self.actor.cancel_run.remote(run).future()  # Ray prints errors that nobody retrieves
            case DumpStack():
                self._unordered.append(self._watch(self.actor.dump_stack.remote()))
            case FreeSlot(slot):
                self._references.release(slot)
            case Quit():
                self.actor.shut_down.remote().future()
            case MeasureBatches():
                raise AssertionError("profiles are measured on workers of this machine")
            case _:
                assert_never(command)

    def has_beaten(self) -> bool:
        """Return whether it has answered, waits for room on its node, or has just started."""
        if not self.running:
            self._running_since = time.monotonic()
            return True
        if not self._beat.done():
            return not self.warm and time.monotonic() < self._running_since + _START
        if self._beat.exception() is None:  # else it has exited, which other calls report
            if self._beat.result() and not self.warm:
                self.warm, self.run_started = True, time.monotonic()
            self._beat = self.actor.heartbeat.remote(self._heartbeat).future()
        return True

    def kill(self) -> None:
        """Kill it; Ray ends a process that does not respond some seconds later."""
        ray.kill(self.actor, no_restart=True)

    def dismiss(self) -> None:
        """Kill it because its node is unusable; its exit says nothing about other workers."""
        self._dismissed = True
        self.kill()

    @property
    def running(self) -> bool:
        """Whether its process runs; until then Ray has no room for it, or prepares it."""
        return self._ping.done() and self._ping.exception() is None

    def messages(self) -> list[WorkerMessage | None]:
        """Return the messages since the last call; None, once, if it has exited."""
        found: list[WorkerMessage | None] = []
        self._read_output()
        while self._calls and self._calls[0].done:
            found += self._result(self._calls.popleft())
        for answer in [answer for answer in self._unordered if answer.done()]:
            self._unordered.remove(answer)
            if answer.exception() is None:
                found.append(decode_message(answer.result()))
        if self._error is not None and not self._exit_reported:
            self._exit_reported = True
            found.append(None)
        return found

    def reap(self) -> WorkerExit:
        """Return how it ended; a lost node is neither the user's nor the system's fault."""
        text = str(self._error)
        if self._dismissed:
            return WorkerExit("was on a node that is not usable", None)
        if isinstance(self._error, ActorUnschedulableError | NodeDiedError) or "its node has died" in text:
            return WorkerExit("was on a node that was lost", None)
        if isinstance(self._error, OutOfMemoryError):
            first = text.strip().partition("\n")[0]  # statistics of Ray follow
            return WorkerExit(f"was killed by Ray, since its node ran out of memory: {first}", "memory")
        return WorkerExit("died unexpectedly", None, known=False)  # its code or its machine: Ray does not say

    @property
    def creation_error(self) -> str:
        """Ray's reason why the actor could not be created; "" if it was."""
        text = str(self._error) if isinstance(self._error, ActorDiedError) else ""
        return text if "creation task" in text else ""

    # --- calls ------------------------------------------------------------------------------------------

    def _expect(self, reference: Any, run: int = -1, slot: str = "", state: Any = None) -> None:
        copy = self._watch(state) if self._references.copied and state is not None else None
        self._calls.append(_Call(self._watch(reference), run, slot, state, copy))

    def _watch(self, reference: Any) -> Future[Any]:
        answer: Future[Any] = reference.future()
        answer.add_done_callback(lambda _: self._notify(self.name))
        return answer

    def _read_output(self) -> None:
        """Print the output of the user's code there; if the call fails, the worker has exited."""
        while self._error is None and self._lines.done():
            error = self._lines.exception()
            if error is not None:
                self._error = error
            elif not self._print(self._lines.result()):  # it was shut down, and is no longer needed
                self.kill()

    def print_rest(self, deadline: float) -> None:
        """Print the rest of its output after it was told to quit, at most until the deadline."""
        with suppress(RayError, TimeoutError):
            while self._print(self._lines.result(max(0.0, deadline - time.monotonic()))):
                pass

    def _print(self, lines: list[Line]) -> bool:
        """Print lines like those of a local process, and request the next; return whether there were any."""
        self._lines = self._watch(self.actor.read_output.remote())
        for name, some in groupby(lines if self._echo else [], key=lambda line: line[0]):
            stream = sys.stderr if name == "stderr" else sys.stdout
            with suppress(OSError, AttributeError):  # the stream is closed, or there is none
                stream.write("".join(f"{text}\n" for _, text in some))
                stream.flush()
        return bool(lines)

    def _result(self, call: _Call) -> list[WorkerMessage]:
        if call.answer.exception() is None:
            return self._answered(call)
        message = self._failed(call, call.answer.exception())
        return [] if message is None else [message]

    def _failed(self, call: _Call, error: BaseException | None) -> WorkerMessage | None:
        if call.state is not None:
            with suppress(RayError):  # Ray prints errors that nobody retrieves
                ray.get(call.state, timeout=0)
        if isinstance(error, _EXITS):
            self._error = self._error or error
            return None
        if not isinstance(error, RayError):
            assert error is not None
            raise error
        if call.run < 0:  # setup, rehearsal, other partitions: without these the worker is useless
            return SetupRefused(f"node {self.node[:6]}: {_cause(error)}")
        if is_lost(error):
            return RunFailed(call.run, f"a state was lost with its node: {error}", "system", lost=True)
        return RunFailed(call.run, f"{type(error).__name__}: {error}", "system")

    def _answered(self, call: _Call) -> list[WorkerMessage]:
        data = call.answer.result()
        found: list[WorkerMessage] = []
        while data:
            message: WorkerMessage = decode_message(data)
            data = message.then if isinstance(message, InputsObserved) else b""
            found.append(self._keep(call, message) if isinstance(message, UnitTrained) else message)
        return found

    def _keep(self, call: _Call, message: UnitTrained) -> WorkerMessage:
        """Keep the state that a unit has produced."""
        if call.copy is not None and (error := call.copy.exception()) is not None and is_lost(error):
            return RunFailed(call.run, f"its state was lost with its node: {error}", "system")
        self._references.hold(call.slot, call.state, call.copy)
        return msgspec.structs.replace(message, slot=call.slot)


def _cause(error: BaseException) -> str:
    """Return the error that a call raised, without Ray's own traceback."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {cause}"


def _without_slot(command: TrainUnit | EvaluateState) -> TrainUnit | EvaluateState:
    """Return a command for a worker that gets the state itself as an argument."""
    source = command.source
    if source is None or not source.slot:
        return command
    return msgspec.structs.replace(command, source=StateSource(source.key))

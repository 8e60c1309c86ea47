"""A Ray actor as the driver sees it: commands become calls, and finished calls become news, in order."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, assert_never, final

import msgspec
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
)

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.ray_actor import Line
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FreeSlot,
    HoldPartitions,
    InputsObserved,
    Quit,
    Rehearse,
    RunFailed,
    SetupRefused,
    StateSource,
    TrainUnit,
    UnitTrained,
    WorkerCommand,
    WorkerMessage,
    decode_news,
    encode,
)

log = logging.getLogger("hoptree")

References: TypeAlias = MutableMapping[str, Any]  # states on the way: names to references, which the driver owns

_DEATHS = (ActorDiedError, ActorUnavailableError, ActorUnschedulableError, NodeDiedError, OutOfMemoryError)


class _Call(NamedTuple):
    """A call under way: the run that it is for (-1: none), and the state that it will give, under a name."""

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
    """One actor; ``ring`` is called, from Ray's threads, whenever there may be news.

    With ``copies`` a unit has ended when the driver's node has its state as well: it outlives all others.
    """

    def __init__(
        self,
        name: str,
        node: str,
        actor: Any,
        states: References,
        ring: Callable[[str], None],
        *,
        echo: bool,
        copies: References | None = None,
        heartbeat: float = beat_interval(LIMIT),
    ) -> None:
        super().__init__(name, node)
        self.actor = actor
        self._states = states
        self._copies = copies
        self._ring = ring
        self._echo = echo
        self._calls: deque[_Call] = deque()
        self._beside: list[Future[bytes]] = []  # answers that come out of turn
        self._error: BaseException | None = None
        self._told = False
        self._dismissed = False
        self.sent_for = time.monotonic()
        self._arrival: Future[None] = self._watch(actor.arrive.remote())
        self._lines: Future[list[Line]] = self._watch(actor.listen.remote())
        self._heartbeat = heartbeat
        self._beat: Future[bool] = actor.beat.remote(0.0).future()

    def begin(self, setup: bytes, trainer: Any) -> None:
        """Have it get ready."""
        self._expect(self.actor.begin.remote(setup, trainer))

    def send(self, command: WorkerCommand) -> None:
        """Turn a command into a call; what it comes to is heard later."""
        match command:
            case TrainUnit(action=action, source=source):
                state = self._states.get(source.slot) if source is not None else None
                data = encode(_without_slot(command))
                news, made = self.actor.train.remote(data, state)
                self._expect(news, action.run, f"{self.name}/{action.run}", made)
                if action.evaluate:
                    self._expect(self.actor.evaluate.remote(data), action.run)
            case EvaluateState(action=action, source=source):
                state = self._states.get(source.slot)
                self._expect(self.actor.judge.remote(encode(_without_slot(command)), state), action.run)
            case Rehearse():
                self._expect(self.actor.rehearse.remote(encode(command)))
            case HoldPartitions():
                self._expect(self.actor.hold.remote(encode(command)))
            case CancelRun(run):
                self.actor.forget.remote(run).future()  # an error that nobody looks at is printed by Ray
            case DumpStack():
                self._beside.append(self._watch(self.actor.where.remote()))
            case FreeSlot(slot):
                self._states.pop(slot, None)
            case Quit():
                self.actor.leave.remote().future()
            case _:
                assert_never(command)

    def heard(self) -> bool:
        """Return whether it has answered; one that waits for room on its node is given its time."""
        if not self.arrived:
            return True
        if not self._beat.done():
            return False
        if self._beat.exception() is None:  # else it is gone, which other calls tell
            if self._beat.result() and not self.warm:
                self.warm, self.since = True, time.monotonic()
            self._beat = self.actor.beat.remote(self._heartbeat).future()
        return True

    def kill(self) -> None:
        """End it at once; Ray ends a process that does not react some seconds later."""
        ray.kill(self.actor, no_restart=True)

    def dismiss(self) -> None:
        """End it because its node cannot work; its death tells nothing about other workers."""
        self._dismissed = True
        self.kill()

    @property
    def arrived(self) -> bool:
        """Whether its process runs; until then Ray has no room for it, or prepares it."""
        return self._arrival.done() and self._arrival.exception() is None

    def news(self) -> list[WorkerMessage | None]:
        """Return what has come since this was asked last; None, once, when it is gone."""
        found: list[WorkerMessage | None] = []
        self._hear()
        while self._calls and self._calls[0].done:
            found += self._read(self._calls.popleft())
        for answer in [answer for answer in self._beside if answer.done()]:
            self._beside.remove(answer)
            if answer.exception() is None:
                found.append(decode_news(answer.result()))
        if self._error is not None and not self._told:
            self._told = True
            found.append(None)
        return found

    def reap(self) -> WorkerExit:
        """Return how it ended; a machine that went away is nobody's fault."""
        text = str(self._error)
        if self._dismissed:
            return WorkerExit("cannot work on its node", None)
        if isinstance(self._error, ActorUnschedulableError | NodeDiedError) or "its node has died" in text:
            return WorkerExit("was on a node that is gone", None)
        if isinstance(self._error, OutOfMemoryError):
            first = text.strip().partition("\n")[0]  # what follows is what Ray counts
            return WorkerExit(f"was ended by Ray, since its node ran out of memory: {first}", "user")
        return WorkerExit("died unexpectedly", None, known=False)  # its code or its machine: Ray does not tell

    @property
    def creation_error(self) -> str:
        """Why the actor could not be made at all, in Ray's words; "" if it was."""
        text = str(self._error) if isinstance(self._error, ActorDiedError) else ""
        return text if "creation task" in text else ""

    # --- calls ------------------------------------------------------------------------------------------

    def _expect(self, reference: Any, run: int = -1, slot: str = "", state: Any = None) -> None:
        copy = self._watch(state) if self._copies is not None and state is not None else None
        self._calls.append(_Call(self._watch(reference), run, slot, state, copy))

    def _watch(self, reference: Any) -> Future[Any]:
        answer: Future[Any] = reference.future()
        answer.add_done_callback(lambda _: self._ring(self.name))
        return answer

    def _hear(self) -> None:
        """Print what the user's code has printed there; a call that fails is how an end is noticed."""
        while self._error is None and self._lines.done():
            error = self._lines.exception()
            if error is not None:
                self._error = error
            elif not self._tell(self._lines.result()):  # it has left, and need not be there any more
                self.kill()

    def hear_out(self, deadline: float) -> None:
        """Print all that it has still to say, once it has been told to quit, or what comes until the deadline."""
        with suppress(RayError, TimeoutError):
            while self._tell(self._lines.result(max(0.0, deadline - time.monotonic()))):
                pass

    def _tell(self, lines: list[Line]) -> bool:
        """Print lines as if a process of this machine had printed them, and listen on; return if there were any."""
        self._lines = self._watch(self.actor.listen.remote())
        for name, some in groupby(lines if self._echo else [], key=lambda line: line[0]):
            stream = sys.stderr if name == "stderr" else sys.stdout
            with suppress(OSError, AttributeError):  # nobody reads any more, or there never was such a stream
                stream.write("".join(f"{text}\n" for _, text in some))
                stream.flush()
        return bool(lines)

    def _read(self, call: _Call) -> list[WorkerMessage]:
        if call.answer.exception() is None:
            return self._answered(call)
        news = self._failed(call, call.answer.exception())
        return [] if news is None else [news]

    def _failed(self, call: _Call, error: BaseException | None) -> WorkerMessage | None:
        if call.state is not None:
            with suppress(RayError):  # an error that nobody looks at is printed by Ray
                ray.get(call.state, timeout=0)
        if isinstance(error, _DEATHS):
            self._error = self._error or error
            return None
        if not isinstance(error, RayError):
            assert error is not None
            raise error
        if call.run < 0:  # to begin, to rehearse, to hold other partitions: whoever cannot is of no use
            return SetupRefused(f"node {self.node[:6]}: {what_failed(error)}")
        if is_lost(error):
            return RunFailed(call.run, f"a state is gone with its node: {error}", "system", lost=True)
        return RunFailed(call.run, f"{type(error).__name__}: {error}", "system")

    def _answered(self, call: _Call) -> list[WorkerMessage]:
        data = call.answer.result()
        found: list[WorkerMessage] = []
        while data:
            news: WorkerMessage = decode_news(data)
            data = news.then if isinstance(news, InputsObserved) else b""
            found.append(self._keep(call, news) if isinstance(news, UnitTrained) else news)
        return found

    def _keep(self, call: _Call, news: UnitTrained) -> WorkerMessage:
        """Hold the state that a unit has made."""
        if call.copy is not None and (error := call.copy.exception()) is not None and is_lost(error):
            return RunFailed(call.run, f"its state went with its node: {error}", "system")
        self._states[call.slot] = call.state
        if self._copies is not None:
            self._copies[call.slot] = call.copy  # as long as somebody holds it, it is not thrown out
        return msgspec.structs.replace(news, slot=call.slot)


def is_lost(error: BaseException) -> bool:
    """Return whether an error says that an object is gone; a call that was to be given it fails because of that."""
    cause = getattr(error, "cause", None)
    return isinstance(error, ObjectLostError) or (isinstance(cause, BaseException) and is_lost(cause))


def what_failed(error: BaseException) -> str:
    """Return what a call raised, without Ray's account of how it came here."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {cause}"


def _without_slot(command: TrainUnit | EvaluateState) -> TrainUnit | EvaluateState:
    """Return a command for a worker that is given the state itself."""
    source = command.source
    if source is None or not source.slot:
        return command
    return msgspec.structs.replace(command, source=StateSource(source.key))

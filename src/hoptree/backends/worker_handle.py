"""A worker as its backend sees it, and the protocol of the pools that workers come from."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from hoptree.backends.state_tracker import StateTransport
from hoptree.backends.worker_states import JOINED, WorkerEvent, WorkerState, next_state
from hoptree.core.events import Event, Fault
from hoptree.worker.messages import WorkerCommand, WorkerMessage


class WorkerExit(msgspec.Struct, frozen=True):
    """How a worker ended and who caused it; fault None stands for a lost machine, which costs no retry.

    ``known`` is False if the cause may be the user's code or the system. A unit at which such workers die
    repeatedly is then assumed to be the cause.
    """

    how: str
    fault: Fault | None
    known: bool = True


class WorkerHandle(ABC):
    """A worker and what its backend knows about it; ``queue`` holds the current run and the next ones.

    States pass between workers of one ``node`` without crossing the network. Workers of one ``machine`` can connect
    to each other.
    """

    def __init__(self, name: str, node: str = "", machine: str = "") -> None:
        self.name = name
        self.node = node
        self.machine = machine
        self._created = time.monotonic()
        self.state = WorkerState.STARTING
        self.leaving = False  # whether it was asked to leave, in whatever state
        self.partitions: tuple[int, ...] = ()
        self.platform: dict[str, str] | None = None  # what affects bits there; None until it has reported it
        self.rendezvous = ""  # where workers find it that train a unit together with it
        self.queue: deque[int] = deque()
        self.run_started = 0.0
        self.warm = False  # whether it has started a unit: the first one waits until its code is loaded
        self.silent_seconds = 0.0  # since the last heartbeat
        self.stack = ""  # the user's stack when the run exceeded its time limit

    @property
    def joined(self) -> bool:
        """Whether the engine may give it runs."""
        return self.state in JOINED

    def apply(self, event: WorkerEvent) -> None:
        """Move to the next state."""
        self.state = next_state(self.state, event)

    def join(self) -> None:
        """Become ready for runs."""
        self.apply(WorkerEvent.JOINED)

    def request_leave(self) -> None:
        """Let the worker finish its runs and then exit; kill it if it has not joined, since it has no runs."""
        self.leaving = True
        self.apply(WorkerEvent.LEAVE_REQUESTED)
        if self.state is WorkerState.DISMISSED:
            self.kill()

    def assign(self, run: int) -> None:
        """Append a run to the queue."""
        if not self.queue:
            self.run_started = time.monotonic()
        self.queue.append(run)
        self.apply(WorkerEvent.RUN_ASSIGNED)

    def finish(self, run: int) -> bool:
        """Remove a run that has ended from the queue; return whether it was there."""
        if run not in self.queue:
            return False
        self.run_started = time.monotonic()
        self.queue.remove(run)
        if not self.queue:
            self.apply(WorkerEvent.LAST_RUN_ENDED)
        return True

    @abstractmethod
    def send(self, command: WorkerCommand) -> None:
        """Send a command; a worker that has exited is noticed when its messages are read."""

    @abstractmethod
    def has_beaten(self) -> bool:
        """Return whether a heartbeat has arrived since the last call."""

    def active_seconds(self) -> float:
        """Return the seconds since it was created; a process does not count those it waited for a CPU."""
        return time.monotonic() - self._created

    @abstractmethod
    def kill(self) -> None:
        """End it at once, even if it does not respond; never waits for that."""

    @abstractmethod
    def reap(self) -> WorkerExit:
        """Return how a worker that has exited ended."""


WorkerMessages: TypeAlias = Sequence[tuple[WorkerHandle, WorkerMessage | None]]  # None: the worker has exited


class WorkerPool(Protocol):
    """Starts workers and receives their messages; ``transport`` moves states between them.

    ``one_machine`` says that all workers run on one machine, so that they share one platform.
    """

    one_machine: bool
    transport: StateTransport

    def recruit(self, workers: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start the workers that are missing and return them; called periodically.

        ``lineages`` is how many lineages could be trained at the same time.
        """
        ...

    def sources(self) -> Sequence[Any]:
        """Return the objects to wait for; each becomes readable when there may be messages."""
        ...

    def messages(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return the messages that have arrived from the readable sources."""
        ...

    def close(self, workers: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """End all workers and wait for that; after a failure, keep what another driver could resume from."""
        ...


@runtime_checkable
class CopiesPartitions(Protocol):
    """A pool whose workers hold only a part of the data; of the others, all workers hold everything."""

    def copy_partitions(self, workers: Sequence[str], partitions: Sequence[int]) -> None:
        """Let the nodes of these workers hold copies of partitions too; ``PartitionsHeld`` confirms it."""
        ...


@runtime_checkable
class HasNodes(Protocol):
    """A pool on nodes that may be paid for; if they are not (``elastic``), it reports nothing of them."""

    elastic: bool

    def scale(self, nodes: int, release: Sequence[str]) -> None:
        """Have so many nodes, and give others back: those named first, once their workers have left."""
        ...

    def node_events(self) -> Sequence[Event]:
        """Return the nodes that have started, were given back, or were lost, since the last call."""
        ...

    def node_pause(self) -> float:
        """Return for how many seconds nobody needs to look at the nodes."""
        ...

"""Workers as a backend sees them, and the waist between the backend and where they come from."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from hoptree.backends.state_tracker import StateTransport
from hoptree.core.events import Fault
from hoptree.worker.messages import WorkerCommand, WorkerMessage


class WorkerExit(msgspec.Struct, frozen=True):
    """How a worker ended, and whose fault it was: None for a machine that went away, which costs no retry.

    ``known`` is False where nobody can tell the user's code from the system: a unit at which workers die again
    and again is then taken for the reason.
    """

    how: str
    fault: Fault | None
    known: bool = True


class WorkerHandle(ABC):
    """A worker with what its backend notes about it; ``queue`` holds the run it is at and what comes next.

    Between workers of one ``node`` a state does not cross a network.
    """

    def __init__(self, name: str, node: str = "") -> None:
        self.name = name
        self.node = node
        self._made = time.monotonic()
        self.rehearsing = False
        self.ready = False
        self.leaving = False  # it gets nothing new, and ends when nothing is left that only it has
        self.partitions: tuple[int, ...] = ()
        self.platform: dict[str, str] | None = None  # what changes bits there; None: it has not said so yet
        self.left_out = False  # it would train other bits than the others
        self.queue: deque[int] = deque()
        self.since = 0.0  # when it began with what it is at
        self.warm = False  # whether it has begun a unit: the first one waits until its code is loaded
        self.silence = 0.0  # seconds without a sign of life
        self.asked_where = False
        self.stack = ""  # where in the user's code it was when it took too long

    @abstractmethod
    def send(self, command: WorkerCommand) -> None:
        """Say something; one that is gone is noticed when its news are read."""

    @abstractmethod
    def heard(self) -> bool:
        """Return whether a sign of life has come since this was asked last."""

    def seconds_had(self) -> float:
        """Return the seconds that it has had since it was made; a process does not count those it had to wait."""
        return time.monotonic() - self._made

    @abstractmethod
    def kill(self) -> None:
        """End it at once, also if it does not react; never waits for that."""

    @abstractmethod
    def reap(self) -> WorkerExit:
        """Return how a worker ended that is gone."""


WorkerMessages: TypeAlias = Sequence[tuple[WorkerHandle, WorkerMessage | None]]  # None: the worker is gone


class WorkerPool(StateTransport, Protocol):
    """Where workers come from, and how they are heard; how states hop between them is the other half.

    ``one_machine`` says that all workers are on one, so that one platform stands for all.
    """

    one_machine: bool

    def recruit(self, members: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start the workers that should be there and are not, and return them; called again and again.

        ``lineages`` is how many could be trained at the same time.
        """
        ...

    def sources(self) -> Sequence[Any]:
        """Return what to wait for: each can be read when there may be news."""
        ...

    def news(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return what has come from the sources that can be read."""
        ...

    def close(self, members: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """Let all workers end, and wait for that; what another driver could go on from stays after a failure."""
        ...

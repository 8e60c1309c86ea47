"""A worker of the simulated backend, and what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, final

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.events import Event, WorkerJoined
from hoptree.simulator.cluster import WorkerSpec

Kind: TypeAlias = Literal["unit", "evaluation", "failed", "down"]


class SimulatedSpan(NamedTuple):
    """What a worker did during a span of time, for charts."""

    worker: str
    start: float
    end: float
    kind: Kind
    node: int
    partition: int
    epoch: int


@final
class SimulatedWorker:
    """A worker: what it trains now, and what waits for it."""

    __slots__ = ("busy", "copies", "instance", "joined", "life", "queue", "spec", "started", "turn")

    def __init__(self, spec: WorkerSpec, instance: str = "") -> None:
        self.spec = spec
        self.instance = instance  # the node on which it runs; "" if nodes are not paid for
        self.joined = False
        self.queue: list[tuple[float, RunUnit | Evaluate]] = []
        self.busy: RunUnit | Evaluate | None = None
        self.started = 0.0
        self.copies: tuple[int, ...] = ()  # partitions that it holds besides its own
        self.life = 0  # copies that were ordered before a crash do not arrive after it
        self.turn = 0  # scheduled ends of an earlier turn are ignored

    @property
    def announcement(self) -> WorkerJoined:
        """The event by which it joins, or says which partitions it holds now."""
        spec = self.spec
        return WorkerJoined(spec.name, (*spec.partitions, *self.copies), spec.speed, spec.machine, self.instance)

    def fail(self) -> None:
        """Lose all that it does and has."""
        self.joined = False
        self.busy = None
        self.queue.clear()
        self.turn += 1
        self.life += 1
        self.copies = ()


class ScheduledEnd(NamedTuple):
    """The end of a unit or of an evaluation; ignored if the worker's turn has changed since."""

    worker: SimulatedWorker
    action: RunUnit | Evaluate
    turn: int
    evaluated: bool


Scheduled: TypeAlias = Callable[[], list[Event]] | ScheduledEnd

"""The ledger of nodes: which nodes a study had when, how long they trained, and what was planned.

Facts only: money follows from them and from the terms of the provider, which each plan holds (``elastic/``).
"""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.events import (
    AllocationPlanned,
    DriverStarted,
    Event,
    NodeLost,
    NodeReleased,
    NodesRequested,
    NodeStarted,
    WorkerJoined,
)


class NodeUse(msgspec.Struct):
    """The time of one node; ``busy`` are the seconds of its devices in which they trained, by stage."""

    node: str
    devices: int
    started: float
    waited: float = 0.0  # seconds from the request to the start
    joined: float | None = None  # when its first worker could train
    ended: float | None = None
    lost: bool = False
    busy: dict[int, float] = msgspec.field(default_factory=dict)


class PlanMade(msgspec.Struct, frozen=True):
    """A plan of allocation with its time, the stage that began, and why it was made."""

    now: float
    stage: int
    reason: str
    plan: dict[str, Any]


class NodeRows(msgspec.Struct):
    """The ledger as plain data."""

    uses: list[NodeUse] = msgspec.field(default_factory=list)
    requests: list[tuple[float, int]] = msgspec.field(default_factory=list)
    plans: list[PlanMade] = msgspec.field(default_factory=list)
    workers: dict[str, str] = msgspec.field(default_factory=dict)  # the node of each worker


@final
class NodeLedger:
    """Collects the facts about nodes from the steps of a study."""

    def __init__(self, rows: NodeRows | None = None) -> None:
        self.rows = NodeRows() if rows is None else rows
        self._running = {use.node: use for use in self.rows.uses if use.ended is None}

    @property
    def stage(self) -> int:
        """The stage that began last."""
        return self.rows.plans[-1].stage if self.rows.plans else 0

    @property
    def running(self) -> dict[str, NodeUse]:
        """The nodes that are paid for now, by name."""
        return self._running

    def trained(self, run: RunUnit | Evaluate, seconds: float) -> None:
        """Add the time of a run to the nodes of its workers."""
        workers = (run.worker, *run.crew) if isinstance(run, RunUnit) else (run.worker,)
        for worker in workers:
            use = self._running.get(self.rows.workers.get(worker, ""))
            if use is not None:
                use.busy[self.stage] = use.busy.get(self.stage, 0.0) + seconds

    def note(self, event: Event, now: float) -> None:
        """Record an event about nodes or workers; others are ignored."""
        match event:
            case NodeStarted(node, devices, waited):
                if node not in self._running:
                    use = self._running[node] = NodeUse(node, devices, now, waited)
                    self.rows.uses.append(use)
            case NodeReleased(node):
                self._end(node, now, lost=False)
            case NodeLost(node):
                self._end(node, now, lost=True)
            case NodesRequested(count):
                self.rows.requests.append((now, count))
            case AllocationPlanned(plan, stage, reason):
                self.rows.plans.append(PlanMade(now, stage, reason, plan))
            case WorkerJoined(worker, node=node) if node:
                self.rows.workers[worker] = node
                if node in self._running and self._running[node].joined is None:
                    self._running[node].joined = now
            case DriverStarted():
                # Nobody watched them since the last driver ended: its last event is the last that is known of them.
                for node in list(self._running):
                    self._end(node, now, lost=False)
                self.rows.workers.clear()
            case _:
                pass

    def _end(self, node: str, now: float, *, lost: bool) -> None:
        use = self._running.pop(node, None)
        if use is not None:
            use.ended, use.lost = now, lost

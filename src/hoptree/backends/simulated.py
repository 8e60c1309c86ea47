"""The simulated backend: the engine's real decisions on a virtual clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import assert_never, final

from hoptree.backends.protocol import Task
from hoptree.backends.simulated_nodes import SimulatedNodes
from hoptree.backends.simulated_worker import Kind, Scheduled, ScheduledEnd, SimulatedSpan, SimulatedWorker
from hoptree.core.actions import CancelUnit, CopyPartitions, DropState, Evaluate, RunUnit, SaveState
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    StateSaved,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerLost,
)
from hoptree.core.lineage import Values
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.faults import Crash, FlakyUnits, NodeLoss, StateLoss
from hoptree.simulator.scaling import speed_up
from hoptree.simulator.workload import Landscape


@final
class SimulatedBackend:
    """Simulates units: their durations come from a landscape, a cluster and a seed."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: int,
        landscape: Landscape,
        *,
        state_bytes: float = 0.0,
        evaluation_seconds: float = 0.0,
        seed: int = 0,
        record: bool = True,
    ) -> None:
        self._cluster = cluster
        self._landscape = landscape
        self._default_evaluation = evaluation_seconds
        self._random = random.Random(seed)
        self._workers = {spec.name: SimulatedWorker(spec) for spec in cluster.placed(partitions)}
        self._seconds: dict[int, float] = {}
        self._values: dict[int, tuple[Values, str]] = {}
        self._clock: list[tuple[float, int, Scheduled]] = []
        self._count = 0
        self._now = 0.0
        self._hop = 0.0
        if cluster.bandwidth or cluster.latency:
            self._hop = cluster.latency + (state_bytes / cluster.bandwidth if cluster.bandwidth else 0.0)
        self._flaky = [fault for fault in cluster.faults if isinstance(fault, FlakyUnits)]
        self._losses = [fault for fault in cluster.faults if isinstance(fault, StateLoss)]
        node_losses = any(isinstance(fault, NodeLoss) for fault in cluster.faults)
        self._volatile = node_losses or any(isinstance(f, Crash) and f.volatile for f in cluster.faults)
        self._homes: dict[tuple[int, int], str] = {}
        self._nodes: SimulatedNodes | None = None
        if cluster.elastic is not None:
            self._nodes = SimulatedNodes(
                cluster.elastic,
                partitions,
                self._workers,
                lambda: self._now,
                lambda seconds, fire: self._at(self._now + seconds, fire),
                random.Random(f"nodes {seed}"),
            )
        self._record = record
        self.did: list[SimulatedSpan] = []
        self.hops = 0
        self.units = 0
        self.busy_seconds = 0.0
        self.partitions = partitions

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Schedule the workers and the faults of the cluster."""
        for worker in self._workers.values():
            self._at(worker.spec.joins + self._cluster.provisioning, self._join(worker))
        for fault in self._cluster.faults:
            if isinstance(fault, Crash):
                worker = self._workers[fault.worker]
                self._at(fault.at, self._crash(worker, fault))
            elif isinstance(fault, NodeLoss):
                self._at(fault.at, partial(self._lose_node, fault))
        if self._cluster.elastic is not None and self._cluster.elastic.begin:
            self.scale(self._cluster.elastic.begin)

    def submit(self, action: Task) -> None:
        """Queue or cancel a run, or save or drop a state."""
        match action:
            case RunUnit():
                worker = self._workers[action.worker]
                if action.node not in self._values:
                    self._values[action.node] = (action.values, action.key)
                ready = self._now
                if action.home and action.home != action.worker:
                    self.hops += 1
                    ready += self._hop
                if worker.busy is None and worker.joined:
                    self._begin(worker, action, ready)
                else:
                    worker.queue.append((ready, action))
            case SaveState(node, unit, durable=durable):
                if durable:
                    if self._nodes is not None:
                        self._homes.pop((node, unit), None)  # the store keeps it if its node is lost
                    self._at(self._now, lambda: [StateSaved(node, unit)])
            case DropState():
                self._homes.pop((action.node, action.unit), None)
            case Evaluate():
                worker = self._workers[action.worker]
                if worker.busy is None and worker.joined:
                    self._begin(worker, action, self._now)
                else:
                    worker.queue.append((self._now, action))
            case CopyPartitions():
                self._copy(action)
            case CancelUnit():
                self._cancel(self._workers[action.worker], action.run)
            case _:
                assert_never(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Advance the clock to the next time at which events happen.

        Only with nodes that come and go is the limit kept: decisions about them are due at certain times.
        """
        clock = self._clock
        events: list[Event] = []
        until = math.inf
        if self._nodes is not None:
            events += self._departed(self._nodes)
            until = self._now + (math.inf if seconds is None else seconds)
        while clock and not events:
            if clock[0][0] > until:
                self._now = until
                break
            self._now = clock[0][0]
            while clock and clock[0][0] == self._now:
                events += self._fire(heappop(clock)[2])
        return self._now, events

    def stop(self, *, failed: bool) -> None:
        """Do nothing: a simulation leaves nothing behind."""

    # --- nodes ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The virtual time."""
        return self._now

    @property
    def hop_seconds(self) -> float:
        """How long a model takes from one worker to another."""
        return self._hop

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        """Request so many nodes, and give others back; nothing happens if their number is fixed."""
        if self._nodes is not None:
            self._nodes.scale(nodes, release)

    def _departed(self, nodes: SimulatedNodes) -> list[Event]:
        """Give back the drained nodes that are idle; others take their states over."""
        found: list[Event] = []
        for gone, events in nodes.depart():
            names = {worker.spec.name for worker in gone.workers}
            for place, home in self._homes.items():
                if home in names:
                    self._homes[place] = nodes.survivor
            found += events
        return found

    def _lose_node(self, fault: NodeLoss) -> list[Event]:
        assert self._nodes is not None
        running = {name: worker.busy for name, worker in self._workers.items()}
        lost, events = self._nodes.lose(fault.node)
        for worker in lost:
            busy = running[worker.spec.name]
            if busy is not None:
                self._record_span(worker, "failed", busy)
        return [*events, *self._lose_states([worker.spec.name for worker in lost])]

    def _lose_states(self, workers: Sequence[str]) -> list[Event]:
        """Lose the states whose home was one of these workers."""
        lost = [place for place, home in self._homes.items() if home in workers]
        for place in lost:
            del self._homes[place]
        return [StateLost(*place) for place in lost]

    # --- scheduled events -------------------------------------------------------------------------------

    def _at(self, time: float, scheduled: Scheduled) -> None:
        self._count += 1
        heappush(self._clock, (time, self._count, scheduled))

    def _fire(self, scheduled: Scheduled) -> list[Event]:
        if type(scheduled) is not ScheduledEnd:
            return scheduled()  # type: ignore[operator]
        worker, action, turn, evaluated = scheduled
        if turn != worker.turn:
            return []
        if evaluated:
            return self._evaluated(worker, action)
        assert isinstance(action, RunUnit)
        return self._finished(worker, action)

    def _join(self, worker: SimulatedWorker) -> Callable[[], list[Event]]:
        turn = worker.turn

        def fire() -> list[Event]:
            if worker.turn != turn:  # it crashed before it joined
                return []
            worker.joined = True
            return [worker.announcement]

        return fire

    def _copy(self, action: CopyPartitions) -> None:
        """Let workers hold copies when these have arrived; a worker that crashes meanwhile has none."""
        seconds = self._cluster.latency
        if self._cluster.bandwidth:
            seconds += len(action.partitions) * self._cluster.partition_bytes / self._cluster.bandwidth
        for name in action.workers:
            worker = self._workers[name]
            self._at(self._now + seconds, self._hold(worker, action.partitions, worker.life))

    def _hold(self, worker: SimulatedWorker, partitions: tuple[int, ...], life: int) -> Callable[[], list[Event]]:
        def fire() -> list[Event]:
            if not worker.joined or worker.life != life:
                return []
            worker.copies = (*worker.copies, *partitions)
            return [worker.announcement]

        return fire

    def _crash(self, worker: SimulatedWorker, fault: Crash) -> Callable[[], list[Event]]:
        def fire() -> list[Event]:
            name = worker.spec.name
            if worker.busy is not None:
                self._record_span(worker, "failed", worker.busy)
            worker.fail()
            if fault.back is not None:
                first = worker.spec.joins + self._cluster.provisioning
                self._at(max(fault.back, first), self._join(worker))
            if self._record and fault.back is not None:
                self.did.append(SimulatedSpan(name, fault.at, fault.back, "down", -1, -1, -1))
            events: list[Event] = [WorkerLost(name)]
            if fault.volatile:
                events += self._lose_states([name])
            return events

        return fire

    def _begin(self, worker: SimulatedWorker, action: RunUnit | Evaluate, ready: float) -> None:
        start = ready if ready > self._now else self._now
        worker.busy = action
        worker.started = start
        if type(action) is RunUnit:
            seconds = self._seconds.get(action.node)
            if seconds is None:
                seconds = self._seconds[action.node] = self._landscape.seconds(action.values)
            seconds /= worker.spec.speed
            if action.crew:
                seconds = self._with_crew(worker, action, seconds)
            if self._cluster.noise or self._cluster.stragglers:
                seconds *= self._slowdown()
            self._at(start + seconds, ScheduledEnd(worker, action, worker.turn, False))
        else:
            self._at(
                start + self._evaluation_seconds(worker, action), ScheduledEnd(worker, action, worker.turn, True)
            )

    def _with_crew(self, leader: SimulatedWorker, action: RunUnit, seconds: float) -> float:
        """Return the duration of a unit that several workers train; the slowest of them determines it."""
        crew = [self._workers[name] for name in action.crew]
        slowest = min(leader.spec.speed, *(worker.spec.speed for worker in crew))
        for worker in crew:
            assert worker.joined, f"{action}: {worker.spec.name} is not there"
            assert worker.busy is None, f"{action}: {worker.spec.name} is not free"
            worker.busy, worker.started = action, leader.started
        return seconds * leader.spec.speed / slowest / speed_up(self._cluster.scaling, action.layout, 1 + len(crew))

    def _release(self, action: RunUnit | Evaluate, kind: Kind) -> None:
        """Let the workers that have trained a unit together with its leader be free."""
        if not isinstance(action, RunUnit):
            return
        for name in action.crew:
            worker = self._workers[name]
            if worker.busy is action:
                self._record_span(worker, kind, action)
                self._next(worker)

    def _slowdown(self) -> float:
        factor = 1.0
        if self._cluster.noise:
            sigma = math.sqrt(math.log1p(self._cluster.noise**2))
            factor = self._random.lognormvariate(-sigma * sigma / 2, sigma)
        if self._cluster.stragglers and self._random.random() < self._cluster.stragglers:
            factor *= self._cluster.straggling
        return factor

    def _finished(self, worker: SimulatedWorker, action: RunUnit) -> list[Event]:
        """End a unit: report its state, evaluate it if requested, and start the next run."""
        for fault in self._flaky:
            if self._random.random() < fault.probability:
                self._record_span(worker, "failed", action)
                self._release(action, "failed")
                self._next(worker)
                return [UnitFailed(action.run, action.worker, fault.reason)]
        self._record_span(worker, "unit", action)
        self._release(action, "unit")
        self.units += 1
        events: list[Event] = [UnitFinished(action.run, action.worker, self._now - worker.started)]
        if self._volatile:
            self._homes[action.node, action.unit + 1] = action.worker
        if any(self._random.random() < fault.probability for fault in self._losses):
            self._at(self._now, lambda: [StateLost(action.node, action.unit + 1)])
        if not action.evaluate:
            self._next(worker)
            return events
        worker.started = self._now
        self._at(
            self._now + self._evaluation_seconds(worker, action), ScheduledEnd(worker, action, worker.turn, True)
        )
        return events

    def _evaluation_seconds(self, worker: SimulatedWorker, action: RunUnit | Evaluate) -> float:
        """Return the duration of an evaluation."""
        seconds = self._default_evaluation
        if self._landscape.evaluation is not None:
            seconds = self._landscape.evaluation(self._known(action)[0])
        return seconds / worker.spec.speed

    def _known(self, action: RunUnit | Evaluate) -> tuple[Values, str]:
        """Return the values and the key of a lineage; without values if its state was not trained here."""
        key = action.key if isinstance(action, RunUnit) else action.lineage
        return self._values.get(action.node, (Values(()), key))

    def _evaluated(self, worker: SimulatedWorker, action: RunUnit | Evaluate) -> list[Event]:
        """End an evaluation with its metrics."""
        seconds = self._now - worker.started
        if seconds:
            self._record_span(worker, "evaluation", action)
        unit = action.unit + 1 if isinstance(action, RunUnit) else action.unit
        values, key = self._known(action)
        metrics = self._landscape.metrics(values, unit // self.partitions, key)
        self._next(worker)
        return [StateEvaluated(action.run, action.worker, metrics, seconds)]

    def _next(self, worker: SimulatedWorker) -> None:
        worker.busy = None
        if worker.queue:
            ready, action = worker.queue.pop(0)
            self._begin(worker, action, ready)

    def _cancel(self, worker: SimulatedWorker, run: int) -> None:
        event = UnitCancelled(run, worker.spec.name)
        if worker.busy is not None and worker.busy.run == run:
            self._record_span(worker, "failed", worker.busy)
            worker.turn += 1
            self._release(worker.busy, "failed")
            self._at(self._now, lambda: [event])
            self._next(worker)
        elif any(action.run == run for _, action in worker.queue):
            worker.queue = [(ready, action) for ready, action in worker.queue if action.run != run]
            self._at(self._now, lambda: [event])

    def _record_span(self, worker: SimulatedWorker, kind: Kind, action: RunUnit | Evaluate) -> None:
        if kind in ("unit", "evaluation"):
            self.busy_seconds += self._now - worker.started
        if self._record:
            partition, epoch = (action.partition, action.epoch) if isinstance(action, RunUnit) else (-1, -1)
            self.did.append(
                SimulatedSpan(worker.spec.name, worker.started, self._now, kind, action.node, partition, epoch)
            )

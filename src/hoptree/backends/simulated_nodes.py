"""Simulated nodes that come and go: they are provisioned, start, load partitions, train, and are given back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias, final

import msgspec

from hoptree.backends.placement import place
from hoptree.backends.simulated_worker import SimulatedWorker
from hoptree.core.events import Event, NodeLost, NodeReleased, NodeStarted, WorkerDrained, WorkerLost
from hoptree.simulator.cluster import WorkerSpec
from hoptree.simulator.elastic_nodes import ElasticNodes

Fire: TypeAlias = Callable[[], list[Event]]
Schedule: TypeAlias = Callable[[float, Fire], None]
"""Schedules what happens so many seconds from now."""


@final
class _Node:
    """A node from its request to its end."""

    def __init__(self, name: str, requested: float) -> None:
        self.name = name
        self.requested = requested
        self.started = False
        self.joined = False
        self.leaving = False  # it is to be given back
        self.drained = False  # its workers get no more units
        self.gone = False
        self.held: set[int] = set()
        self.loading: set[int] = set()
        self.workers: list[SimulatedWorker] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs on it or waits for it."""
        return all(worker.busy is None and not worker.queue for worker in self.workers)


@final
class SimulatedNodes:
    """Requests nodes, gives them back, and places the partitions again whenever they change.

    A node is given back when other nodes have loaded what only it holds, and when what runs on it has ended.
    """

    def __init__(
        self,
        settings: ElasticNodes,
        partitions: int,
        workers: dict[str, SimulatedWorker],
        clock: Callable[[], float],
        schedule: Schedule,
        random: Random,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._workers = workers  # of the backend: workers of nodes are added to them
        self._clock = clock
        self._schedule = schedule
        self._random = random
        self._nodes: dict[str, _Node] = {}
        self._count = 0
        self._target = 0

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        """Request so many nodes, and give others back: those named first."""
        most = self._settings.max_count
        self._target = nodes if most is None else min(nodes, most)
        for name in release:
            node = self._nodes.get(name)
            if node is not None:
                self._give_back(node)
        surplus = len(self._staying()) - self._target
        requested = [node for node in self._staying() if not node.started]
        running = sorted((n for n in self._staying() if n.started), key=lambda n: (n.joined, not n.is_idle))
        for node in [*reversed(requested), *running][: max(0, surplus)]:
            self._give_back(node)
        self._request_missing()
        self._schedule(0.0, self._place)

    def lose(self, name: str) -> tuple[list[SimulatedWorker], list[Event]]:
        """Lose a running node ("": any); return the workers that it had, and the events."""
        running = [node for node in self._nodes.values() if node.started]
        node = self._nodes.get(name) if name else (self._random.choice(running) if running else None)
        if node is None or not node.started:
            return [], []
        events: list[Event] = [NodeLost(node.name), *self._end(node)]
        self._request_missing()
        return node.workers, [*events, *self._place()]

    def depart(self) -> list[tuple[_Node, list[Event]]]:
        """Return the drained nodes that have become idle since, with the events of their end."""
        left = [node for node in self._nodes.values() if node.drained and node.is_idle]
        return [(node, [*self._end(node), NodeReleased(node.name)]) for node in left]

    @property
    def survivor(self) -> str:
        """A worker of a node that stays; "" if there is none."""
        return next((node.workers[0].spec.name for node in self._staying() if node.joined), "")

    # --- coming -----------------------------------------------------------------------------------------

    def _staying(self) -> list[_Node]:
        return [node for node in self._nodes.values() if not node.leaving]

    def _request_missing(self) -> None:
        for _ in range(self._target - len(self._staying())):
            node = _Node(f"i{self._count}", self._clock())
            self._count += 1
            self._nodes[node.name] = node
            self._schedule(self._drawn(self._settings.provision), lambda node=node: self._start(node))  # type: ignore[misc]

    def _drawn(self, seconds: float) -> float:
        if not self._settings.spread or not seconds:
            return seconds
        sigma = math.sqrt(math.log1p(self._settings.spread**2))
        return seconds * self._random.lognormvariate(-sigma * sigma / 2, sigma)

    def _start(self, node: _Node) -> list[Event]:
        if node.gone:
            return []
        node.started = True
        node.loading = set(self._wanted()[node.name])
        seconds = self._drawn(self._settings.start) + len(node.loading) * self._settings.partition_seconds
        self._schedule(seconds, lambda: self._join(node))
        return [NodeStarted(node.name, self._settings.devices, self._clock() - node.requested)]

    def _join(self, node: _Node) -> list[Event]:
        if node.gone:
            return []
        node.joined, node.held, node.loading = True, node.loading, set()
        for device in range(self._settings.devices):
            spec = WorkerSpec(name=f"{node.name}.{device}", machine=node.name)
            worker = self._workers[spec.name] = SimulatedWorker(spec, node.name)
            worker.joined = True
            node.workers.append(worker)
        return [*self._announce(node), *self._place()]

    # --- partitions -------------------------------------------------------------------------------------

    def _wanted(self) -> dict[str, tuple[int, ...]]:
        """Return the partitions that each node should hold, of those that stay."""
        nodes = [node for node in self._staying() if node.started]
        replicas = self._settings.replicas
        if replicas is None or replicas >= len(nodes):
            return dict.fromkeys((node.name for node in nodes), tuple(range(self._partitions)))
        held = {node.name: frozenset(node.held | node.loading) for node in nodes}
        return place(self._partitions, {node.name: self._settings.devices for node in nodes}, replicas, held)

    def _place(self) -> list[Event]:
        """Let nodes load what they should hold, and release what others hold; drain those that can go."""
        events: list[Event] = []
        staying = [node for node in self._staying() if node.started]
        wanted = self._wanted() if staying else {}
        for node in staying:
            missing = set(wanted[node.name]) - node.held - node.loading
            if node.joined and missing:
                node.loading |= missing
                self._schedule(
                    len(missing) * self._settings.partition_seconds,
                    lambda node=node, missing=missing: self._load(node, missing),  # type: ignore[misc]
                )
        if all(node.joined and not node.loading for node in staying):
            for node in staying:
                if node.held != set(wanted[node.name]):
                    node.held = set(wanted[node.name])
                    events += self._announce(node)
        kept = {partition for node in staying if node.joined for partition in node.held}
        for node in self._nodes.values():
            if node.leaving and not node.drained and (not self._target or len(kept) == self._partitions):
                node.drained = True
                events += [WorkerDrained(worker.spec.name) for worker in node.workers]
        return events

    def _load(self, node: _Node, partitions: set[int]) -> list[Event]:
        if node.gone or node.leaving:
            return []
        node.held |= partitions
        node.loading -= partitions
        return [*self._announce(node), *self._place()]

    def _announce(self, node: _Node) -> list[Event]:
        for worker in node.workers:
            worker.spec = msgspec.structs.replace(worker.spec, partitions=tuple(sorted(node.held)))
        return [worker.announcement for worker in node.workers]

    # --- going ------------------------------------------------------------------------------------------

    def _give_back(self, node: _Node) -> None:
        node.leaving = True
        if not node.started:
            node.gone = True
            del self._nodes[node.name]
        elif not node.joined:
            node.drained = True  # nothing runs there yet

    def _end(self, node: _Node) -> list[Event]:
        node.gone = node.leaving = True
        del self._nodes[node.name]
        for worker in node.workers:
            worker.fail()
        return [WorkerLost(worker.spec.name) for worker in node.workers]

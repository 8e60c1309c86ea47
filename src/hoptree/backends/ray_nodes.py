"""The nodes of an elastic run: which nodes of a cluster are its own, and how they come and go.

A node is paid for from the moment at which it appears in the cluster until it has left it. It leaves in order: its
workers finish their units and save their states, then it is drained, so that Ray ends it at once instead of after
an idle time-out.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

from hoptree.backends.ray_cluster import RayNode
from hoptree.core.events import NodeLost, NodeReleased, NodeStarted
from hoptree.elastic.instance import Instance

_IDLE = 5.0  # seconds in which a node becomes idle after its last worker has ended
_ENDS = 30.0  # seconds in which a drained node ends
_IN_USE = 60.0  # seconds in which workers start on a node: from then on it is not idle
_LOOK, _WAITING, _LEAVING = 2.0, 0.5, 0.2  # seconds between two looks at the cluster

NodeEvent: TypeAlias = NodeStarted | NodeReleased | NodeLost

log = logging.getLogger("hoptree")


class NodeRequester(Protocol):
    """Starts and ends nodes of one instance type: Ray's autoscaler."""

    def request(self, nodes: int, others: Sequence[RayNode]) -> None:
        """Have so many nodes in all, besides ``others`` that it might take for the requested ones."""
        ...

    def check(self, alive: int, *, waiting: bool) -> None:
        """Raise an error if it starts no node; ``waiting``: none has come, ``alive``: how many there are."""
        ...

    def drain(self, node: str, *, only_idle: bool) -> bool:
        """End a node as soon as nothing runs on it; ``only_idle``: return False if anything does."""
        ...

    def release(self) -> None:
        """Request nothing any more."""
        ...


@dataclass
class _Node:
    """A node that is paid for."""

    address: str
    requested: bool  # whether it came because we asked for it, else others may need it too
    leaving: bool = False
    empty_since: float = 0.0  # since when a leaving node has no workers
    drained: bool = False


@final
class PaidNodes:
    """Knows the nodes that are paid for; without an autoscaler these are all that have room for workers.

    ``label`` is the label of nodes that names their instance type. Nodes without it count if they have as many
    devices as the instance.
    """

    def __init__(
        self, instance: Instance, worker: dict[str, float], label: str, autoscaler: NodeRequester | None
    ) -> None:
        self._instance = instance
        self._worker = worker
        self._label = label
        self._autoscaler = autoscaler
        self._nodes: dict[str, _Node] = {}  # in the order in which they came
        self._given_back: set[str] = set()  # nodes that still run, for others or for some seconds
        self._target = 0  # nodes that the cluster is to have; 0 until somebody asks for some
        self._asked: deque[float] = deque()  # when each node was requested that has not come yet
        self._ended: set[str] = set()  # addresses of nodes that were given back
        self._last_start = 0.0
        self._seen: set[str] | None = None
        self._others: set[str] = set()  # nodes that were there at first, and that do not count
        self._events: list[NodeEvent] = []

    def slots(self, node: RayNode) -> int:
        """Return how many workers a node gets: 0 if it is not of the instance type, or was given back."""
        room = min(self._instance.devices, node.room(self._worker))
        named = node.labels.get(self._label)
        if node.id in self._given_back or (named is not None and named != self._instance.name):
            return 0
        if self._autoscaler is not None and named is None:
            exact = node.room(self._worker) == self._instance.devices
            return room if exact and not node.is_head else 0
        return room

    def scale(self, nodes: int, release: Sequence[str], now: float) -> None:
        """Have so many nodes, and let others leave: those named first, then those that came last."""
        if self._autoscaler is None:
            return
        self._target = max(1, nodes)
        for name in release:
            if name in self._nodes:
                self._nodes[name].leaving = True
        self._leave_excess(now)

    @property
    def scales(self) -> bool:
        """Whether nodes come when they are requested."""
        return self._autoscaler is not None

    @property
    def leaving(self) -> Set[str]:
        """The nodes whose workers are to leave."""
        return {name for name, node in self._nodes.items() if node.leaving}

    def update(self, alive: Sequence[RayNode], unusable: Set[str], now: float) -> dict[str, int]:
        """Take note of the nodes that are alive, and return how many workers each is to have.

        Those that are ``unusable`` are given back.
        """
        present = {node.id for node in alive}
        self._note_ended(present)
        self._refuse_restarted(alive)
        self._note_started(alive, now)
        if self._seen is None:
            self._others = present - self._nodes.keys()
        self._warn_of_others(alive)
        self._seen = present
        self._given_back &= present
        if self._autoscaler is not None:
            for name in unusable & self._nodes.keys():
                self._nodes[name].leaving = True
            self._target = max(1, self._target)
            self._leave_excess(now)
            self._request(self._autoscaler, [node for node in alive if node.id in self._others], now)
            self._autoscaler.check(len(alive), waiting=not self._nodes)
        known = {name for name, node in self._nodes.items() if not node.leaving}
        return {node.id: self.slots(node) for node in alive if node.id in known - unusable}

    def _note_ended(self, present: Set[str]) -> None:
        for name in [name for name in self._nodes if name not in present]:
            node = self._nodes.pop(name)
            if node.drained:
                self._ended.add(node.address)
            self._events.append(NodeReleased(name) if node.drained else NodeLost(name))

    def _note_started(self, alive: Sequence[RayNode], now: float) -> None:
        for node in alive:
            if node.id not in self._nodes and (count := self.slots(node)):
                requested = self._seen is not None and node.id not in self._seen
                self._nodes[node.id] = _Node(node.address, requested)
                self._last_start = now
                waited = now - self._asked.popleft() if requested and self._asked else 0.0
                self._events.append(NodeStarted(node.id, count, waited))

    def give_back(self, busy: Set[str], now: float) -> None:
        """Drain the leaving nodes that have no workers any more; ``busy`` are those that have."""
        for name in self.leaving - busy:
            node = self._nodes[name]
            node.empty_since = node.empty_since or now
            if not node.drained:
                self._drain(name, node, now - node.empty_since)
            elif now - node.empty_since > _ENDS:
                self._forget(name, "does not end, although it was drained")

    def take_events(self) -> list[NodeEvent]:
        """Return what has happened since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def pause(self) -> float:
        """For how many seconds nobody needs to look at the cluster."""
        if self.leaving:
            return _LEAVING
        return _WAITING if self._asked else _LOOK

    def close(self) -> None:
        """Give all nodes back that came because they were requested."""
        if self._autoscaler is None:
            return
        for name, node in self._nodes.items():
            if node.requested and not node.drained:
                self._autoscaler.drain(name, only_idle=False)
        self._autoscaler.release()

    def _leave_excess(self, now: float) -> None:
        """Let the nodes that came last leave if there are too many, and note what is missing."""
        staying = [name for name, node in self._nodes.items() if not node.leaving]
        for name in staying[self._target :]:
            self._nodes[name].leaving = True
        missing = max(0, self._target - len(staying))
        while len(self._asked) < missing:
            self._asked.append(now)
        while len(self._asked) > missing:
            self._asked.pop()

    def _refuse_restarted(self, alive: Sequence[RayNode]) -> None:
        """Leave nodes alone that were given back and that the autoscaler has started again, to repair them."""
        machines = Counter(node.address for node in alive)
        for node in alive:
            restarted = node.address in self._ended and machines[node.address] == 1 and node.id not in self._nodes
            if restarted and not self._asked:
                self._given_back.add(node.id)

    def _warn_of_others(self, alive: Sequence[RayNode]) -> None:
        """Warn of nodes that have come instead of those that were requested."""
        others = [node for node in alive if self._seen is not None and node.id not in {*self._seen, *self._nodes}]
        if others and self._asked and self._autoscaler is not None:
            log.warning(
                "node %s has come, and is not used, since it is no %s; if it was started for this run, give "
                "ht.Ray(resources_per_worker=…) a resource that only nodes of this type have",
                others[0].describe(self._worker),
                self._instance.name,
            )

    def _request(self, autoscaler: NodeRequester, others: Sequence[RayNode], now: float) -> None:
        """Request nodes; Ray counts those that leave as well, until they have left.

        Ray remembers a request for ever, even if the program that made it is killed. Nodes on which workers run
        need none, so then nothing is requested: without their driver they are idle, and Ray ends them.
        """
        if not self._asked and now > self._last_start + _IN_USE:
            autoscaler.request(0, others)
        else:
            autoscaler.request(self._target + (len(self.leaving) if self._asked else 0), others)

    def _drain(self, name: str, node: _Node, seconds: float) -> None:
        assert self._autoscaler is not None
        if self._autoscaler.drain(name, only_idle=seconds <= _IDLE or not node.requested):
            node.drained = True
        elif seconds > _IDLE:
            self._forget(name, "is used by others")

    def _forget(self, name: str, reason: str) -> None:
        log.warning("node %s %s: it is left to the cluster, which ends it when it is idle", name[:6], reason)
        del self._nodes[name]
        self._given_back.add(name)
        self._events.append(NodeReleased(name))

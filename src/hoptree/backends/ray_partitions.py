"""Which partitions the workers of each node hold, and how they change without stopping units."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, final

from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.report.tables import size
from hoptree.worker.messages import HoldPartitions, PartitionsHeld

if TYPE_CHECKING:
    from hoptree.data import Dataset

log = logging.getLogger("hoptree")


@final
class PartitionHolders:
    """Tells workers which partitions to hold, and remembers it by node.

    Besides its share, a node may hold copies, of at most ``budget`` bytes. They do not count when shares are
    computed again, and a node that has lost all its workers has none.
    """

    def __init__(self, dataset: Dataset, budget: float = 0) -> None:
        self._dataset = dataset
        self._budget = budget
        self._copies: dict[str, tuple[int, ...]] = {}
        self._copying: set[str] = set()  # workers that were told to take copies
        self._held: dict[str, tuple[int, ...]] = {}
        self._releasing: set[str] = set()  # nodes whose workers know that they hold less, but have not released it

    @property
    def held(self) -> dict[str, frozenset[int]]:
        """What each node holds, or was told to hold, without copies."""
        return {node: frozenset(held) for node, held in self._held.items()}

    def of(self, node: str) -> tuple[int, ...]:
        """Return the partitions of one node, with its copies."""
        return tuple(sorted({*self._held[node], *self._copies.get(node, ())}))

    def keep_nodes(self, alive: Set[str]) -> None:
        """Remove all other nodes."""
        self._held = {node: held for node, held in self._held.items() if node in alive}
        self._releasing &= alive

    def keep_copies(self, nodes: Set[str]) -> None:
        """Let only these nodes keep their copies."""
        self._copies = {node: copies for node, copies in self._copies.items() if node in nodes}

    def copy(self, node: str, partitions: Iterable[int], workers: Sequence[RayWorkerHandle]) -> None:
        """Let a node hold copies as well, as far as the budget allows; its workers answer when they have them.

        The engine counts the bytes that it has told a worker to copy. A worker that replaces another one begins
        with the copies of the node, without being told: so the limit of a node is checked here.
        """
        if node not in self._held:  # it has left the cluster
            return
        before = self._copies.get(node, ())
        copies = dict.fromkeys(before)
        for partition in partitions:
            if partition not in self._held[node] and self._bytes({*copies, partition}) <= self._budget:
                copies[partition] = None
        if len(copies) == len(before):
            return
        self._copies[node] = tuple(copies)
        log.info("node %s takes copies of partitions %s, %s", node[:6], tuple(copies), size(self._bytes(copies)))
        self._copying.update(worker.name for worker in workers if worker.node == node)
        if node not in self._releasing:  # else the next call of ``hold`` sends it
            self._send(node, workers)

    def give_up_copies(self, worker: RayWorkerHandle, workers: Sequence[RayWorkerHandle]) -> bool:
        """Let a node do without copies if that may be what a worker has failed at; return whether it may."""
        if worker.name not in self._copying:
            return False
        self._copying.discard(worker.name)
        self._copies.pop(worker.node, None)
        self._send(worker.node, workers)
        return True

    def hold(
        self, target: Mapping[str, tuple[int, ...]], workers: Sequence[RayWorkerHandle]
    ) -> list[tuple[RayWorkerHandle, PartitionsHeld]]:
        """Let nodes fetch missing partitions at once, and release others when their new holders are ready.

        A node releases in two steps: return the messages by which the engine learns that it holds less; the workers
        release the partitions at the next call, when no unit that needs them can be on its way.
        """
        settled = set(target) <= {worker.node for worker in workers} and all(
            worker.joined and {*target[worker.node], *self._copies.get(worker.node, ())} <= set(worker.partitions)
            for worker in workers
            if worker.node in target
        )
        for node in self._releasing:
            self._send(node, workers)
        self._releasing.clear()
        messages: list[tuple[RayWorkerHandle, PartitionsHeld]] = []
        for node, partitions in target.items():
            before = set(self._held.get(node, ()))
            after = set(partitions) if settled else before | set(partitions)
            if after == before:
                continue
            self._held[node] = tuple(sorted(after))
            self._copies[node] = tuple(p for p in self._copies.get(node, ()) if p not in after)
            log.info("node %s holds partitions %s, %s", node[:6], self.of(node), size(self._bytes(self.of(node))))
            if after - before:
                self._send(node, workers)
            else:
                self._releasing.add(node)
                held = PartitionsHeld(self.of(node))
                messages += [(worker, held) for worker in workers if worker.node == node]
        return messages

    def _send(self, node: str, workers: Sequence[RayWorkerHandle]) -> None:
        for worker in workers:
            if worker.node == node:
                worker.send(HoldPartitions(self.of(node)))

    def _bytes(self, partitions: Iterable[int]) -> int:
        return sum(self._dataset.manifest.train[partition].bytes for partition in partitions)

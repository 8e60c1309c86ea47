"""Which partitions the workers of each node hold, and how they change without stopping units."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, final

from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.report.tables import size
from hoptree.worker.messages import HoldPartitions, PartitionsHeld

if TYPE_CHECKING:
    from hoptree.data import Dataset

log = logging.getLogger("hoptree")


@final
class PartitionHolders:
    """Tells workers which partitions to hold, and remembers it by node."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._held: dict[str, tuple[int, ...]] = {}
        self._releasing: set[str] = set()  # nodes whose workers know that they hold less, but have not released it

    @property
    def held(self) -> dict[str, frozenset[int]]:
        """What each node holds, or was told to hold."""
        return {node: frozenset(held) for node, held in self._held.items()}

    def of(self, node: str) -> tuple[int, ...]:
        """Return the partitions of one node."""
        return self._held[node]

    def keep_nodes(self, alive: Set[str]) -> None:
        """Remove all other nodes."""
        self._held = {node: held for node, held in self._held.items() if node in alive}
        self._releasing &= alive

    def hold(
        self, target: Mapping[str, tuple[int, ...]], workers: Sequence[RayWorkerHandle]
    ) -> list[tuple[RayWorkerHandle, PartitionsHeld]]:
        """Let nodes fetch missing partitions at once, and release others when their new holders are ready.

        A node releases in two steps: return the messages by which the engine learns that it holds less; the workers
        release the partitions at the next call, when no unit that needs them can be on its way.
        """
        settled = set(target) <= {worker.node for worker in workers} and all(
            worker.joined and set(target[worker.node]) <= set(worker.partitions)
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
            log.info("node %s holds partitions %s, %s", node[:6], self._held[node], size(self._bytes(node)))
            if after - before:
                self._send(node, workers)
            else:
                self._releasing.add(node)
                messages += [
                    (worker, PartitionsHeld(self._held[node])) for worker in workers if worker.node == node
                ]
        return messages

    def _send(self, node: str, workers: Sequence[RayWorkerHandle]) -> None:
        for worker in workers:
            if worker.node == node:
                worker.send(HoldPartitions(self._held[node]))

    def _bytes(self, node: str) -> int:
        return sum(self._dataset.manifest.train[partition].bytes for partition in self._held[node])

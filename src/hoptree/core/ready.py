"""The ready queue: one heap per partition; removed entries stay in the heaps and are skipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, final

from hoptree.core.nodes import ActiveLineage
from hoptree.core.policies import Policy


class ReadyEntry(NamedTuple):
    """An entry for a lineage in one partition's heap; valid while the lineage has that sequence number."""

    rank: float
    distance: int
    sequence: int
    lineage: ActiveLineage


@final
class ReadyQueue:
    """Lineages whose next unit could start now, by partition.

    In strict order a lineage is in one heap; in free order in one for each partition that its epoch still has to
    visit; a policy with two orders has two heaps for each partition. Removing a lineage only changes its sequence
    number; invalid entries are dropped when they reach the top, or all at once when there are too many.
    """

    def __init__(self, partitions: int, policy: Policy, *, free: bool) -> None:
        self._partitions = partitions
        self._policy = policy
        self._free = free
        self._heaps: list[list[ReadyEntry]] = [[] for _ in range(partitions)]
        self._urgent: list[list[ReadyEntry]] | None = [[] for _ in range(partitions)] if policy.two_orders else None
        self._entries = 0
        self._sequence = 0
        self.count = 0

    def push(self, lineage: ActiveLineage) -> Iterable[int]:
        """Make a lineage available; return the partitions that it could train on next."""
        lineage.change("enqueue")
        if lineage.sequence < 0:
            self.count += 1
        self._sequence += 1
        lineage.sequence = self._sequence
        self._compact()
        begin = lineage.partition
        wanted: Sequence[int] = (begin,)
        if self._free:
            wanted = [p for p in range(self._partitions) if not lineage.order >> p & 1]
        policy, urgent = self._policy, self._urgent
        for partition in wanted:
            distance = (partition - begin) % self._partitions
            rank = policy.rank(lineage, partition)
            heappush(self._heaps[partition], ReadyEntry(rank, distance, self._sequence, lineage))
            self._entries += 1
            if urgent is not None:
                rank = policy.urgency(lineage, partition)
                heappush(urgent[partition], ReadyEntry(rank, distance, self._sequence, lineage))
                self._entries += 1
        return wanted

    def take(self, lineage: ActiveLineage) -> None:
        """Make a lineage unavailable."""
        if lineage.sequence >= 0:
            lineage.change("dequeue")
            lineage.sequence = -1
            self.count -= 1

    def lineages(self) -> list[ActiveLineage]:
        """Return all ready lineages, longest ready first; it takes as long as there are entries."""
        found = {entry.sequence: entry.lineage for heap in self._heaps for entry in heap if _is_valid(entry)}
        return [found[sequence] for sequence in sorted(found)]

    def best(self, partitions: Iterable[int]) -> tuple[ReadyEntry, int] | None:
        """Return the first entry among some partitions, and its partition; it stays in the queue.

        In free order its rank is a time, also if the policy has two orders.
        """
        found = self._first(self._heaps, partitions)
        if found is None or self._urgent is None:
            return found
        urgent = self._first(self._urgent, partitions)
        assert urgent is not None, "a lineage is in both orders or in none"
        lineage = found[0].lineage
        if urgent[0].lineage is lineage or self._policy.is_urgent(urgent[0].lineage, lineage):
            return urgent
        if self._free:  # matching compares ranks as times
            found = found[0]._replace(rank=self._policy.urgency(lineage, found[1])), found[1]
        return found

    def _first(self, heaps: list[list[ReadyEntry]], partitions: Iterable[int]) -> tuple[ReadyEntry, int] | None:
        found: ReadyEntry | None = None
        where = -1
        for partition in partitions:
            heap = heaps[partition]
            while heap:
                entry = heap[0]
                if entry[3].sequence == entry[2]:
                    break
                heappop(heap)
                self._entries -= 1
            else:
                continue
            if found is not None and not entry < found:
                continue
            if self._policy.selective and not self._policy.admits(entry.lineage, partition):
                admitted = sorted(e for e in heap if e.lineage.sequence == e.sequence)
                allowed = (e for e in admitted if self._policy.admits(e.lineage, partition))
                found_here = next(allowed, None)
                if found_here is None or (found is not None and not found_here < found):
                    continue
                entry = found_here
            found, where = entry, partition
        return None if found is None else (found, where)

    def _compact(self) -> None:
        if self._entries > 64 * (self._partitions + self.count * self._partitions):
            heaps = [*self._heaps, *(self._urgent or ())]
            for heap in heaps:
                heap[:] = [entry for entry in heap if entry.lineage.sequence == entry.sequence]
                heapify(heap)
            self._entries = sum(map(len, heaps))


def _is_valid(entry: ReadyEntry) -> bool:
    return entry.lineage.sequence == entry.sequence

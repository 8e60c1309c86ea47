"""Copies of partitions for idle nodes: within a budget of bytes, and where a dry run says that they pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec

from hoptree.core.errors import WorkloadError

WORTH: Final = 0.98  # copies pay if the rest takes at most this fraction of its time without them


class ReplicationSettings(msgspec.Struct, frozen=True):
    """How many bytes of copies a node may hold, and the bytes of each partition."""

    budget: float
    partition_bytes: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.budget < float("inf"):
            raise WorkloadError(f"replicate_idle: {self.budget!r}; expected a number of bytes, 0 or more")


@final
class Replication:
    """Remembers which workers were told to hold which copies."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self._settings = settings
        self._copied: dict[str, dict[int, None]] = {}  # by worker

    def affordable(self, worker: str, held: Sequence[int], needed: Mapping[int, float]) -> tuple[int, ...]:
        """Return the copies that a worker's node could still take, those first that are needed for the longest."""
        mine = self._copied.get(worker, {})
        left = self._settings.budget - sum(self._settings.partition_bytes[partition] for partition in mine)
        chosen: list[int] = []
        for partition in sorted(needed, key=lambda partition: (-needed[partition], partition)):
            size = self._settings.partition_bytes[partition]
            if partition not in held and partition not in mine and size <= left:
                chosen.append(partition)
                left -= size
        return tuple(chosen)

    def ordered(self, workers: Sequence[str], partitions: Sequence[int]) -> None:
        """Take note that workers were told to hold copies."""
        for worker in workers:
            self._copied.setdefault(worker, {}).update(dict.fromkeys(partitions))

    def lost(self, worker: str) -> None:
        """Take note that a worker has left, with its copies."""
        self._copied.pop(worker, None)

"""Which of the requested workers have started: a node on which none can start is not used until one does.

Ray reports the resources of a node, not what other jobs leave of them. A worker for which there is no room waits
silently, and so would the partitions that only its node should hold.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, final

_LATE = 30.0  # seconds in which a worker starts if there is room for it, even on a busy machine
_NO_WORKER = 30.0  # seconds without any ready worker between two warnings

log = logging.getLogger("hoptree")


class StartingWorker(Protocol):
    """A worker that was requested at ``requested_at``."""

    name: str
    node: str
    leaving: bool
    requested_at: float

    @property
    def running(self) -> bool:
        """Whether there was room for it."""
        ...

    @property
    def joined(self) -> bool:
        """Whether it can get runs."""
        ...


@final
class StartupMonitor:
    """Finds workers that are late and warns of them: once per node, and repeatedly while no worker is ready."""

    def __init__(self) -> None:
        self._waiting_since = 0.0
        self._warned: set[str] = set()

    def late(self, workers: Iterable[StartingWorker], now: float) -> set[str]:
        """Return the names of workers that should have started by now."""
        return {worker.name for worker in workers if not worker.running and now > worker.requested_at + _LATE}

    def count(self, wanted: Mapping[str, int], workers: Sequence[StartingWorker], now: float) -> dict[str, int]:
        """Return how many workers to expect on each node, without those that are late.

        If all workers are late, expect all of them: any node may be the first.
        """
        late = self.late(workers, now)
        missing = Counter(worker.node for worker in workers if worker.name in late and not worker.leaving)
        found = {node: count - missing[node] for node, count in wanted.items() if count > missing[node]}
        return found or dict(wanted)

    def warn(
        self,
        workers: Sequence[StartingWorker],
        nodes: Mapping[str, str],
        needs: str,
        now: float,
        waiting_for: str = "waiting",
    ) -> None:
        """Warn where workers are late, and repeatedly that no worker is ready.

        ``nodes`` are descriptions by id, ``needs`` are the resources of a worker, ``waiting_for`` ends the message.
        """
        late = self.late(workers, now)
        missing = Counter(worker.node for worker in workers if worker.name in late)
        self._warned &= missing.keys()
        for node, count in missing.items():
            if node not in self._warned and node in nodes:
                self._warned.add(node)
                log.warning(
                    "node %s: no room yet for %d of its workers, each with %s: other jobs use it, or Ray prepares "
                    "it; the study continues without them until resources are free",
                    nodes[node],
                    count,
                    needs,
                )
        if any(worker.joined for worker in workers) or not self._waiting_since:
            self._waiting_since = now
        elif now - self._waiting_since > _NO_WORKER:
            self._waiting_since = now
            has = "; ".join(nodes.values()) or "no node"
            log.warning(
                "no worker is ready yet; each needs %s, and the cluster has %s: %s", needs, has, waiting_for
            )

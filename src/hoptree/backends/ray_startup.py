"""Who of the workers that were sent for has come: a node where none can start is done without until one does.

Ray says what a node has in all, not what others leave of it. A worker for which there is no room waits without a
word, and partitions that only its node was to hold would wait with it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, final

_PATIENCE = 30.0  # seconds in which a worker begins where there is room for it, on a busy machine too
_SILENCE = 30.0  # seconds without any worker after which that is told, and told again

log = logging.getLogger("hoptree")


class StartingWorker(Protocol):
    """A worker that was sent for; ``arrived`` once it runs, ``ready`` once it can work."""

    name: str
    node: str
    ready: bool
    leaving: bool
    sent_for: float

    @property
    def arrived(self) -> bool:
        """Whether there was room for it."""
        ...


@final
class StartupMonitor:
    """Knows which workers are late, and says so: once for each node, again and again while nobody works at all."""

    def __init__(self) -> None:
        self._waiting_since = 0.0
        self._told: set[str] = set()

    def late(self, workers: Iterable[StartingWorker], now: float) -> set[str]:
        """Return the names of workers that should have begun by now."""
        return {worker.name for worker in workers if not worker.arrived and now > worker.sent_for + _PATIENCE}

    def count(self, wanted: Mapping[str, int], workers: Sequence[StartingWorker], now: float) -> dict[str, int]:
        """Return how many workers each node can be counted on to have, without those that are late.

        While nobody has come anywhere, any node may be the first.
        """
        late = self.late(workers, now)
        missing = Counter(worker.node for worker in workers if worker.name in late and not worker.leaving)
        found = {node: count - missing[node] for node, count in wanted.items() if count > missing[node]}
        return found or dict(wanted)

    def complain(
        self,
        workers: Sequence[StartingWorker],
        nodes: Mapping[str, str],
        takes: str,
        now: float,
        hope: str = "waiting",
    ) -> None:
        """Say where workers are late, and from time to time that nobody works.

        ``nodes`` are described by id, ``takes`` is what a worker takes, ``hope`` what is waited for.
        """
        late = self.late(workers, now)
        missing = Counter(worker.node for worker in workers if worker.name in late)
        self._told &= missing.keys()
        for node, count in missing.items():
            if node not in self._told and node in nodes:
                self._told.add(node)
                log.warning(
                    "node %s: no room yet for %d of its workers, each with %s: others use it, or Ray prepares it; "
                    "going on without them until there is",
                    nodes[node],
                    count,
                    takes,
                )
        if any(worker.ready for worker in workers) or not self._waiting_since:
            self._waiting_since = now
        elif now - self._waiting_since > _SILENCE:
            self._waiting_since = now
            has = "; ".join(nodes.values()) or "no node"
            log.warning("no worker is ready yet; each takes %s, and the cluster has %s: %s", takes, has, hope)

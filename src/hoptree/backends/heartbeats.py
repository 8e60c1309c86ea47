"""Which workers have stopped: those whose heartbeats have been missing for too long while the driver was checking.

Only time in which the driver checks counts. After the driver itself was stopped, or busy for long, every worker has
nearly the whole limit again (docs/decisions/0022-heartbeats.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, final

from hoptree.core.errors import WorkloadError

LIMIT = 30.0  # seconds without a heartbeat after which a worker is given up, unless the user sets another limit
_SHORTEST = 1.0  # seconds that a limit may be: on a busy machine, a process waits for a CPU
_BEATS = 6  # heartbeats within the limit
_CHECKS = 4  # checks that a worker must have missed, at least


class HasHeartbeat(Protocol):
    """A worker that sends heartbeats; ``silent_seconds`` is the time since the last one."""

    silent_seconds: float

    def has_beaten(self) -> bool:
        """Return whether a heartbeat has arrived since the last call."""
        ...


_Worker = TypeVar("_Worker", bound=HasHeartbeat)


@final
class Heartbeats:
    """Checks periodically which workers send heartbeats."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._checked = now

    @property
    def next_check(self) -> float:
        """When to check again."""
        return self._checked + beat_interval(self.limit)

    def stopped(self, workers: Iterable[_Worker], now: float) -> list[_Worker]:
        """Return the workers to give up; call it periodically."""
        passed = min(now - self._checked, self.limit / _CHECKS)
        self._checked = now
        found: list[_Worker] = []
        for worker in workers:
            worker.silent_seconds = 0.0 if worker.has_beaten() else worker.silent_seconds + passed
            if worker.silent_seconds >= self.limit:
                found.append(worker)
        return found


def beat_interval(limit: float) -> float:
    """Return the seconds between two heartbeats of a worker."""
    return limit / _BEATS


def check_heartbeat_limit(limit: object) -> None:
    """Raise an error unless this is a valid limit in seconds."""
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not _SHORTEST <= float(limit) < float("inf"):  # type: ignore[arg-type]
        raise WorkloadError(f"heartbeat_limit: {limit!r}; expected seconds, at least {_SHORTEST:g}")

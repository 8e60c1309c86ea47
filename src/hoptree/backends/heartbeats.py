"""Which workers have stopped: those of whom no sign of life has come for too long, by the driver's own attention.

Only time in which the driver has looked on counts. After a driver was stopped itself, or was busy for long, every
worker has nearly the whole limit again (docs/decisions/0022-heartbeats.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, final

from hoptree.core.errors import WorkloadError

LIMIT = 30.0  # seconds without a sign of life after which a worker is given up, unless the user says otherwise
_SHORTEST = 1.0  # seconds that a limit may be: a busy machine lets a process wait
_BEATS = 6  # in the time of the limit
_LOOKS = 4  # at which a worker must have been silent, at least


class HasHeartbeat(Protocol):
    """A worker that gives signs of life; ``silence`` are the seconds since the last one."""

    silence: float

    def heard(self) -> bool:
        """Return whether a sign of life has come since this was asked last."""
        ...


_Worker = TypeVar("_Worker", bound=HasHeartbeat)


@final
class Heartbeats:
    """Looks from time to time who gives signs of life."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._looked = now

    @property
    def next_look(self) -> float:
        """When to look again."""
        return self._looked + beat_interval(self.limit)

    def stopped(self, workers: Iterable[_Worker], now: float) -> list[_Worker]:
        """Return the workers that are to be given up; to be asked again and again."""
        passed = min(now - self._looked, self.limit / _LOOKS)
        self._looked = now
        found: list[_Worker] = []
        for worker in workers:
            worker.silence = 0.0 if worker.heard() else worker.silence + passed
            if worker.silence >= self.limit:
                found.append(worker)
        return found


def beat_interval(limit: float) -> float:
    """Return the seconds between two signs of life of a worker."""
    return limit / _BEATS


def check_heartbeat_limit(limit: object) -> None:
    """Refuse what is no limit."""
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not _SHORTEST <= float(limit) < float("inf"):  # type: ignore[arg-type]
        raise WorkloadError(f"heartbeat_limit: {limit!r}; expected seconds, at least {_SHORTEST:g}")

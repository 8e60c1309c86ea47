"""Limits how often repeated work runs, so that it takes at most a share of the driver's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, final

_LONGEST = 1.0  # seconds after which the work runs again at the latest, so that users see that time passes


@final
class RateLimit:
    """Says when work is due, and measures how long it takes: ``with limit: ...``.

    It measures the CPU time of this thread. Wall-clock time would include other programs, and a machine that is
    briefly busy would stop the view for seconds.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        shortest: float = 0.0,
    ) -> None:
        self._share = share
        self._clock = clock
        self._cpu = cpu
        self._shortest = shortest
        self._began = 0.0
        self._due = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time to run again."""
        return self._clock() >= self._due

    def __enter__(self) -> Self:
        self._began = self._cpu()
        return self

    def __exit__(self, *_: object) -> None:
        spent = self._cpu() - self._began
        self._due = self._clock() + min(_LONGEST, max(self._shortest, spent / self._share))

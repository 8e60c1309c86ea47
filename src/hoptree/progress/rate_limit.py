"""The pace of what is done again and again: as often as its share of the driver's time allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, final

_LONGEST = 1.0  # seconds after which it is done again at the latest: who looks on must see that time passes


@final
class RateLimit:
    """Says when something is due, and takes the time that it took: ``with pace: ...``.

    What counts is the processor's time of this thread. The clock would count what other programs take meanwhile,
    and a machine that is busy for a moment would silence the view for seconds.
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
        """Whether it is time to do it again."""
        return self._clock() >= self._due

    def __enter__(self) -> Self:
        self._began = self._cpu()
        return self

    def __exit__(self, *_: object) -> None:
        spent = self._cpu() - self._began
        self._due = self._clock() + min(_LONGEST, max(self._shortest, spent / self._share))

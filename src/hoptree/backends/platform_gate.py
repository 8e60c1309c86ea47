"""Which platforms may train: workers of another platform would train different bits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import final

from hoptree.backends.worker_handle import WorkerHandle
from hoptree.identity.platform import differences

_WAIT = 30.0  # seconds, after the first worker of several machines, in which the others report their platforms


@final
class PlatformGate:
    """Lets workers of some platforms train, all platforms until ``admit`` was called.

    ``waits`` says whether a start has to wait for the workers' platforms: for one where all are of ``one_kind``,
    else for all.
    """

    def __init__(self, *, waits: bool, one_kind: bool) -> None:
        self._waits = waits
        self._one_kind = one_kind
        self._first_known: float | None = None  # when the first worker reported its platform
        self._allowed: list[dict[str, str]] | None = None

    def admit(self, platforms: Sequence[dict[str, str]]) -> None:
        """Let only workers of these platforms train from now on."""
        self._allowed = list(platforms)

    def allows(self, platform: dict[str, str] | None) -> bool:
        """Return whether a worker of this platform may train."""
        return self._allowed is None or platform in self._allowed

    def difference(self, platform: dict[str, str] | None) -> str:
        """Return how a platform differs from the first one that may train."""
        return "; ".join(differences(self._allowed[0], platform or {})) if self._allowed else ""

    def is_settled(self, workers: Iterable[WorkerHandle]) -> bool:
        """Return whether enough platforms are known to start: that of the first worker, or of all."""
        known = [worker.platform is not None for worker in workers]
        if not self._waits or (any(known) and (self._one_kind or all(known))):
            return True
        if any(known):
            self._first_known = self._first_known or time.monotonic()
            return time.monotonic() > self._first_known + _WAIT
        return False

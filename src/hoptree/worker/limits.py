"""The limit on file sizes that the system sets for a worker process, and that the user's code may change."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import final


@final
class FileLimit:
    """Knows the limit that the worker came with."""

    def __init__(self) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_FSIZE)

    def changed(self) -> str:
        """Say what the user's code has limited files to; "" if it has not."""
        now = resource.getrlimit(resource.RLIMIT_FSIZE)
        if now == self._own:
            return ""
        return (
            f"no room for its state: this trial's code has limited files to {now[0]} bytes (RLIMIT_FSIZE); leave "
            "that limit alone, or set it in a process of its own"
        )

    def restore(self) -> bool:
        """Put the limit back as it was; return whether it is."""
        if resource.getrlimit(resource.RLIMIT_FSIZE) != self._own:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_FSIZE, self._own)
        return resource.getrlimit(resource.RLIMIT_FSIZE) == self._own

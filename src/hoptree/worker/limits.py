"""The limit on file sizes of a worker process, which the user's code may change."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import final


@final
class FileLimit:
    """Remembers the limit with which the worker started."""

    def __init__(self) -> None:
        self._original = resource.getrlimit(resource.RLIMIT_FSIZE)

    def changed(self) -> str:
        """Return an error message if the user's code has changed the limit, else ""."""
        now = resource.getrlimit(resource.RLIMIT_FSIZE)
        if now == self._original:
            return ""
        return (
            f"no room for its state: this trial's code has limited files to {now[0]} bytes (RLIMIT_FSIZE); do not "
            "change that limit, or change it in a process of its own"
        )

    def restore(self) -> bool:
        """Restore the limit; return whether that worked."""
        if resource.getrlimit(resource.RLIMIT_FSIZE) != self._original:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_FSIZE, self._original)
        return resource.getrlimit(resource.RLIMIT_FSIZE) == self._original

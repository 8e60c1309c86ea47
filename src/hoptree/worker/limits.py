"""Limits of a worker process: on its memory, and on file sizes, which the user's code may change."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import final

from hoptree.core.errors import RefusedError

_OUT_OF_MEMORY = ("can't allocate memory", "CUDA out of memory", "MemoryError")  # torch on a CPU and a GPU, NumPy


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


def limit_memory(size: int) -> None:
    """Limit the memory of this process to some bytes, 0 for no limit: an allocation above it raises an error.

    Private writable memory counts, even before it is used; data and states that workers share do not.
    """
    if not size:
        return
    used = _private_bytes()
    if used >= size:
        raise RefusedError(
            f"memory_per_worker: {_readable(size)}, but a worker takes {_readable(used)} before it trains; "
            f"expected more, for example '{2 * used / 1e9:.1f} GB'"
        )
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, also one that quotes another, says that there is no memory left."""
    return isinstance(error, MemoryError) or (
        isinstance(error, Exception) and any(text in str(error) for text in _OUT_OF_MEMORY)
    )


def memory_advice() -> str:
    """Return the message for a unit that is out of memory; it names the limit of this process, if there is one."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit == resource.RLIM_INFINITY:
        return "out of memory: use a smaller batch_size or model, or fewer workers"
    return (
        f"out of memory: a worker may use {_readable(limit)}; give run() a larger memory_per_worker, or use a "
        "smaller batch_size or model"
    )


def _private_bytes() -> int:
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


def _readable(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 10**9 else f"{size / 1e6:.0f} MB"

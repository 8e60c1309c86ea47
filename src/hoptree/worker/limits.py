"""Limits of a worker process: on its memory, and on file sizes, which the user's code may change."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import final

from hoptree.core.errors import RefusedError
from hoptree.core.layout_choice import readable_bytes
from hoptree.worker.memory import spare_memory

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
            f"memory_per_worker: {readable_bytes(size)}, but a worker takes {readable_bytes(used)} before it "
            f"trains; expected more, for example '{2 * used / 1e9:.1f} GB'"
        )
    spare_memory()
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, also one that quotes another, says that there is no memory left."""
    return isinstance(error, MemoryError) or (
        isinstance(error, Exception) and any(text in str(error) for text in _OUT_OF_MEMORY)
    )


def asked_bytes(error: BaseException) -> int:
    """Return how much memory was asked for in vain, as far as the error says that (torch and NumPy do); else 0.

    >>> asked_bytes(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes."))
    4000
    >>> asked_bytes(MemoryError("Unable to allocate 1.50 MiB for an array with shape (3,)"))
    1572864
    """
    found = re.search(r"(?:tried|[Uu]nable|Tried) to allocate ([\d.]+) (bytes|[KMGT]iB|B)", str(error))
    if found is None:
        return 0
    number, unit = found.groups()
    return int(float(number) * 1024 ** (" KMGT".index(unit[0]) if unit.endswith("iB") else 0))


def memory_limit() -> int:
    """Return the limit on this process's memory, 0 if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def memory_advice(asked: int = 0) -> str:
    """Return the message for a unit that is out of memory; it names the limit of this process, if there is one."""
    limit = memory_limit()
    more = f" (it asked for {readable_bytes(asked)} more)" if asked else ""
    if not limit:
        return f"out of memory: use a smaller batch_size or model, or fewer workers{more}"
    return (
        f"out of memory: a worker may use {readable_bytes(limit)}; give run() a larger memory_per_worker, or use a "
        f"smaller batch_size or model{more}"
    )


def _private_bytes() -> int:
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0

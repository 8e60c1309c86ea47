"""How a worker process reuses freed memory, and how much it has needed at most."""

from __future__ import annotations

import ctypes
import gc
import re
import resource
from contextlib import suppress
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # parameters of mallopt, from malloc.h


def keep_memory() -> None:
    """Keep freed memory for the next batch: returning it to the system costs page faults at every step.

    Tensors of a batch are freed and allocated a thousand times; with the C library's defaults that took up to a
    tenth of a unit's time. The process keeps at most half a GiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(
            _MMAP_THRESHOLD, 1 << 25
        )  # older C libraries accept no more than this
        mallopt(_TRIM_THRESHOLD, 1 << 29)
        mallopt(_TOP_PAD, 1 << 26)


def spare_memory() -> None:
    """Return freed memory at once, and ask for little at a time: under a limit, that counts more than page faults.

    Otherwise small objects between tensors that were freed would keep their memory from being used as a whole.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 20)
        mallopt(_TRIM_THRESHOLD, 1 << 20)
        mallopt(_TOP_PAD, 1 << 18)


def free_memory() -> None:
    """Free what nothing refers to any more, and return it to the system: it counts towards the limit otherwise."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def reset_peak() -> None:
    """Return free memory to the system, and count the most memory from now on.

    Where the system cannot do that, the most memory is that since the process started.
    """
    free_memory()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the most memory that this process has had at a time."""
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        if found:
            return int(found.group(1)) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""How a worker process reuses freed memory."""

from __future__ import annotations

import ctypes

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

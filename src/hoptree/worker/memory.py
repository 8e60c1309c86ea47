"""How a worker process treats the memory that it has freed."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # parameters of mallopt, from malloc.h


def keep_memory() -> None:
    """Let freed memory serve the next batch: given back to the system, it costs page faults at every step.

    Tensors of a batch are freed and made again a thousand times; with the C library's defaults that took up to a
    tenth of a unit's time. Half a GiB at most is held back.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30) or mallopt(_MMAP_THRESHOLD, 1 << 25)  # older ones take no more than this
        mallopt(_TRIM_THRESHOLD, 1 << 29)
        mallopt(_TOP_PAD, 1 << 26)

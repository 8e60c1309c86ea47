"""What training takes of the processor, as the processes that train see it themselves.

A process counts from the start of its first unit until the end of its last: training, evaluation, states in and
out, and whatever else it does in between; not its start, in which torch is imported.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, final

_FORMAT = struct.Struct("3d")


class Spent(NamedTuple):
    """CPU seconds of several processes."""

    whole: float
    training: float  # of which in units, …
    evaluating: float  # … and in evaluations


@final
class Meter:
    """Counts in one process, and keeps its count in a file; a copy in another process counts for that one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1
        self._first = 0.0
        self._in = {"training": 0.0, "evaluating": 0.0}

    def __reduce__(self) -> tuple[type[Meter], tuple[Path]]:
        return Meter, (self._folder,)

    @property
    def begun(self) -> bool:
        """Whether this process has begun to train."""
        return self._file >= 0

    def begin(self) -> None:
        """Count from now on, in this process."""
        if not self.begun:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._folder / str(os.getpid()), os.O_CREAT | os.O_WRONLY, 0o644)
            self._first = time.process_time()
            self._in = dict.fromkeys(self._in, 0.0)  # without a rehearsal

    @contextmanager
    def counting(self, what: str) -> Iterator[None]:
        """Count what is done here."""
        began = time.process_time()
        try:
            yield
        finally:
            self._in[what] += time.process_time() - began
            self.note()

    def note(self) -> None:
        """Write down what was spent so far."""
        if self.begun:
            spent = time.process_time() - self._first
            os.pwrite(self._file, _FORMAT.pack(spent, *self._in.values()), 0)


@cache
def meter_of(folder: Path) -> Meter:
    """Return the one meter of this process."""
    return Meter(folder)


def spent(folder: Path) -> Spent:
    """Return the sum over all processes that counted in a folder."""
    counts = [_FORMAT.unpack(file.read_bytes()) for file in folder.glob("*")] or [(0.0, 0.0, 0.0)]
    return Spent(*(sum(column) for column in zip(*counts, strict=True)))

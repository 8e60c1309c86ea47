"""The tree of processes below this one, read from /proc at little cost."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple, final

_TICKS = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


class Process(NamedTuple):
    """A process as it was when it was looked at."""

    pid: int
    parent: int
    state: str
    cpu: float  # seconds, without its children


@final
class Tree:
    """All descendants of this process, which becomes the reaper of those that lose their parent.

    So daemons that leave their parent stay in the tree, and whatever is in it was started from here. A process
    that is seen for the first time is looked at once; if it is not of the tree, never again.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        self._ours = {os.getpid()}
        self._others: set[int] = set()

    def look(self) -> list[Process]:
        """Return the descendants that are there now."""
        there = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}
        self._others &= there
        found: dict[int, Process] = {}
        fresh = sorted(there - self._others)
        while True:
            looked = [process for pid in fresh if (process := stat(pid)) is not None]
            ours = [process for process in looked if process.pid in self._ours or process.parent in self._ours]
            found |= {process.pid: process for process in ours}
            self._ours |= {process.pid for process in ours}
            fresh = [process.pid for process in looked if process.pid not in self._ours]
            if not ours or not fresh:
                break
        self._others.update(fresh)
        self._ours &= there | {os.getpid()}
        found.pop(os.getpid(), None)
        return list(found.values())


def stat(pid: int) -> Process | None:
    """Return the status of a process; None if it has ended."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before it may hold anything
    cpu = (int(fields[11]) + int(fields[12])) / _TICKS
    return Process(pid, int(fields[1]), fields[0].decode(), cpu)


def memory(pid: int) -> int:
    """Return the proportional set size in bytes: a page that n processes map, shared memory too, counts 1/n."""
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)


def written() -> int:
    """Return the bytes that this process, and all that it and its descendants waited for, wrote to disk."""
    lines = _read("/proc/self/io").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:"))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)

"""Who spends the processor's time on a cluster of this machine: the program, its workers, or Ray's own daemons.

On one machine the daemons of every node take their time from those who train; on machines apart each node has its
own. So a figure of many nodes on few cores needs this beside it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple, final

from bench.speed.processes import Tree

_PROGRAMS = (b"raylet", b"gcs_server")
_SCRIPTS = (b"/ray/_private/", b"/ray/dashboard/", b"/ray/autoscaler/")
_TITLES = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
_CALM = 0.05  # of a core: what daemons take that have nothing to do
_PATIENCE = 30.0  # seconds until they should be idle


class Spent(NamedTuple):
    """Seconds of the processor."""

    training: float  # by the program and its workers
    daemons: float


@final
class Meter:
    """Looks at all processes below this one; what a process spent before the meter began does not count."""

    def __init__(self) -> None:
        self._tree = Tree()
        self._before: dict[int, float] = {}
        self._last: dict[int, tuple[bool, float]] = {}

    def settle(self) -> None:
        """Wait until those who are there have nothing to do, and begin to count."""
        end = time.monotonic() + _PATIENCE
        while True:
            before, began = self._spent(), time.monotonic()
            time.sleep(1.0)
            self._before = self._spent()
            more = sum(self._before.values()) - sum(before.get(pid, 0.0) for pid in self._before)
            if more < _CALM * (time.monotonic() - began) or time.monotonic() > end:
                return

    def look(self) -> None:
        """Note what everybody has spent so far."""
        for pid, spent in self._spent().items():
            is_daemon = self._last[pid][0] if pid in self._last else _is_daemon(pid)
            self._last[pid] = is_daemon, spent - self._before.get(pid, 0.0)

    @property
    def spent(self) -> Spent:
        """What was spent, as far as it was seen."""
        last = self._last.values()
        return Spent(*(sum(spent for is_daemon, spent in last if is_daemon == kind) for kind in (False, True)))

    def _spent(self) -> dict[int, float]:
        return {process.pid: process.cpu for process in self._tree.look() if process.state != "Z"}


def _is_daemon(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    program, *arguments = command.split(b"\0")
    script = next((one for one in arguments if one.endswith(b".py")), b"")
    return (
        program.startswith(_TITLES)
        or program.endswith(_PROGRAMS)
        or (any(part in script for part in _SCRIPTS) and not script.endswith(b"_worker.py"))
    )

"""The process that drives a study, identified so that a reused process id is not mistaken for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import final

import msgspec


@final
class Holder(msgspec.Struct, frozen=True):
    """A process: its host, its id, and when it started according to the system.

    ``place`` identifies the boot and the container within which the id is valid, because hosts can share a name.
    """

    host: str
    pid: int
    started: str
    place: str = ""

    @classmethod
    def this_process(cls) -> Holder:
        """Return the holder of the current process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, process_started(pid) or "", _place())

    def is_dead(self, host: str, place: str) -> bool:
        """Return whether the process has certainly exited; False if it belongs to another host or place."""
        if (self.host, self.place) != (host, place):
            return False
        started = process_started(self.pid)
        return started is None or (started != "" and self.started not in ("", started))

    def is_running(self, host: str, place: str) -> bool:
        """Return whether the process certainly runs and is not suspended, even if its heartbeat is late."""
        if (self.host, self.place) != (host, place) or not self.started:
            return False
        return process_started(self.pid) == self.started and not _is_stopped(self.pid)


def process_started(pid: int) -> str | None:
    """Return when a process started, as the system writes it: None if it has exited, "" if that is hidden."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        pass
    if Path("/proc/self/stat").exists():
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def _started_by_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = stat[stat.rindex(")") + 2 :].split()  # the command's name, in brackets, may contain anything
    return None if fields[0] in "ZX" else fields[19]


def _is_stopped(pid: int) -> bool:
    """Return whether a process is suspended (Ctrl-Z, SIGSTOP, a debugger); True if that is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return True
    return stat[stat.rindex(")") + 2] in "Tt"


def _started_by_ps(pid: int) -> str | None:
    ps = shutil.which("ps")
    if ps is None:
        return ""
    command = [ps, "-o", "state=,lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    state, _, started = answer.strip().partition(" ")
    return None if state.startswith("Z") else started.strip()


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""

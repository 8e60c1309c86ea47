"""Measures a program and everything it starts: wall time, CPU seconds, peak memory and bytes written to disk."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, final

from bench.speed import processes

ROOT = Path(__file__).parents[2]
PERIOD = 0.25  # seconds between two looks at the processes
MEMORY_PERIOD = 1.0  # seconds between two looks at their memory, or more:
MEMORY_SHARE = 0.01  # looking at memory takes at most this share of a core, the same for all
PATIENCE = 15.0  # seconds for what a program leaves running, before it is ended

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Measured(NamedTuple):
    """What a program took, from its start to its exit."""

    wall: float
    cpu: float  # seconds of all its processes
    memory: int  # bytes: the highest sum of the proportional set sizes of all its processes
    disk: int  # bytes that went to the block layer
    looking: float  # CPU seconds that measuring took meanwhile
    left: int  # processes that did not end after it by themselves


class ProgramError(Exception):
    """A measured program failed; its last words are the message."""


def measure(module: str, *arguments: object, log: Path, env: Mapping[str, str] | None = None) -> Measured:
    """Run ``python -m module`` in a fresh process, and return when all processes that it started have ended."""
    watch = _Watch()
    written, spent = processes.written(), time.process_time()
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, **ONE_THREAD, **(env or {})}
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            _until_exit(process.pid, watch)
            wall = time.perf_counter() - began
        finally:
            process.returncode, left = watch.end(process.pid)
    if process.returncode:
        raise ProgramError(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    looking = time.process_time() - spent
    return Measured(wall, watch.cpu, watch.memory, processes.written() - written, looking, left)


def _until_exit(pid: int, watch: _Watch) -> None:
    """Look again and again; the exit itself is noticed at once."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not poll.poll(PERIOD * 1000):
            watch.look(but=pid)
    finally:
        os.close(descriptor)


@final
class _Watch:
    """Follows the tree of processes of one program."""

    def __init__(self) -> None:
        self.memory = 0
        self._tree = processes.Tree()
        self._seen: dict[int, float] = {}
        self._reaped = 0.0
        self._due = 0.0

    @property
    def cpu(self) -> float:
        """CPU seconds by two counts, of which each can only miss something.

        What was waited for is exact, but Ray does not wait for its workers; what was seen last misses the end
        of every process, up to a period.
        """
        return max(self._reaped, sum(self._seen.values()))

    def look(self, but: int = 0) -> list[processes.WorkerProcess]:
        """Check every process, reap those that ended and have no other parent, and return the others."""
        found = self._tree.look()
        self._seen |= {process.pid: process.cpu for process in found}
        now = time.monotonic()
        if now >= self._due:
            self.memory = max(self.memory, sum(processes.memory(process.pid) for process in found))
            self._due = now + max(MEMORY_PERIOD, (time.monotonic() - now) / MEMORY_SHARE)
        for process in found:
            if process.parent == os.getpid() and process.state == "Z" and process.pid != but:
                self._wait(process.pid)
        return [process for process in found if process.state != "Z"]

    def end(self, main: int) -> tuple[int, int]:
        """Wait for the main process and all others; return its status, and how many had to be ended."""
        process = processes.stat(main)
        if process is not None and process.state != "Z":  # we are being interrupted
            os.kill(main, signal.SIGKILL)
        status = self._wait(main)
        deadline = time.monotonic() + PATIENCE
        left: set[int] = set()
        while found := self.look():
            if time.monotonic() > deadline:
                left |= {process.pid for process in found}
                for process in found:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)
        return status, len(left)

    def _wait(self, pid: int) -> int:
        _, status, usage = os.wait4(pid, 0)
        self._reaped += usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status)

"""A driver as a process of its own, and the processes that belong to a run, by a mark in their environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).with_name("program.py")
MARK = "HOPTREE_FAULTS_RUN"
_STEP = 0.01  # seconds between two looks
_MUCH = 100_000  # bytes of output that are looked at from either end
_BUGS = ("ProtocolError", "InvariantError")  # errors of Hoptree that say: this cannot have happened


class Ended(NamedTuple):
    """How a driver ended: its exit code, and what it said."""

    code: int
    text: str

    @property
    def refusal(self) -> str:
        """The error in one line if it is a clear one: of a class of Hoptree's, without a traceback; else ""."""
        if "Traceback (most recent call last)" in self.text:
            return ""
        found = re.findall(r"^(\w+Error): (.+)$", self.text, re.MULTILINE)
        return f"{found[-1][0]}: {found[-1][1]}" if found and found[-1][0] not in _BUGS else ""

    @property
    def last_line(self) -> str:
        """What it said last, shortened."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
        return (errors or lines or ["it said nothing"])[-1][:300]


class Driver:
    """A process that runs the program of the study."""

    def __init__(
        self, number: int, study: str, environment: dict[str, str], logs: Path, pipe: bool = False
    ) -> None:
        self.number = number
        self.study = study
        self.log = logs / f"driver-{number}.log"
        self.forgiven: set[int] = set()  # exit codes that we have caused
        self.judged = False
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe else log,
                stderr=subprocess.PIPE if pipe else log,
                start_new_session=True,
                preexec_fn=_heed_hang_ups,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, or is stopped."""
        return self.process.poll() is None

    def send(self, number: signal.Signals, group: bool = False) -> None:
        """Send a signal, as a terminal does if to the group; one that ends it is no fault of its own."""
        self.forgiven.add(-number)
        if number == signal.SIGINT:
            self.forgiven |= {130, 1}
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def workers(self) -> list[int]:
        """Return the processes of its workers."""
        return [worker for starter in self.starters() for worker in children(starter)]

    def starters(self) -> list[int]:
        """Return the processes that start its workers."""
        return [pid for pid in children(self.pid) if b"hoptree.worker.starter" in _read(pid, "cmdline")]

    def wait(self, seconds: float) -> Ended | None:
        """Wait for its end; None if it takes too long."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        if self.process.poll() is None:
            return None
        return Ended(self.process.returncode, self.said())

    def said(self) -> str:
        """Return what it has printed so far; the beginning and the end, if it is very much."""
        with self.log.open("rb") as file:
            begin = file.read(_MUCH)
            size = file.seek(0, os.SEEK_END)
            if size <= len(begin):
                return begin.decode(errors="replace")
            file.seek(max(len(begin), size - _MUCH))
            return f"{begin.decode(errors='replace')}\n…\n{file.read().decode(errors='replace')}"

    def kill(self) -> None:
        """End it at once, and its workers with it."""
        self.send(signal.SIGKILL)
        self.process.wait()


def _heed_hang_ups() -> None:
    """Undo what a campaign under ``nohup`` would hand on."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def children(parent: int) -> list[int]:
    """Return the children of a process that are no zombies."""
    found = []
    for pid in _pids():
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if len(fields) > 1 and int(fields[1]) == parent and fields[0] != b"Z":
            found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return bool(fields) and fields[0] != b"Z"


def marked(mark: str, patience: float = 0.0) -> list[int]:
    """Return the processes with a mark; they have some time to end."""
    text = f"{MARK}={mark}".encode()
    end = time.monotonic() + patience
    while True:
        found = [pid for pid in _pids() if text in _read(pid, "environ").split(b"\0")]
        if not found or time.monotonic() >= end:
            return found
        time.sleep(_STEP)


def name_of(pid: int) -> str:
    """Return the command of a process."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[:120]


def end(pids: list[int]) -> None:
    """Kill processes of ours that should have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _read(pid: int, file: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{file}", "rb") as opened:
            return opened.read()
    except OSError:
        return b""

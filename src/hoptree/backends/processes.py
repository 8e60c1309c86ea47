"""Worker processes as the driver sees them: how they are started, what they are doing, how they ended."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import msgspec

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle
from hoptree.worker.__main__ import WorkerSetup
from hoptree.worker.messages import Quit, WorkerCommand, WorkerMessage, decode_news, encode


@final
class WorkerProcess(WorkerHandle):
    """One worker process of this machine."""

    def __init__(self, name: str, setup: WorkerSetup) -> None:
        super().__init__(name)
        self._kills = _oom_kills()
        self._worked = 0.0  # seconds of processor time, when its heart was listened to last
        self._had, self._asked, self._worked_then = 0.0, time.monotonic(), 0.0
        ours, theirs = make_channel()
        self._beats, beating = make_channel()
        passed = [theirs.fileno(), beating.fileno()]
        self._process = subprocess.Popen(  # noqa: S603 our own interpreter and module
            [sys.executable, "-m", "hoptree.worker", *map(str, passed)],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=_inherited(1),
            stderr=_inherited(2),
            start_new_session=True,  # a group of its own, with all that it starts
        )
        theirs.close()
        beating.close()
        self.channel: Connection[Any, Any] = Connection(ours.detach())
        with suppress(OSError):  # it is gone already
            self.channel.send_bytes(encode(setup))

    def send(self, command: WorkerCommand) -> None:
        """Say something; a worker that is gone is noticed when its channel is read."""
        with suppress(OSError):
            self.channel.send_bytes(encode(command))

    def receive(self) -> WorkerMessage | None:
        """Return its next message; None when it is gone."""
        try:
            news: WorkerMessage = decode_news(self.channel.recv_bytes())
        except (EOFError, OSError):
            return None
        except msgspec.DecodeError:  # the user's code has written to a descriptor that is not its own
            self.kill()
            return None
        return news

    def heard(self) -> bool:
        """Return whether its heart beats, or its code works without letting other threads run.

        A process that waits for a processor is alive as well; one that was stopped is not.
        """
        with suppress(OSError):
            if self._beats.recv(4096, socket.MSG_DONTWAIT):
                return True
        before, (state, self._worked) = self._worked, _activity(self._process.pid)
        return state == "R" or self._worked > before

    def seconds_had(self) -> float:
        """Return the seconds that it has had so far; to be asked every second or so."""
        now, (state, worked) = time.monotonic(), _activity(self._process.pid)
        self._had += time_had(now - self._asked, state, worked - self._worked_then)
        self._asked, self._worked_then = now, worked
        return self._had

    def kill(self) -> None:
        """End it and all that it started, at once; one that the system does not let go is waited for nowhere."""
        if self._process.returncode is None:  # else its number may be another's
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def ask_to_end(self, at_once: bool) -> None:
        """Let it end, or end it; ``end`` waits for that."""
        self.send(Quit())
        if at_once:
            self.kill()

    def end(self, patience: float = 5.0) -> None:
        """Wait until it has ended, or end it."""
        if not self._await_end(patience):
            self.kill()
        self._reap()

    @property
    def ended(self) -> bool:
        """Whether it has ended; what it started has ended with it."""
        if self._process.returncode is None and self._await_end(0.0):
            self._reap()
        return self._process.returncode is not None

    def reap(self) -> WorkerExit:
        """Return how a worker ended whose channel is closed."""
        if not self._await_end(5.0):  # the user's code has closed the channel
            self.kill()
        code = self._reap()
        if code == -signal.SIGKILL and _oom_kills() > self._kills:
            return WorkerExit("ran out of memory and was ended by the system", "user")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        outside = -code in (signal.SIGKILL, signal.SIGTERM)  # somebody's doing: the system's, or its own code's
        return WorkerExit(f"died with {how}", "system" if outside else "user", known=not outside)

    def _await_end(self, patience: float) -> bool:
        """Wait until it has ended, and leave it so: the number of its group is not given to another before."""
        deadline = time.monotonic() + patience
        while self._process.returncode is None:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True

    def _reap(self) -> int:
        self.kill()  # what it has started, and left behind
        with suppress(subprocess.TimeoutExpired):  # the system does not let it go
            self._process.wait(5.0)
        self.channel.close()
        self._beats.close()
        return self._process.returncode if self._process.returncode is not None else -signal.SIGKILL


def time_had(passed: float, state: str, worked: float) -> float:
    """Return how many of the seconds that passed a process had: one that could run had those in which it worked."""
    return min(passed, worked) if state == "R" else passed


def make_channel() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel, neither of which is where a program expects its input or output."""
    pair = socket.socketpair()
    free = [socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)) for end in pair]
    for end in pair:
        end.close()
    return free[0], free[1]


def _inherited(descriptor: int) -> int | None:
    """Return what a worker writes to: what we write to, unless we were started without."""
    try:
        os.fstat(descriptor)
    except OSError:
        return subprocess.DEVNULL
    return None


def _activity(pid: int) -> tuple[str, float]:
    """Return the state of a process, in the system's letters, and its processor time; "" where that is hidden."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", 0.0
    return fields[0], (float(fields[11]) + float(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_setup(
    name: str,
    threads: int,
    trainer: bytes,
    dataset: Path,
    states: str,
    slots: list[Path],
    heartbeat: float = beat_interval(LIMIT),
) -> WorkerSetup:
    """Return what a worker is told before anything else."""
    return WorkerSetup(
        name,
        os.getpid(),
        sys.path,
        str(Path.cwd()),
        threads,
        trainer,
        str(dataset),
        states,
        [str(folder) for folder in slots],
        heartbeat,
    )


def _oom_kills() -> int:
    """Return how often the system has ended a process for want of memory, as far as it tells."""
    count = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)
            count += int(found.group(1)) if found else 0
    return count

"""Worker processes of this machine: how the driver starts them, watches them, and learns how they ended."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

import msgspec

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle
from hoptree.backends.worker_starter import modules_of, start_process
from hoptree.worker.__main__ import WorkerSetup
from hoptree.worker.messages import Quit, WorkerCommand, WorkerMessage, decode_message, encode


@dataclass(frozen=True)
class ProcessOptions:
    """How worker processes run.

    ``heartbeat`` is the time between two heartbeats in seconds. Workers take turns at ``gpus``, each a value of
    CUDA_VISIBLE_DEVICES; without any, that variable is left alone. ``memory`` is the limit of a worker in bytes, 0
    for none.
    """

    heartbeat: float = beat_interval(LIMIT)
    gpus: Sequence[str] = ()
    memory: int = 0

    def gpu(self, seat: int) -> str:
        """Return the GPU of the worker at a seat; more workers than GPUs share them."""
        return self.gpus[seat % len(self.gpus)] if self.gpus else ""


@final
class WorkerProcess(WorkerHandle):
    """One worker process of this machine; workers of even and odd ``turn``s have different hash seeds."""

    def __init__(self, name: str, setup: WorkerSetup, turn: int = 0) -> None:
        super().__init__(name)
        self._oom_kills_before = _oom_kills()
        self._cpu_seconds = 0.0  # at the last check of its heartbeat
        self._active, self._active_at, self._cpu_then = 0.0, time.monotonic(), 0.0
        ours, theirs = make_channel()
        self._heartbeats, beating = make_channel()
        self._process = start_process(
            "hoptree.worker.__main__",
            [theirs, beating],
            modules=modules_of(setup.trainer),
            threads=setup.threads,
            turn=turn,
        )
        theirs.close()
        beating.close()
        self.channel: Connection[Any, Any] = Connection(ours.detach())
        with suppress(OSError):  # it has exited already
            self.channel.send_bytes(encode(setup))

    def send(self, command: WorkerCommand) -> None:
        """Send a command; a worker that has exited is noticed when its channel is read."""
        with suppress(OSError):
            self.channel.send_bytes(encode(command))

    def receive(self) -> WorkerMessage | None:
        """Return its next message; None if it has exited."""
        try:
            message: WorkerMessage = decode_message(self.channel.recv_bytes())
        except (EOFError, OSError):
            return None
        except msgspec.DecodeError:  # the user's code has written to this descriptor
            self.kill()
            return None
        return message

    def has_beaten(self) -> bool:
        """Return whether it has sent a heartbeat, or its code runs without letting other threads run.

        A process that waits for a CPU is alive as well; one that was stopped is not.
        """
        with suppress(OSError):
            if self._heartbeats.recv(4096, socket.MSG_DONTWAIT):
                return True
        before, (state, self._cpu_seconds) = self._cpu_seconds, _activity(self._process.pid)
        return state == "R" or self._cpu_seconds > before

    def active_seconds(self) -> float:
        """Return the seconds since it was created, without those it waited for a CPU; call it every second."""
        now, (state, cpu_seconds) = time.monotonic(), _activity(self._process.pid)
        self._active += active_time(now - self._active_at, state, cpu_seconds - self._cpu_then)
        self._active_at, self._cpu_then = now, cpu_seconds
        return self._active

    def kill(self) -> None:
        """Kill it and all that it started; never wait, even for a process that the system cannot end yet."""
        self._process.kill()

    def ask_to_end(self, at_once: bool) -> None:
        """Let it quit, or kill it; ``end`` waits for that."""
        self.send(Quit())
        if at_once:
            self.kill()

    def end(self, patience: float = 5.0) -> None:
        """Wait until it has ended; kill it after ``patience`` seconds."""
        if not self._process.has_exited(patience):
            self.kill()
        self._reap()

    @property
    def ended(self) -> bool:
        """Whether it has ended, and with it all that it started."""
        if self._process.returncode is None and self._process.has_exited():
            self._reap()
        return self._process.returncode is not None

    def reap(self) -> WorkerExit:
        """Return how a worker ended whose channel was closed."""
        if not self._process.has_exited(5.0):  # the user's code has closed the channel
            self.kill()
        code = self._reap()
        if code == -signal.SIGKILL and _oom_kills() > self._oom_kills_before:
            return WorkerExit("ran out of memory and was killed by the system", "memory")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        outside = -code in (signal.SIGKILL, signal.SIGTERM)  # sent by the system, or by its own code
        return WorkerExit(f"died with {how}", "system" if outside else "user", known=not outside)

    def _reap(self) -> int:
        code = self._process.reap()
        self.channel.close()
        self._heartbeats.close()
        return code


def active_time(elapsed: float, state: str, cpu_seconds: float) -> float:
    """Return the elapsed seconds without those a process waited for a CPU; if runnable, its CPU time at most."""
    return min(elapsed, cpu_seconds) if state == "R" else elapsed


def make_channel() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel, whose descriptors are none of the standard streams."""
    pair = socket.socketpair()
    ends = [socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)) for end in pair]
    for end in pair:
        end.close()
    return ends[0], ends[1]


def _activity(pid: int) -> tuple[str, float]:
    """Return the state letter and the CPU time of a process; "" where the system hides them."""
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
    """Return the first message to a worker."""
    return WorkerSetup(
        name,
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
    """Return how many processes the system has killed because it was out of memory, as far as it reports that."""
    count = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)
            count += int(found.group(1)) if found else 0
    return count

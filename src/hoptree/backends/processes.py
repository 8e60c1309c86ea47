"""Worker processes as the driver sees them: how they are started, what they are doing, how they ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

from hoptree.backends.member import Death, Member
from hoptree.worker.__main__ import SetUp
from hoptree.worker.messages import Command, News, Quit, decode_news, encode


@final
class Process(Member):
    """One worker process of this machine."""

    def __init__(self, name: str, setup: SetUp) -> None:
        super().__init__(name)
        self._kills = _oom_kills()
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(  # noqa: S603 our own interpreter and module
            [sys.executable, "-m", "hoptree.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.channel: Connection[Any, Any] = Connection(ours.detach())
        self.channel.send_bytes(encode(setup))

    def send(self, command: Command) -> None:
        """Say something; a worker that is gone is noticed when its channel is read."""
        with suppress(OSError):
            self.channel.send_bytes(encode(command))

    def receive(self) -> News | None:
        """Return its next message; None when it is gone."""
        try:
            news: News = decode_news(self.channel.recv_bytes())
        except (EOFError, OSError):
            return None
        return news

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def ask_to_end(self, at_once: bool) -> None:
        """Let it end, or end it; ``end`` waits for that."""
        self.send(Quit())
        if at_once:
            self.kill()

    def end(self, patience: float = 5.0) -> None:
        """Wait until it has ended, or end it."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.channel.close()

    def bury(self) -> Death:
        """Return how a worker ended whose channel is closed."""
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:  # it closed its channel and lives on: a fork of the user's holds it up
            self.kill()
            code = self._process.wait()
        self.channel.close()
        if code == -signal.SIGKILL and _oom_kills() > self._kills:
            return Death("ran out of memory and was ended by the system", "user")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        outside = -code in (signal.SIGKILL, signal.SIGTERM)  # the code that it ran cannot have done that
        return Death(f"died with {how}", "system" if outside else "user")


def make_setup(name: str, threads: int, trainer: bytes, dataset: Path, states: str, slots: list[Path]) -> SetUp:
    """Return what a worker is told before anything else."""
    return SetUp(
        name,
        os.getpid(),
        sys.path,
        str(Path.cwd()),
        threads,
        trainer,
        str(dataset),
        states,
        [str(folder) for folder in slots],
    )


def _oom_kills() -> int:
    """Return how often the system has ended a process for want of memory, as far as it tells."""
    count = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)
            count += int(found.group(1)) if found else 0
    return count

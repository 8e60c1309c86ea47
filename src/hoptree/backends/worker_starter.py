"""Starts processes through starters, which have imported the framework: in milliseconds instead of seconds.

A starter is a child of this process; what it starts are its children. It stays for a while after a study, so that
the next one starts at once. Two starters take turns, because all forks of one have the same hash seed: code whose
result depends on the order of a set must not give the same bits in all workers by chance.
"""

from __future__ import annotations

import atexit
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias, final

import msgspec

from hoptree.worker.starter import (
    MESSAGE_BYTES,
    Exited,
    ReapProcess,
    Started,
    StarterMessage,
    StarterRequest,
    StarterSetup,
    StartProcess,
)

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_IGNORED = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "PWD", "OLDPWD", "_"}  # variables that no library reads
_TURNS = 2
_MOST = 4  # starters at the same time
_LOOK = 0.05  # seconds
_decoder = msgspec.msgpack.Decoder(StarterMessage)

Purpose: TypeAlias = Literal["train", "verify"]
_Key: TypeAlias = tuple[object, ...]


@final
class StartedProcess:
    """A process that a starter runs; its process group has the same number."""

    def __init__(self, starter: _Starter, number: int) -> None:
        self._starter = starter
        self._number = number
        self.returncode: int | None = None  # once it was reaped

    @property
    def pid(self) -> int:
        """Its number; that of the starter as long as it imports."""
        return self._starter.find(self._number) or self._starter.pid

    def kill(self) -> None:
        """Kill it and all that it started; does not wait for its end."""
        if self.returncode is not None or self._starter.gone:  # another process may have its number
            return
        pid = self._starter.find(self._number, patience=1.0)
        if pid is None:
            self._starter.kill()  # it imports, or is frozen
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def has_exited(self, patience: float = 0.0) -> bool:
        """Return whether it has exited within so many seconds; it is not reaped yet."""
        return self.returncode is not None or self._starter.has_exited(self._number, patience)

    def reap(self, patience: float = 5.0) -> int:
        """Kill what is left of it, and return its exit code; that of SIGKILL if nobody knows it."""
        self.kill()
        self.has_exited(patience)  # else the system cannot end it yet
        if self.returncode is None:
            self.returncode = self._starter.reap(self._number)
        return self.returncode


def modules_of(trainer: bytes) -> list[str]:
    """Return what a starter imports for workers with this pickled trainer."""
    uses_torch = b"torch" in trainer and "torch" in sys.modules
    return ["hoptree.worker.loop", *(["hoptree.trainers.torch_preload"] if uses_torch else [])]


def start_process(
    module: str,
    channels: Sequence[socket.socket],
    *,
    modules: list[str],
    threads: int,
    turn: int,
    purpose: Purpose = "train",
) -> StartedProcess:
    """Start a process that runs ``main`` of a module with the descriptors of these channels.

    Math libraries use so many ``threads``. Processes of even and odd ``turn``s, and of different purposes, have
    different hash seeds.
    """
    environment = os.environ | dict.fromkeys(_THREADS, str(threads))
    paths = [os.path.abspath(path) for path in sys.path]
    relevant = tuple(sorted(item for item in environment.items() if item[0] not in _IGNORED))
    key = (sys.executable, tuple(paths), tuple(modules), relevant, _limits(), purpose, turn % _TURNS)
    with _lock:
        for other in [other for other, starter in _starters.items() if not starter.usable]:
            _starters.pop(other).close()
        starter = _starters.pop(key, None) or _Starter(environment, paths, modules)
        idle = [other for other, starter in _starters.items() if not starter.requested]
        for other in idle[: max(0, len(_starters) + 1 - _MOST)]:
            _starters.pop(other).close()
        _starters[key] = starter  # the last one is the one that was used last
        return starter.start(module, channels)


def end_starters() -> None:
    """End all starters, and with them what they run."""
    with _lock:
        while _starters:
            _starters.popitem()[1].close()


@final
class _Starter:
    def __init__(self, environment: Mapping[str, str], paths: list[str], modules: list[str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 our own interpreter and module
                [sys.executable, "-m", "hoptree.worker.starter", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if _is_open(2) else subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
        self.pid = self._process.pid
        self.pids: dict[int, int] = {}  # by number, until they are reaped
        self._exited: dict[int, int] = {}
        self._numbers = 0
        self.requested = 0  # processes that were requested and not reaped; they may not have started yet
        self._imported = False  # as far as is known
        self._reading = threading.Lock()
        self.gone = False
        self._send(StarterSetup(paths, modules))

    @property
    def usable(self) -> bool:
        """Whether it takes requests."""
        self._read(0.0)
        return not self.gone

    def start(self, module: str, channels: Sequence[socket.socket]) -> StartedProcess:
        """Request a process; it starts when the imports are done."""
        self._numbers += 1
        self.requested += 1
        with open(os.devnull, "wb") as nowhere:
            streams = [descriptor if _is_open(descriptor) else nowhere.fileno() for descriptor in (1, 2)]
            self._send(StartProcess(self._numbers, module), [channel.fileno() for channel in channels] + streams)
        return StartedProcess(self, self._numbers)

    def find(self, number: int, patience: float = 0.0) -> int | None:
        """Return the process with a number; None if it has not started.

        Waits so many seconds for it, but not for a starter that still imports.
        """
        if number not in self.pids:
            self._read(0.0)
            if self._imported:
                self._read(patience, until=lambda: number in self.pids)
        return self.pids.get(number)

    def has_exited(self, number: int, patience: float) -> bool:
        """Return whether a process has exited within so many seconds."""
        self._read(patience, until=lambda: number in self._exited)
        return number in self._exited or self.gone

    def reap(self, number: int) -> int:
        """Return the exit code of a process, and let its number be used again."""
        self._send(ReapProcess(number))
        self.requested -= 1
        self.pids.pop(number, None)
        return self._exited.pop(number, -signal.SIGKILL)

    def kill(self) -> None:
        """Kill it, and with it all that it has started."""
        self.gone = True
        self._process.kill()

    def close(self) -> None:
        """Let it end, and wait for that."""
        self.gone = True
        self._control.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Close this end without waiting: in a fork, the starter belongs to the parent."""
        self._control.close()
        self._process.returncode = 0  # it is not a child of this process

    def _send(self, message: StarterSetup | StarterRequest, passed: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [msgspec.msgpack.encode(message)], passed)
        except OSError:
            self.gone = True

    def _read(self, patience: float, until: Callable[[], bool] | None = None) -> None:
        """Read the messages that have arrived; wait so many seconds until something holds.

        Several threads may do so: each looks again now and then, as another may have read what it waits for.
        """
        deadline = time.monotonic() + patience
        while not self.gone and not (until is not None and until()):
            left = deadline - time.monotonic()
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            if not poll.poll(1000 * min(max(left, 0.0), _LOOK)) and left <= 0.0:
                return
            with self._reading, suppress(BlockingIOError):
                self._take(self._control.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT))

    def _take(self, data: bytes) -> None:
        if not data:
            self.gone = True
            return
        match _decoder.decode(data):
            case Started(number, pid):
                self.pids[number] = pid
                self._imported = True
            case Exited(number, code):
                self._exited[number] = code


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _limits() -> tuple[object, ...]:
    """Return what a process inherits besides variables: limits, processors, priority."""
    limits = [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if "RLIMIT_" in name]
    return tuple(limits), tuple(sorted(os.sched_getaffinity(0))), os.getpriority(os.PRIO_PROCESS, 0)


def _abandon() -> None:
    global _lock
    _lock = threading.Lock()
    for starter in _starters.values():
        starter.abandon()
    _starters.clear()


_lock = threading.Lock()
_starters: dict[_Key, _Starter] = {}
atexit.register(end_starters)
os.register_at_fork(after_in_child=_abandon)

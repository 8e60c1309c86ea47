"""Starts worker processes by forking: ``python -m hoptree.worker.starter CONTROL``, a descriptor.

It imports the framework once; every worker is a fork of it, which takes milliseconds where an import takes seconds.
It runs no code of the user, so a fork is as good as a new interpreter. It has one thread: a fork of a process with
several may inherit a lock that nobody releases. If it cannot promise both, its forks start a new interpreter each.
"""

from __future__ import annotations

import array
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from hoptree.worker.children import die_with

IDLE_SECONDS = 60.0  # a starter that has no process and gets no request for so long ends
MESSAGE_BYTES = 1 << 16
_DESCRIPTORS = 4  # of a request: channel, heartbeat (or the channel again), output, errors


class StarterSetup(msgspec.Struct, frozen=True, tag=True):
    """The first message: where to import from, and which modules."""

    paths: list[str]
    modules: list[str]


class StartProcess(msgspec.Struct, frozen=True, tag=True):
    """Start a process that runs ``main`` of a module; its descriptors come along. ``Started`` answers."""

    number: int
    module: str


class ReapProcess(msgspec.Struct, frozen=True, tag=True):
    """Remove a process that has exited: until then, no other process gets its number."""

    number: int


class Started(msgspec.Struct, frozen=True, tag=True):
    """A process has started."""

    number: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A process has exited with a code; a negative one is that of a signal."""

    number: int
    code: int


StarterRequest: TypeAlias = StartProcess | ReapProcess
StarterMessage: TypeAlias = Started | Exited


def main(control: socket.socket) -> None:
    """Import, and serve the driver until it has exited or needs nothing for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    setup = msgspec.msgpack.decode(control.recv(MESSAGE_BYTES), type=StarterSetup)
    sys.path[:] = setup.paths
    may_fork = _preload(setup.modules)
    gc.collect()
    gc.freeze()  # forks share these objects; collecting them would copy their memory
    decoder = msgspec.msgpack.Decoder(StarterRequest)
    pids: dict[int, int] = {}
    running: dict[int, int] = {}  # process descriptor to number
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        ready = poll.poll(None if pids else IDLE_SECONDS * 1000)
        if not ready and not pids:
            return
        for descriptor, _ in ready:
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                os.close(descriptor)
                number = running.pop(descriptor)
                _send(control, Exited(number, _exit_code(pids[number])))
                continue
            data, passed = receive(control)
            if not data:
                return  # the driver has exited, and its workers end with this process
            match decoder.decode(data):
                case StartProcess(number, module):
                    pid = _start(control, module, passed, may_fork)
                    pids[number] = pid
                    running[watched := os.pidfd_open(pid)] = number
                    poll.register(watched, select.POLLIN)
                    _send(control, Started(number, pid))
                case ReapProcess(number):
                    with suppress(ChildProcessError):
                        os.waitpid(pids.pop(number), 0)


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and its descriptors; empty if the other side has exited."""
    passed = array.array("i")
    try:
        data, ancillary, _, _ = control.recvmsg(MESSAGE_BYTES, socket.CMSG_LEN(_DESCRIPTORS * passed.itemsize))
    except ConnectionError:
        return b"", []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            passed.frombytes(content[: len(content) - len(content) % passed.itemsize])
    return data, list(passed)


def _preload(modules: Sequence[str]) -> bool:
    """Import modules; return whether a fork of this process may be a worker."""
    for module in modules:
        with suppress(ImportError):  # a worker raises the error again, with its story
            importlib.import_module(module)
    from hoptree.identity.libraries import is_library

    if len(os.listdir("/proc/self/task")) > 1:
        return False
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    named = [file for file in files if isinstance(file, str) and os.path.isabs(file)]
    return all(is_library(None, file) for file in named)  # a user's file may have a library's name


def _start(control: socket.socket, module: str, passed: Sequence[int], may_fork: bool) -> int:
    """Fork, and return the process; descriptors are those of its channels, its output and its errors."""
    starter = os.getpid()
    pid = os.fork()
    if pid:
        for descriptor in passed:
            os.close(descriptor)
        return pid
    code = 1
    try:
        _become_process(control, module, passed, starter, may_fork)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _become_process(
    control: socket.socket, module: str, passed: Sequence[int], starter: int, may_fork: bool
) -> None:
    os.setsid()  # its own process group, which includes all that it starts
    die_with(starter)
    control.close()
    *channels, output, errors = passed
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    if not may_fork:
        for channel in channels:
            os.set_inheritable(channel, True)
        os.execv(sys.executable, [sys.executable, "-m", module, *map(str, channels)])  # noqa: S606 our own module
    gc.unfreeze()
    _seed_generators()
    importlib.import_module(module).main(*channels)


def _seed_generators() -> None:
    """Give global generators that were seeded at import another seed in every process, as a new interpreter has.

    Python seeds ``random`` again after a fork; torch's generator has the same seed in every process anyway.
    """
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


def _exit_code(pid: int) -> int:
    """Return the exit code of a process that has exited, without reaping it."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert result is not None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _send(control: socket.socket, message: StarterMessage) -> None:
    with suppress(ConnectionError):  # the driver has exited, which the next request shows
        control.send(msgspec.msgpack.encode(message))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

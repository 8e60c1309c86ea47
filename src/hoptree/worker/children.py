"""Process lifetimes: a worker ends with its starter, and processes of the user's code end with their worker."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def close_in_children(*descriptors: int) -> None:
    """Close the worker's channels in all processes that it starts or forks."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=lambda: _close(descriptors))


def exit_if_forked(worker: int) -> None:
    """End this process if it is a fork of the worker that has returned from the user's code."""
    if os.getpid() != worker:
        os._exit(0)  # the worker itself continues, and reports the result of the unit


def end_children_after_worker() -> None:
    """Start a process that kills this one's process group when this one has ended, however it ends.

    It is not a child of this process, so that the user's code may wait for all of its children. Where the system
    has no process descriptors, only the driver kills the group.
    """
    worker = os.getpid()
    if os.getpgid(0) != worker or not hasattr(os, "pidfd_open"):
        return
    try:
        watched = os.pidfd_open(worker)
    except OSError:
        return
    child = os.fork()
    if child:
        os.close(watched)
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    with suppress(BaseException):
        _watch(watched, worker)
    os._exit(0)


def _watch(watched: int, worker: int) -> None:
    os.setsid()  # leave the group that it kills
    os.closerange(0, watched)
    os.closerange(watched + 1, os.sysconf("SC_OPEN_MAX"))
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    os.killpg(worker, signal.SIGKILL)


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)

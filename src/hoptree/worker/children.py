"""Processes that the user's code starts in a worker: they neither speak for the worker nor outlive it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


def close_in_children(*descriptors: int) -> None:
    """Keep the worker's channels to itself: whatever it starts or forks does not have them."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=lambda: _close(descriptors))


def end_copy(worker: int) -> None:
    """End this process if it is a fork of the worker that has come back from the user's code."""
    if os.getpid() != worker:
        os._exit(0)  # the worker itself goes on, and says what came of the unit


def end_children_after_worker() -> None:
    """Start a process that ends this one's process group when this one has ended, however it ends.

    It is no child of this process, so that the user's code may wait for its own children. Where the system cannot
    watch a process by a descriptor, the driver alone ends the group.
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
    os.setsid()  # not in the group that it ends
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

"""What user code does that it should not: one function for each act, done in the middle of a unit.

This file is imported by the program of the study, in its workers too, so it imports nothing of this folder.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

LONG = 600.0  # seconds: longer than any run lasts
BIG = 60_000_000  # characters of an exception's text


def raise_error() -> None:
    raise ValueError("this unit does not work")


def raise_much() -> None:
    raise ValueError("x" * BIG)


def exit_at_once() -> None:
    os._exit(3)


def call_exit() -> None:
    sys.exit(4)


def crash() -> None:
    ctypes.string_at(0)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_go_on() -> None:
    os.fork()


def leave_children() -> None:
    subprocess.Popen(["sleep", str(LONG)])
    subprocess.Popen(["sh", "-c", f"sleep {LONG} & sleep {LONG}"])


def leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(LONG,)).start()


def close_output() -> None:
    for descriptor in (1, 2):
        with suppress(OSError):  # another trial has closed it in this worker
            os.close(descriptor)


def close_everything() -> None:
    os.closerange(3, 256)


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fill_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
    kept: list[Any] = []
    try:
        while True:
            kept.append(bytearray(16 << 20))
    finally:
        kept.clear()


def hang() -> None:
    while True:
        pass


def interrupt_itself() -> None:
    os.kill(os.getpid(), signal.SIGINT)


ACTS: dict[str, Callable[[], None]] = {
    "raises": raise_error,
    "raises-much": raise_much,
    "exits": exit_at_once,
    "calls-exit": call_exit,
    "crashes": crash,
    "kills-itself": kill_itself,
    "forks": fork_and_go_on,
    "leaves-children": leave_children,
    "leaves-thread": leave_thread,
    "closes-output": close_output,
    "closes-everything": close_everything,
    "limits-files": limit_files,
    "fills-memory": fill_memory,
    "hangs": hang,
    "interrupts-itself": interrupt_itself,
}
NAN = "returns-nan"  # the one act of an evaluation

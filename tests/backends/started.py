"""What a process that a starter has started tells about itself."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np


def main(descriptor: int) -> None:
    """Send what may differ from process to process, and wait for the end of the channel."""
    channel = Connection(descriptor)
    arguments = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    told = {
        "pid": os.getpid(),
        "starter": os.getppid(),
        "hash": hash("a name"),
        "draw": float(np.random.random()),
        "forked": b"hoptree.worker.starter" in arguments,
        "threads": os.environ["OMP_NUM_THREADS"],
        "variable": os.environ.get("HOPTREE_TEST_VARIABLE"),
        "group": os.getpgid(0),
    }
    channel.send(told)
    try:
        channel.recv()
    except EOFError:
        sys.exit(3)


if __name__ == "__main__":
    main(int(sys.argv[1]))

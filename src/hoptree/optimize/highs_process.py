"""A separate process for HiGHS.

OR-tools contains another HiGHS of the same name, and a process that has loaded one cannot load the other
(https://github.com/google/or-tools/issues/5246). A process can also be stopped when the time is over, while HiGHS
would finish its current step first.
"""

import os
import subprocess
import sys
from time import monotonic

from hoptree.core.errors import InvariantError

STARTUP_SECONDS = 0.5
SECONDS_PER_ROW = 1e-5
SHARE_OF_SECONDS = 0.95
"""The share of the time that HiGHS gets: the process has to start and to end, and HiGHS checks the clock only
between its steps, which take long in a large program. A result that comes too late is lost."""


def seconds_for(rows: int, seconds: float) -> float:
    """Return how long HiGHS may search a program of so many rows; not positive if there is no time for it."""
    return seconds * SHARE_OF_SECONDS - STARTUP_SECONDS - rows * SECONDS_PER_ROW


def run_process(module: str, task: bytes, deadline: float) -> bytes | None:
    """Run the module with the task on stdin; return its output, or None if it is not done by the deadline."""
    try:
        done = subprocess.run(  # noqa: S603, our own modules
            [sys.executable, "-m", module],
            input=task,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=max(0.0, deadline - monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise InvariantError(f"HiGHS ended with code {done.returncode}: {done.stderr.decode()}")
    return done.stdout

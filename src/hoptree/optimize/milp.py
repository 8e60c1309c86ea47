"""The mixed-integer program of the Cerebro paper, solved by HiGHS in a separate process.

OR-tools contains another HiGHS of the same name, and a process that has loaded one cannot load the other
(https://github.com/google/or-tools/issues/5246). A process can also be stopped when the time is over, while HiGHS
would finish its current step first.

It exists for comparison with the paper. Up to about 4 configs on 4 workers it proves optima in a second; with 16
configs on 8 workers it does not improve on its start within a minute.
"""

import os
import subprocess
import sys
from time import monotonic

import msgspec

from hoptree.core.errors import InvariantError
from hoptree.optimize.extra import require_installed
from hoptree.optimize.schedule import Starts, Times, earliest_starts, order_by_start

MILP_TOLERANCE = 1e-6
"""HiGHS computes with floats: it proves an optimum up to about this relative difference."""

STARTUP_SECONDS = 0.5
SECONDS_PER_ROW = 1e-5
SHARE_OF_SECONDS = 0.95
"""The share of the time that HiGHS gets: the process has to start and to end, and HiGHS checks the clock only
between its steps, which take long in a large program. A result that comes too late is lost."""


class Task(msgspec.Struct, frozen=True):
    """The input of the process."""

    times: Times
    start: Starts
    seconds: float
    seed: int


class MilpResult(msgspec.Struct, frozen=True):
    """The output of the process: starts, feasible up to a tolerance, and a lower bound."""

    starts: Starts
    bound: float


def milp(times: Times, start: Starts, seconds: float, seed: int) -> tuple[Starts, float]:
    """Improve `start` until it is proven optimal or the time is over; return a schedule and a lower bound.

    These are `start` and 0 if there is not enough time to build the program and start solving.
    """
    require_installed("highspy", "milp")
    deadline = monotonic() + seconds
    configs, workers = len(times), len(times[0])
    rows = configs * workers * (configs + workers - 1)
    left = seconds * SHARE_OF_SECONDS - STARTUP_SECONDS - rows * SECONDS_PER_ROW
    if left <= 0:
        return start, 0.0
    result = _run_process(Task(times, start, left, seed), deadline)
    if result is None:
        return start, 0.0
    return earliest_starts(times, order_by_start(times, result.starts)), result.bound


def _run_process(task: Task, deadline: float) -> MilpResult | None:
    """Run the process; return None if it is not done by the deadline."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hoptree.optimize.highs"],
            input=msgspec.json.encode(task),
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=max(0.0, deadline - monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise InvariantError(f"HiGHS ended with code {done.returncode}: {done.stderr.decode()}")
    return msgspec.json.decode(done.stdout, type=MilpResult)

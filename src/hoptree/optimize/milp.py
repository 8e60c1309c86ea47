"""The mixed-integer program of the Cerebro paper, solved by HiGHS in a separate process (see `highs_process`).

It exists for comparison with the paper. Up to about 4 configs on 4 workers it proves optima in a second; with 16
configs on 8 workers it does not improve on its start within a minute.
"""

from time import monotonic

import msgspec

from hoptree.optimize.extra import require_installed
from hoptree.optimize.highs_process import run_process, seconds_for
from hoptree.optimize.schedule import Starts, Times, earliest_starts, order_by_start

MILP_TOLERANCE = 1e-6
"""HiGHS computes with floats: it proves an optimum up to about this relative difference."""


class MilpTask(msgspec.Struct, frozen=True):
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
    left = seconds_for(rows, seconds)
    if left <= 0:
        return start, 0.0
    task = msgspec.json.encode(MilpTask(times, start, left, seed))
    output = run_process("hoptree.optimize.highs", task, deadline)
    if output is None:
        return start, 0.0
    result = msgspec.json.decode(output, type=MilpResult)
    return earliest_starts(times, order_by_start(times, result.starts)), result.bound

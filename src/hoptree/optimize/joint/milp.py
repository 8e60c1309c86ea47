"""The mixed-integer program of Cerebro's unified scheduler, solved by HiGHS in a separate process.

It exists for comparison with the thesis. It starts with a randomized schedule, as the thesis proposes.
"""

from time import monotonic

import msgspec

from hoptree.optimize.extra import require_installed
from hoptree.optimize.highs_process import run_process, seconds_for
from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start, Visits, place


class JointTask(msgspec.Struct, frozen=True):
    """The input of the process."""

    problem: JointProblem
    start: Visits
    bound: float
    seconds: float
    seed: int


class JointMilpResult(msgspec.Struct, frozen=True):
    """The output of the process: the visits in the order of their starts, and a lower bound."""

    order: list[Start]
    bound: float


def milp(
    problem: JointProblem, grid: JointGrid, start: Visits, bound: float, seconds: float, seed: int
) -> tuple[Visits, float]:
    """Improve `start` until it is proven optimal or the time is over; return a schedule and a lower bound.

    These are `start` and 0 if there is not enough time to build the program and start solving.
    """
    require_installed("highspy", "milp")
    deadline = monotonic() + seconds
    left = seconds_for(_rows(problem), seconds)
    if left <= 0:
        return start, 0.0
    task = msgspec.json.encode(JointTask(problem, start, bound, left, seed))
    output = run_process("hoptree.optimize.joint.highs", task, deadline)
    if output is None:
        return start, 0.0
    result = msgspec.json.decode(output, type=JointMilpResult)
    return place(problem, grid, result.order), result.bound


def _rows(problem: JointProblem) -> int:
    """Return about how many rows the program has: those of equations 4.7, 4.8, 4.10 and 4.11."""
    configs, devices = len(problem.options), problem.devices
    sizes = [
        (sum(len(row[node]) for row in problem.options) / configs, count) for node, count in enumerate(devices)
    ]
    on_nodes = sum(options * count for options, count in sizes) * configs * (configs - 1)
    pairs = sum(options * count for options, count in sizes) * sum(devices)
    return round(2 * (on_nodes + configs * pairs))

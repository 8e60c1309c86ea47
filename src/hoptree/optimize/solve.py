"""The public API: parse the times, run a method, and rate its schedule."""

from collections.abc import Iterable
from math import isfinite
from numbers import Real
from time import monotonic
from typing import Any, Literal, get_args

from hoptree.core.errors import InvariantError, WorkloadError
from hoptree.optimize.bounds import load_bound
from hoptree.optimize.cpsat import cp_sat
from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.list_schedule import longest_path, random_order
from hoptree.optimize.milp import MILP_TOLERANCE, milp
from hoptree.optimize.parsing import check_seconds, iterate
from hoptree.optimize.schedule import Starts, Times, makespan_of
from hoptree.optimize.solution import Solution
from hoptree.optimize.vector import vector_rearrangement

Method = Literal["cp-sat", "milp", "vector", "longest-path", "random"]


def solve(
    times: Iterable[Iterable[float]], method: Method = "cp-sat", seconds: float = 60, seed: int = 0
) -> Solution:
    """Schedule one epoch with a short makespan; `times[i][j]` is the time of config i on worker j.

    `cp-sat` and `milp` start with the `longest-path` schedule and return it at once if it meets the lower bound;
    otherwise they search until they have a proof or the time is over. `vector` is optimal for many configs, see
    `hoptree.optimize.vector`. `longest-path` and `random` take milliseconds. `seed` affects `random`, `cp-sat` and
    `milp`; the latter two also depend on how far they get in the time.

    >>> solution = solve([[2, 1], [1, 2]], method="longest-path")
    >>> solution.makespan, solution.bound, solution.proven, solution.starts
    (3.0, 3.0, True, ((0.0, 2.0), (2.0, 0.0)))
    """
    if method not in get_args(Method):
        raise WorkloadError(f"method: {method!r}; expected one of {', '.join(get_args(Method))}")
    check_seconds(seconds)
    parsed = parse_times(times)
    began = monotonic()
    lower = load_bound(parsed)
    starts, bound = _schedule(parsed, method, lower, seconds, seed)
    makespan, bound = makespan_of(parsed, starts), max(bound, lower)
    tolerance = MILP_TOLERANCE if method == "milp" else TOLERANCE
    if bound > makespan * (1 + tolerance):
        raise InvariantError(f"{method}: makespan {makespan} is below the bound {bound}; times {parsed}")
    return Solution(
        makespan=makespan,
        bound=min(bound, makespan),
        proven=makespan <= bound * (1 + tolerance),
        starts=starts,
        method=method,
        seconds=monotonic() - began,
    )


def lower_bound(times: Iterable[Iterable[float]]) -> float:
    """Return a lower bound on every makespan: the largest load of a worker or the longest config.

    >>> lower_bound([[2, 1], [2, 1], [1, 1]])
    5.0
    """
    return load_bound(parse_times(times))


def _schedule(times: Times, method: Method, lower: float, seconds: float, seed: int) -> tuple[Starts, float]:
    """Run the method; return its schedule and the lower bound that it found, or 0."""
    deadline = monotonic() + seconds
    if method == "random":
        return random_order(times, seed), 0.0
    if method == "vector":
        return vector_rearrangement(times, seconds), 0.0
    start = longest_path(times)
    if method == "longest-path" or makespan_of(times, start) <= lower * (1 + TOLERANCE):
        return start, 0.0
    exact = cp_sat if method == "cp-sat" else milp
    found, bound = exact(times, start, deadline - monotonic(), seed)
    return min(found, start, key=lambda starts: makespan_of(times, starts)), bound


def parse_times(times: Iterable[Iterable[float]]) -> Times:
    """Parse nested sequences or a numpy array: a full matrix of finite times >= 0."""
    rows = [_parse_row(f"times[{index}]", row) for index, row in enumerate(iterate("times", times))]
    if not rows:
        raise WorkloadError("times: no rows; expected one row of times for each config")
    for index, row in enumerate(rows):
        if not row:
            raise WorkloadError(f"times[{index}]: no times; expected one time for each worker")
        if len(row) != len(rows[0]):
            raise WorkloadError(f"times[{index}]: {len(row)} times; expected {len(rows[0])} as in times[0]")
    if not isfinite(sum(map(sum, rows))):
        raise WorkloadError("times: their sum is not finite; expected smaller times, in a larger unit")
    return tuple(rows)


def _parse_row(name: str, row: Any) -> tuple[float, ...]:
    return tuple(_parse_time(f"{name}[{index}]", time) for index, time in enumerate(iterate(name, row)))


def _parse_time(name: str, time: Any) -> float:
    if isinstance(time, Real):
        try:
            value = float(time)
        except OverflowError:
            value = float("inf")
        if isfinite(value) and value >= 0:
            return value
    raise WorkloadError(f"{name}: {time}; expected a finite time >= 0")

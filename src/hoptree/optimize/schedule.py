"""Open-shop schedules: their feasibility, and the earliest starts of their units.

`times[i][j]` is the time of config i on worker j, and `starts[i][j]` is the start of that unit. Every scheduler of
this package decides only an order, and `earliest_starts` turns an order into starts. So a schedule is feasible for
the given floats, whatever numbers a solver computed with.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from hoptree.core.errors import InvariantError

Times = tuple[tuple[float, ...], ...]
Starts = tuple[tuple[float, ...], ...]
Unit = tuple[int, int]
"""A config and a worker."""

Number = TypeVar("Number", int, float)
Matrix = tuple[tuple[Number, ...], ...]


def earliest_starts(times: Matrix[Number], order: Iterable[Unit]) -> Matrix[Number]:
    """Start every unit as soon as its config and its worker have finished all units before it in `order`.

    Units that are not in `order` start at 0; only units without time may be left out.

    >>> earliest_starts(((2.0, 1.0), (1.0, 3.0)), [(0, 0), (1, 1), (1, 0), (0, 1)])
    ((0.0, 3.0), (3.0, 0.0))
    """
    zero = times[0][0] * 0
    config_free = [zero] * len(times)
    worker_free = [zero] * len(times[0])
    starts = [[zero] * len(row) for row in times]
    for config, worker in order:
        start = max(config_free[config], worker_free[worker])
        starts[config][worker] = start
        config_free[config] = worker_free[worker] = start + times[config][worker]
    return tuple(tuple(row) for row in starts)


def order_by_start(times: Sequence[Sequence[float]], starts: Sequence[Sequence[float]]) -> list[Unit]:
    """Sort all units by start; of two with the same start the shorter comes first, as it may take no time."""
    units = [(config, worker) for config, row in enumerate(times) for worker in range(len(row))]
    return sorted(units, key=lambda unit: (starts[unit[0]][unit[1]], times[unit[0]][unit[1]]))


def makespan_of(times: Matrix[Number], starts: Matrix[Number]) -> Number:
    """Return the end of the last unit."""
    return max(
        start + time
        for start_row, time_row in zip(starts, times, strict=True)
        for start, time in zip(start_row, time_row, strict=True)
    )


def check(times: Times, starts: Starts) -> None:
    """Raise InvariantError with the conflict unless `starts` is a feasible schedule of `times`.

    The check is exact, without a tolerance. A unit without time may start when its neighbour starts or ends, but
    not in between.
    """
    if [len(row) for row in starts] != [len(row) for row in times]:
        raise InvariantError(
            f"starts: rows of {[len(row) for row in starts]}; expected the shape of times, "
            f"rows of {[len(row) for row in times]}"
        )
    rows: dict[str, list[tuple[float, float, str]]] = {}
    for config, time_row in enumerate(times):
        for worker, time in enumerate(time_row):
            start = starts[config][worker]
            if not start >= 0:
                raise InvariantError(f"starts[{config}][{worker}]: {start}; expected a start >= 0")
            interval = (start, start + time, f"unit [{config}][{worker}]")
            rows.setdefault(f"config {config}", []).append(interval)
            rows.setdefault(f"worker {worker}", []).append(interval)
    for name, intervals in rows.items():
        intervals.sort()
        for (start, end, unit), (next_start, next_end, next_unit) in pairwise(intervals):
            if end > next_start:
                raise InvariantError(
                    f"{name}: {unit} holds it from {start} to {end} "
                    f"and {next_unit} from {next_start} to {next_end}; expected one at a time"
                )

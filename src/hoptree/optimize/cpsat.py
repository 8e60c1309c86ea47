"""CP-SAT: an interval for every unit, and no two intervals of one config or one worker overlap.

CP-SAT computes with integers, and times are floats, so it gets the times rounded down to ticks. Its bound then also
holds for the real times. Only the order of its schedule is kept, and the real times follow from the order. That
lengthens the schedule by less than the sum of all rounding errors, which the grid keeps below half the tolerance.
So an optimum of CP-SAT is an optimum of the real times, within the tolerance.
"""

from time import monotonic
from typing import Any

from hoptree.core.errors import InvariantError
from hoptree.optimize.extra import require
from hoptree.optimize.grid import Ticks, to_grid
from hoptree.optimize.schedule import (
    Starts,
    Times,
    Unit,
    earliest_starts,
    makespan_of,
    order_by_start,
)

SEARCHES = 2
"""Threads of CP-SAT. From two on, one thread improves the given schedule by changing parts of it, which finds the
optimum here. Searching for a schedule as short as the lower bound takes much longer (54 s against 0.2 to 5 s with
16
configs on 8 workers), and so does a single thread."""


def cp_sat(times: Times, start: Starts, seconds: float, seed: int) -> tuple[Starts, float]:
    """Improve `start` until it is proven optimal or the time is over; return a schedule and a lower bound."""
    cp_model = require("ortools.sat.python.cp_model", "cp-sat")
    deadline = monotonic() + seconds
    grid = to_grid(times)
    model = cp_model.CpModel()
    begins = _constrain(model, grid.ticks, order_by_start(times, start))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = SEARCHES
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_time_in_seconds = max(0.0, deadline - monotonic())
    status = solver.solve(model)
    if status == cp_model.UNKNOWN:
        return start, 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InvariantError(f"CP-SAT returned {solver.status_name(status)} for an open shop: times {times}")
    found = [[solver.value(begin) for begin in row] for row in begins]
    starts = earliest_starts(times, order_by_start(grid.ticks, found))
    return starts, grid.time(solver.best_objective_bound)


def _constrain(model: Any, ticks: Ticks, order: list[Unit]) -> list[list[Any]]:
    """Add the open shop to the model, between the lower bound and the schedule of `order`.

    That schedule is also the hint. Returns the variables of the starts.
    """
    hint = earliest_starts(ticks, order)
    end = makespan_of(ticks, hint)
    begins = [[model.new_int_var(0, end - size, "") for size in row] for row in ticks]
    units = [
        [model.new_fixed_size_interval_var(begin, size, "") for begin, size in zip(*rows, strict=True)]
        for rows in zip(begins, ticks, strict=True)
    ]
    for row in units:
        model.add_no_overlap(row)
    for column in zip(*units, strict=True):
        model.add_no_overlap(column)
    lower = max(*(sum(row) for row in ticks), *(sum(column) for column in zip(*ticks, strict=True)))
    makespan = model.new_int_var(lower, end, "")
    for config, sizes in enumerate(ticks):
        for worker, size in enumerate(sizes):
            model.add(makespan >= begins[config][worker] + size)
            model.add_hint(begins[config][worker], hint[config][worker])
    model.minimize(makespan)
    return begins

"""Equations 1 and 2 of the Cerebro paper for HiGHS: reads a `MilpTask` from stdin, writes a `MilpResult`.

Columns: the makespan C; the start X of every unit; for every two units of one config (Y in the paper) or of one
worker (Z) a binary that is 1 if the first of them runs first. Times are divided by the longest, and V is their sum.
The one addition is C >= the lower bound, which excludes no schedule and lets HiGHS stop there.

Importing this module is harmless; calling it prevents loading OR-tools in the same process (see `highs_process`).
"""

import sys
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec
import numpy

from hoptree.optimize.bounds import load_bound
from hoptree.optimize.extra import require
from hoptree.optimize.milp import MilpResult, MilpTask
from hoptree.optimize.schedule import Starts, Times, makespan_of

OPTIONS = {
    "output_flag": False,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-9,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
}


def work(task: MilpTask) -> MilpResult:
    """Improve the start until it is proven optimal or the time is over."""
    deadline = monotonic() + task.seconds
    highspy = require("highspy", "milp")
    program = pair_units(task.times)
    solver = highspy.Highs()
    for option, value in OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.setOptionValue("random_seed", task.seed % 2**31)
    solver.passModel(program.model(highspy))
    values = program.columns(task.start, makespan_of(task.times, task.start))
    solver.setSolution(len(values), numpy.arange(len(values), dtype=numpy.int32), values)
    solver.setOptionValue("time_limit", max(0.0, deadline - monotonic()))
    solver.run()
    info = solver.getInfo()
    bound = max(0.0, info.mip_dual_bound * program.longest)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return MilpResult(task.start, bound)
    configs, workers = len(task.times), len(task.times[0])
    found = numpy.array(solver.getSolution().col_value[1 : 1 + configs * workers])
    starts = (found * program.longest).reshape(configs, workers).tolist()
    return MilpResult(tuple(map(tuple, starts)), bound)


@dataclass(frozen=True, slots=True)
class Program:
    """The program as arrays. Column 0 is C; then follow the units, row by row; then the binaries."""

    times: Any
    """By unit."""
    longest: float
    bound: float
    first: Any
    """Of every two units that exclude each other, the index of the first."""
    second: Any

    def model(self, highspy: Any) -> Any:
        """Write two rows for every pair of units (2.a and 2.b, 2.c and 2.d) and one row for every unit (2.f).

        first - second + V b >= time of second; second - first - V b >= time of first - V; C - unit >= time.
        """
        units, pairs = len(self.times), len(self.first)
        unit, binary = 1 + numpy.arange(units), 1 + units + numpy.arange(pairs)
        big = self.times.sum()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = 1 + units + pairs, 2 * pairs + units
        lp.col_cost_ = numpy.eye(1, lp.num_col_).ravel()
        lp.col_lower_ = self.bound * numpy.eye(1, lp.num_col_).ravel()
        lp.col_upper_ = numpy.repeat([highspy.kHighsInf, 1.0], [1 + units, pairs])
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kContinuous] * (1 + units) + [kinds.kInteger] * pairs
        lower = self.times[self.second], self.times[self.first] - big, self.times
        lp.row_lower_ = numpy.concatenate(lower)
        lp.row_upper_ = numpy.full(lp.num_row_, highspy.kHighsInf)
        begins = numpy.arange(0, 6 * pairs, 3), 6 * pairs + numpy.arange(0, 2 * units + 1, 2)
        indices = (
            numpy.stack([1 + self.first, 1 + self.second, binary], axis=1),
            numpy.stack([1 + self.second, 1 + self.first, binary], axis=1),
            numpy.stack([numpy.zeros_like(unit), unit], axis=1),
        )
        values = ([1.0, -1.0, big], pairs), ([1.0, -1.0, -big], pairs), ([1.0, -1.0], units)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = numpy.concatenate(begins)
        lp.a_matrix_.index_ = numpy.concatenate([index.ravel() for index in indices])
        lp.a_matrix_.value_ = numpy.concatenate([numpy.tile(row, count) for row, count in values])
        return lp

    def columns(self, starts: Starts, makespan: float) -> Any:
        """Return the values of the columns for a schedule."""
        begins = numpy.array(starts).ravel() / self.longest
        rank = numpy.lexsort((self.times, begins)).argsort()
        goes_first = rank[self.first] < rank[self.second]
        return numpy.concatenate([[makespan / self.longest], begins, goes_first])


def pair_units(times: Times) -> Program:
    """Pair every two units that share a config, then every two that share a worker."""
    matrix = numpy.array(times)
    longest = float(matrix.max())
    unit = numpy.arange(matrix.size).reshape(matrix.shape)
    by_config = [unit[:, side].ravel() for side in numpy.triu_indices(matrix.shape[1], 1)]
    by_worker = [unit[side].ravel() for side in numpy.triu_indices(matrix.shape[0], 1)]
    first, second = (numpy.concatenate(sides) for sides in zip(by_config, by_worker, strict=True))
    return Program(matrix.ravel() / longest, longest, load_bound(times) / longest, first, second)


if __name__ == "__main__":
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=MilpTask)
    sys.stdout.buffer.write(msgspec.json.encode(work(task)))

"""Equations 4.1 to 4.14 of Cerebro's unified scheduler for HiGHS: reads a `JointTask`, writes a `JointMilpResult`.

The names are those of the thesis: C is the makespan, B chooses an option, P a device (GPU), I is a start on a
device (0 on the devices that are not used), A orders two configs on a node and X two nodes of a config. Times are
divided by the longest, and U is the makespan of the first schedule times the devices of the largest node. Equations
4.9 and 4.12 are alternatives to others and bilinear, so they are left out. O says whether a config visits a node:
nothing in the thesis forces it to be 1, and with 0 there would be nothing to do, so it is 1 here. The one addition
is C >= the lower bound, which excludes no schedule and lets HiGHS stop there.

Importing this module is harmless; calling it prevents loading OR-tools in the same process (see `highs_process`).
"""

import sys
from collections.abc import Iterator
from itertools import permutations, product
from time import monotonic
from typing import Any

import msgspec
import numpy

from hoptree.optimize.extra import require
from hoptree.optimize.highs import OPTIONS
from hoptree.optimize.joint.milp import JointMilpResult, JointTask
from hoptree.optimize.joint.problem import JointProblem
from hoptree.optimize.joint.schedule import Start, Visits, makespan_of, order_of

Terms = list[tuple[Any, float]]
Row = tuple[float, Terms]
"""A lower bound on a sum of columns, each with its factor."""


def work(task: JointTask) -> JointMilpResult:
    """Improve the start until it is proven optimal or the time is over."""
    deadline = monotonic() + task.seconds
    highspy = require("highspy", "milp")
    program = JointProgram(task.problem, task.start, task.bound)
    solver = highspy.Highs()
    for option, value in OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.setOptionValue("random_seed", task.seed % 2**31)
    solver.passModel(program.model(highspy))
    values = program.values_of(task.start)
    solver.setSolution(len(values), numpy.arange(len(values), dtype=numpy.int32), values)
    solver.setOptionValue("time_limit", max(0.0, deadline - monotonic()))
    solver.run()
    info = solver.getInfo()
    bound = max(0.0, info.mip_dual_bound * program.longest)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return JointMilpResult(order_of(task.problem, task.start), bound)
    return JointMilpResult(program.order(solver.getSolution().col_value), bound)


class JointProgram:
    """The program: its columns by name, and its rows."""

    def __init__(self, problem: JointProblem, start: Visits, bound: float) -> None:
        self.options, self.devices = problem.options, problem.devices
        self.configs, self.nodes = range(len(problem.options)), range(len(problem.devices))
        self.longest = max(option.seconds for row in problem.options for options in row for option in options)
        self.bound = bound / self.longest
        self.big = max(self.devices) * max(1.0, makespan_of(start) / self.longest)
        self.columns = {name: column for column, name in enumerate(self._names())}

    def _names(self) -> Iterator[Any]:
        yield "C"
        for t, n in product(self.configs, self.nodes):
            yield from (("I", t, n, g) for g in range(self.devices[n]))
            yield from (("P", t, n, g) for g in range(self.devices[n]))
            yield from (("B", t, n, s) for s in range(len(self.options[t][n])))
        yield from (("A", n, *pair) for n in self.nodes for pair in permutations(self.configs, 2))
        yield from (("X", t, *pair) for t in self.configs for pair in permutations(self.nodes, 2))

    def at_least(self) -> Iterator[Row]:
        """Yield the inequalities."""
        for t, n in product(self.configs, self.nodes):
            yield from self._one_visit(t, n)
        for n in self.nodes:
            for one, other in permutations(self.configs, 2):
                for g in range(self.devices[n]):
                    a = ("A", n, other, one)
                    yield from self._order((one, n, g), (other, n, g), a)  # 4.7 and 4.8
        for t in self.configs:
            for one, other in permutations(self.nodes, 2):
                for g, h in product(range(self.devices[one]), range(self.devices[other])):
                    x = ("X", t, other, one)
                    yield from self._order((t, one, g), (t, other, h), x)  # 4.10 and 4.11

    def equal_one(self) -> Iterator[Terms]:
        """Yield the sums that are 1: equations 4.2 and 4.14."""
        for t, n in product(self.configs, self.nodes):
            yield [(("B", t, n, s), 1.0) for s in range(len(self.options[t][n]))]
        for t in self.configs:
            for one, other in permutations(self.nodes, 2):
                if one < other:
                    yield [(("X", t, one, other), 1.0), (("X", t, other, one), 1.0)]

    def _one_visit(self, t: int, n: int) -> Iterator[Row]:
        """Yield equations 4.1 and 4.3 to 4.6 for one config and node."""
        big, gpus = self.big, range(self.devices[n])
        for s, (width, seconds) in enumerate(self.options[t][n]):
            chosen = (("B", t, n, s), -big)
            for g in gpus:
                yield seconds / self.longest - big, [("C", 1.0), (("I", t, n, g), -1.0), chosen]  # 4.1
            yield width - big, [*((("P", t, n, g), 1.0) for g in gpus), chosen]  # 4.3
            yield -width - big, [*((("P", t, n, g), -1.0) for g in gpus), chosen]  # 4.4
            for g, sign in product(gpus, (1.0, -1.0)):  # 4.5 and 4.6
                mean = [(("I", t, n, h), sign * ((h == g) - 1 / width)) for h in gpus]
                yield -2 * big, [*mean, (("P", t, n, g), -big), chosen]

    def _order(self, one: tuple[int, int, int], other: tuple[int, int, int], turn: Any) -> Iterator[Row]:
        """Yield that `one` ends before `other` starts if `turn` is 0, and the reverse if it is 1."""
        big, both = self.big, [(("P", *one), -self.big), (("P", *other), -self.big)]
        for (first, then), switch, limit in (((one, other), big, 3), ((other, one), -big, 4)):
            for s, (_, seconds) in enumerate(self.options[first[0]][first[1]]):
                apart = [(("I", *then), 1.0), (("I", *first), -1.0)]
                chosen = (("B", first[0], first[1], s), -big)
                yield seconds / self.longest - limit * big, [*apart, *both, chosen, (turn, switch)]

    def model(self, highspy: Any) -> Any:
        """Write the program for HiGHS."""
        equal = list(self.equal_one())
        rows = [*self.at_least(), *((1.0, terms) for terms in equal)]
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.columns), len(rows)
        makespan = numpy.eye(1, lp.num_col_).ravel()
        lp.col_cost_, lp.col_lower_ = makespan, self.bound * makespan
        free = [name == "C" or name[0] == "I" for name in self.columns]
        lp.col_upper_ = numpy.where(free, highspy.kHighsInf, 1.0)
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kContinuous if one else kinds.kInteger for one in free]
        lp.row_lower_ = numpy.array([lower for lower, _ in rows])
        lp.row_upper_ = numpy.repeat([highspy.kHighsInf, 1.0], [len(rows) - len(equal), len(equal)])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = numpy.cumsum([0, *(len(terms) for _, terms in rows)])
        lp.a_matrix_.index_ = numpy.array([self.columns[name] for _, terms in rows for name, _ in terms])
        lp.a_matrix_.value_ = numpy.array([factor for _, terms in rows for _, factor in terms])
        return lp

    def values_of(self, visits: Visits) -> Any:
        """Return the values of the columns for a schedule."""
        values = numpy.zeros(len(self.columns))
        values[0] = makespan_of(visits) / self.longest
        for t, n in product(self.configs, self.nodes):
            visit = visits[t][n]
            widths = [option.width for option in self.options[t][n]]
            values[self.columns["B", t, n, widths.index(visit.width)]] = 1.0
            for g in visit.devices:
                values[self.columns["P", t, n, g]] = 1.0
                values[self.columns["I", t, n, g]] = visit.start / self.longest
            for other in self.configs:
                if other != t:
                    values[self.columns["A", n, t, other]] = _before(visits, (t, n), (other, n))
            for other in self.nodes:
                if other != n:
                    values[self.columns["X", t, n, other]] = _before(visits, (t, n), (t, other))
        return values

    def order(self, values: Any) -> list[Start]:
        """Sort the visits of a solution by their starts; leave out those without time."""
        found = []
        for t, n in product(self.configs, self.nodes):
            options = self.options[t][n]
            s = max(range(len(options)), key=lambda s, t=t, n=n: values[self.columns["B", t, n, s]])  # type: ignore[misc]
            start = max(values[self.columns["I", t, n, g]] for g in range(self.devices[n]))
            if options[s].seconds > 0:
                found.append((start, options[s].seconds, (t, n, s)))
        return [start for _, _, start in sorted(found)]


def _before(visits: Visits, one: tuple[int, int], other: tuple[int, int]) -> bool:
    mine, yours = visits[one[0]][one[1]], visits[other[0]][other[1]]
    return (mine.start, mine.end, one) < (yours.start, yours.end, other)


if __name__ == "__main__":
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=JointTask)
    sys.stdout.buffer.write(msgspec.json.encode(work(task)))

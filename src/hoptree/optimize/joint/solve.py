"""The public API of the joint problem: parse the times, run a method, and rate its schedule."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from time import monotonic
from typing import Literal, get_args

import msgspec

from hoptree.core.errors import InvariantError, WorkloadError
from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.joint.bounds import joint_bound
from hoptree.optimize.joint.cpsat import cp_sat
from hoptree.optimize.joint.dry_run import dry_run
from hoptree.optimize.joint.milp import milp
from hoptree.optimize.joint.problem import JointGrid, JointProblem, grid_of, parse_devices, parse_joint
from hoptree.optimize.joint.randomized import monte_carlo, random_order
from hoptree.optimize.joint.schedule import Visit, Visits, check_visits, makespan_of, place
from hoptree.optimize.milp import MILP_TOLERANCE
from hoptree.optimize.parsing import check_seconds

JointMethod = Literal["auto", "cp-sat", "dry-run", "milp", "monte-carlo", "random"]
JointTimes = Iterable[Iterable[Mapping[int, float]]]


class JointSolution(msgspec.Struct, frozen=True, kw_only=True):
    """A feasible schedule of one epoch on nodes with several devices, and how good it is.

    `bound` is a lower bound on every makespan. `proven`: the makespan meets it, within 1e-9 of it (milp: 1e-6).
    """

    makespan: float
    bound: float
    proven: bool
    visits: tuple[tuple[Visit, ...], ...]
    """By config and node, as in `times`: start, end and devices."""
    method: str
    seconds: float
    """The time it took to find the schedule."""


def solve_joint(
    times: JointTimes,
    devices: Iterable[int],
    *,
    method: JointMethod = "auto",
    seconds: float = 60,
    seed: int = 0,
    threads: int = 2,
) -> JointSolution:
    """Schedule one epoch on nodes with several devices: the order of visits, and the devices of each.

    `devices[n]` is the number of devices of node n, and `times[i][n][w]` is the time of config i on node n with w
    of them; a width that is missing or takes infinite time does not fit. `auto` is `dry-run`, and then `cp-sat` if
    its schedule is above the lower bound and OR-tools is installed. `threads` are those of CP-SAT.

    >>> solution = solve_joint([[{1: 4, 2: 2}, {1: 2}], [{1: 4, 2: 2}, {1: 2}]], [2, 1], method="dry-run")
    >>> solution.makespan, solution.proven, solution.visits[0][0].width
    (4.0, True, 2)
    """
    if method not in get_args(JointMethod):
        raise WorkloadError(f"method: {method!r}; expected one of {', '.join(get_args(JointMethod))}")
    check_seconds(seconds)
    if threads < 1:
        raise WorkloadError(f"threads: {threads}; expected at least 1")
    problem = parse_joint(times, devices)
    began = monotonic()
    lower = joint_bound(problem)
    visits, bound = _Run(problem, grid_of(problem, lower), lower, began + seconds, seed, threads).run(method)
    makespan, bound = makespan_of(visits), max(bound, lower)
    tolerance = MILP_TOLERANCE if method == "milp" else TOLERANCE
    if bound > makespan * (1 + tolerance):
        raise InvariantError(f"{method}: makespan {makespan} is below the bound {bound}; {problem}")
    return JointSolution(
        makespan=makespan,
        bound=min(bound, makespan),
        proven=makespan <= bound * (1 + tolerance),
        visits=visits,
        method=method,
        seconds=monotonic() - began,
    )


def joint_lower_bound(times: JointTimes, devices: Iterable[int]) -> float:
    """Return a lower bound on every makespan, from the loads of configs and nodes; see `joint.bounds`.

    >>> joint_lower_bound([[{1: 4}, {1: 2}], [{1: 4}, {1: 2}]], [2, 1])
    6.0
    """
    return joint_bound(parse_joint(times, devices))


def verify_joint(times: JointTimes, devices: Iterable[int], solution: JointSolution) -> None:
    """Raise InvariantError with the conflict unless the solution is a feasible schedule of these times.

    The check is exact: every config makes its visits one at a time, every device serves one visit at a time, every
    visit takes the time of its width, and the makespan is the end of the last visit.
    """
    rows = [list(row) for row in times]
    counts = parse_devices(devices)
    parse_joint(rows, counts)
    check_visits(rows, counts, solution.visits)
    if solution.makespan != makespan_of(solution.visits):
        raise InvariantError(
            f"makespan: {solution.makespan}; expected {makespan_of(solution.visits)}, the end of the last visit"
        )


class _Run(msgspec.Struct, frozen=True):
    """One call of `solve_joint`; the methods return a schedule and the lower bound that they found, or 0."""

    problem: JointProblem
    grid: JointGrid
    lower: float
    deadline: float
    seed: int
    threads: int

    def run(self, method: JointMethod) -> tuple[Visits, float]:
        match method:
            case "random":
                return self._random(), 0.0
            case "monte-carlo":
                return monte_carlo(self.problem, self.grid, self.lower, self._left(), self.seed), 0.0
            case "milp":
                return self._milp()
            case _:
                start = dry_run(self.problem, self.grid, self.lower, self._left(), self.seed)
                with_solver = method == "cp-sat" or (method == "auto" and find_spec("ortools") is not None)
                return self._cp_sat(start) if with_solver else (start, 0.0)

    def _left(self) -> float:
        return self.deadline - monotonic()

    def _random(self) -> Visits:
        return place(self.problem, self.grid, random_order(self.problem, self.grid, self.seed))

    def _milp(self) -> tuple[Visits, float]:
        start = self._random()
        if self._met(start):
            return start, 0.0
        found, bound = milp(self.problem, self.grid, start, self.lower, self._left(), self.seed)
        return min(found, start, key=makespan_of), bound

    def _cp_sat(self, start: Visits) -> tuple[Visits, float]:
        if self._met(start):
            return start, 0.0
        found, bound = cp_sat(self.problem, self.grid, start, self._left(), self.seed, self.threads)
        return min(found, start, key=makespan_of), bound

    def _met(self, visits: Visits) -> bool:
        return makespan_of(visits) <= self.lower * (1 + TOLERANCE)

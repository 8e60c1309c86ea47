"""CP-SAT for the joint problem: an optional interval for every config, node and width.

The optional intervals of a node share its devices (cumulative), and the visits of a config do not overlap. As in
`hoptree.optimize.cpsat`, it computes with times rounded down to ticks, its bound holds for the real times, and the
real schedule follows from the order of its starts.
"""

from time import monotonic
from typing import Any

from hoptree.core.errors import InvariantError
from hoptree.optimize.extra import require
from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start, Visits, order_of, place


def cp_sat(
    problem: JointProblem, grid: JointGrid, start: Visits, seconds: float, seed: int, threads: int
) -> tuple[Visits, float]:
    """Improve `start` until it is proven optimal or the time is over; return a schedule and a lower bound."""
    cp_model = require("ortools.sat.python.cp_model", "cp-sat")
    deadline = monotonic() + seconds
    model = JointModel(cp_model.CpModel(), problem, grid, order_of(problem, start))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    # One thread alone would only run the default search; interleaving lets it improve parts of the schedule, too.
    solver.parameters.interleave_search = threads == 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_time_in_seconds = max(0.0, deadline - monotonic())
    status = solver.solve(model.model)
    if status == cp_model.UNKNOWN:
        return start, 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InvariantError(f"CP-SAT returned {solver.status_name(status)} for a joint problem: {problem}")
    bound = max(0.0, solver.best_objective_bound - model.raised)
    return place(problem, grid, model.order(solver)), float(bound * grid.tick)


class JointModel:
    """The variables of the joint problem: the start of every visit, and a literal for each of its options.

    A visit shorter than a tick takes one tick here, because an interval without length could lie within another.
    `raised` counts these: a bound of the model is one of the ticks after subtracting them.
    """

    def __init__(self, model: Any, problem: JointProblem, grid: JointGrid, hint: list[Start]) -> None:
        self.model = model
        self.raised = 0
        self._problem, self._grid = problem, grid
        self._begins: dict[tuple[int, int], Any] = {}
        self._literals: dict[tuple[int, int], list[Any]] = {}
        self._sizes = {(config, node): self._raise(config, node) for config, node, _ in hint}
        hinted, self._end = self._hinted(hint)
        self._makespan = model.new_int_var(0, self._end, "")
        on_config: list[list[Any]] = [[] for _ in problem.options]
        on_node: list[list[tuple[Any, int]]] = [[] for _ in problem.devices]
        for config, node, index in hint:
            visit, options = self._add_visit(config, node)
            on_config[config].append(visit)
            on_node[node] += options
            model.add_hint(self._begins[config, node], hinted[config, node])
            for other, literal in enumerate(self._literals[config, node]):
                model.add_hint(literal, other == index)
        for visits in on_config:
            model.add_no_overlap(visits)
        for intervals, devices in zip(on_node, problem.devices, strict=True):
            model.add_cumulative([one for one, _ in intervals], [width for _, width in intervals], devices)
        self._limit_loads()
        model.minimize(self._makespan)

    def order(self, solver: Any) -> list[Start]:
        """Sort the visits of the solution by their starts."""
        found = []
        for (config, node), literals in self._literals.items():
            index = next(i for i, literal in enumerate(literals) if solver.boolean_value(literal))
            found.append((solver.value(self._begins[config, node]), (config, node, index)))
        return [start for _, start in sorted(found)]

    def _raise(self, config: int, node: int) -> list[int]:
        ticks = self._grid.ticks[config][node]
        self.raised += 0 in ticks
        return [max(1, size) for size in ticks]

    def _hinted(self, hint: list[Start]) -> tuple[dict[tuple[int, int], int], int]:
        """Return the starts of the hint in ticks, and its end."""
        config_free = [0] * len(self._problem.options)
        device_free = [[0] * devices for devices in self._problem.devices]
        starts = {}
        for config, node, index in hint:
            free = sorted(device_free[node])
            width = self._problem.options[config][node][index].width
            start = max(config_free[config], free[width - 1])
            starts[config, node] = start
            config_free[config] = start + self._sizes[config, node][index]
            device_free[node] = [config_free[config]] * width + free[width:]
        return starts, max(config_free)

    def _add_visit(self, config: int, node: int) -> tuple[Any, list[tuple[Any, int]]]:
        """Add a visit; return its interval, and an optional interval with its width for every option."""
        model, sizes = self.model, self._sizes[config, node]
        begin = model.new_int_var(0, self._end - min(sizes), "")
        literals = [model.new_bool_var("") for _ in sizes]
        model.add_exactly_one(literals)
        length = sum(size * literal for size, literal in zip(sizes, literals, strict=True))
        model.add(self._makespan >= begin + length)
        options = [
            (model.new_optional_fixed_size_interval_var(begin, size, literal, ""), option.width)
            for size, literal, option in zip(sizes, literals, self._problem.options[config][node], strict=True)
        ]
        size = model.new_int_var_from_domain(_domain(sizes), "")
        model.add(size == length)
        end = model.new_int_var(0, self._end, "")
        self._begins[config, node], self._literals[config, node] = begin, literals
        return model.new_interval_var(begin, size, end, ""), options

    def _limit_loads(self) -> None:
        """Add the bounds of `joint_bound` as constraints: no load of a config or node exceeds the makespan."""
        of_config: list[Any] = [0] * len(self._problem.options)
        of_node: list[Any] = [0] * len(self._problem.devices)
        for (config, node), literals in self._literals.items():
            options = self._problem.options[config][node]
            for literal, size, option in zip(literals, self._sizes[config, node], options, strict=True):
                of_config[config] += size * literal
                of_node[node] += option.width * size * literal
        for load in of_config:
            self.model.add(self._makespan >= load)
        for load, devices in zip(of_node, self._problem.devices, strict=True):
            self.model.add(devices * self._makespan >= load)


def _domain(sizes: list[int]) -> Any:
    return require("ortools.sat.python.cp_model", "cp-sat").Domain.from_values(sizes)

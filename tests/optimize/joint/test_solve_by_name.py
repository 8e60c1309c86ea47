"""Valid arguments, and the errors for invalid ones."""

import math
import sys

import msgspec
import numpy
import pytest

from hoptree.core.errors import InvariantError, MissingExtraError, WorkloadError
from hoptree.optimize import Visit, joint_lower_bound, solve_joint, verify_joint
from tests.optimize.joint.problems import GAP

ONE = [[{1: 2.0}]]
SECONDS = "expected seconds >= 0, or infinity if the config does not fit"


@pytest.mark.parametrize(
    ("times", "devices", "message"),
    [
        (ONE, [], "devices: no nodes; expected the number of devices of each node, for example [4, 2, 2]"),
        (
            ONE,
            [0],
            "devices[0]: 0; expected a whole number of devices, at least 1; leave empty nodes out",
        ),
        (ONE, [True], "devices[0]: True; expected a whole number of devices, at least 1; leave empty nodes out"),
        (ONE, [1.5], "devices[0]: 1.5; expected a whole number of devices, at least 1; leave empty nodes out"),
        (ONE, 2, "devices: 2; expected a sequence"),
        ([], [1], "times: no rows; expected one row for each config"),
        (5, [1], "times: 5; expected a sequence"),
        (ONE, [1, 1], "times[0]: 1 nodes; expected 2, as in devices"),
        ([[{1: 2}, {1: 2}], [{1: 2}]], [1, 1], "times[1]: 1 nodes; expected 2, as in devices"),
        ([[2.0]], [1], "times[0][0]: 2.0; expected a mapping from width to seconds, such as {1: 20.0, 2: 11.0}"),
        ([[{3: 2.0}]], [2], "times[0][0]: width 3; expected 1 to 2, the devices of the node"),
        ([[{0: 2.0}]], [2], "times[0][0]: width 0; expected 1 to 2, the devices of the node"),
        ([[{"1": 2.0}]], [2], "times[0][0]: width '1'; expected 1 to 2, the devices of the node"),
        ([[{1: -2.0}]], [2], f"times[0][0][1]: -2.0; {SECONDS}"),
        (
            [[{1: math.nan}]],
            [2],
            f"times[0][0][1]: nan; {SECONDS}",
        ),
        ([[{1: None}]], [2], f"times[0][0][1]: None; {SECONDS}"),
        (
            [[{1: 1}], [{1: math.inf}]],
            [2],
            "times[1][0]: the config fits with no number of devices; expected finite seconds for a width of 1 "
            "to 2; give the node more devices, or leave the config out",
        ),
        (
            [[{1: 1e308}, {1: 1e308}]],
            [1, 1],
            "times: their sum is not finite; expected smaller times, in a larger unit",
        ),
    ],
)
def test_bad_problems_are_named(times, devices, message):
    for ask in (solve_joint, joint_lower_bound):
        with pytest.raises(WorkloadError) as error:
            ask(times, devices)
        assert str(error.value) == message


def test_bad_options_are_named():
    with pytest.raises(WorkloadError) as error:
        solve_joint(ONE, [1], method="gurobi")
    assert str(error.value) == (
        "method: 'gurobi'; expected one of auto, cp-sat, dry-run, milp, monte-carlo, random"
    )
    with pytest.raises(WorkloadError, match="seconds: nan; expected a time limit > 0"):
        solve_joint(ONE, [1], seconds=math.nan)
    with pytest.raises(WorkloadError, match="threads: 0; expected at least 1"):
        solve_joint(ONE, [1], threads=0)


def test_a_width_that_does_not_fit_is_not_used():
    solution = solve_joint([[{1: math.inf, 2: 5.0}]], [2], method="dry-run")
    assert (solution.makespan, solution.visits[0][0].width) == (5, 2)


def test_numbers_of_numpy_are_read():
    times = [[{numpy.int64(1): numpy.float32(2)}]]
    assert solve_joint(times, numpy.array([1]), method="dry-run").makespan == 2


@pytest.mark.parametrize(("method", "package"), [("cp-sat", "ortools"), ("milp", "highspy")])
def test_a_missing_solver_is_named_with_its_extra(method, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as error:
        solve_joint(*GAP, method=method)
    assert str(error.value) == (
        f"method {method!r}: needs {package}, which is not installed; pip install 'hoptree[optimize]'"
    )


def test_auto_without_a_solver_is_a_dry_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    assert solve_joint(*GAP).visits == solve_joint(*GAP, method="dry-run").visits


WIDE = [[{1: 4.0, 2: 3.0}], [{1: 4.0}]]


@pytest.mark.parametrize(
    ("visits", "message"),
    [
        ([[(0, 4, (0,))], [(0, 4, (0,))]], "device 0 of node 0: visit [0][0] holds it from 0 to 4"),
        ([[(0, 4, (0,))], [(0, 5, (1,))]], "visit [1][0]: runs from 0 to 5; expected 4.0 s with 1 devices"),
        ([[(0, 3, (0, 0))], [(3, 7, (1,))]], "visit [0][0]: devices (0, 0)"),
        ([[(0, 4, (2,))], [(0, 4, (1,))]], "visit [0][0]: devices (2,); expected devices from 0 to 1"),
        ([[(0, 4, (0,))], [(0, 4, (0, 1))]], "visit [1][0]: devices (0, 1)"),
        ([[(-1, 3, (0,))], [(0, 4, (1,))]], "visit [0][0]: starts at -1"),
        ([[(0, 4, (0,))]], "visits: rows of [1]; expected 2 rows of 1"),
    ],
)
def test_verify_names_the_conflict(visits, message):
    solution = solve_joint(WIDE, [2], method="dry-run")
    rows = tuple(tuple(Visit(*visit) for visit in row) for row in visits)
    end = max(visit.end for row in rows for visit in row)
    with pytest.raises(InvariantError) as error:
        verify_joint(WIDE, [2], msgspec.structs.replace(solution, visits=rows, makespan=end))
    assert str(error.value).startswith(message)


def test_verify_checks_that_a_config_is_on_one_node_and_the_makespan():
    times, devices = [[{1: 2.0}, {1: 2.0}]], [1, 1]
    solution = solve_joint(times, devices, method="dry-run")
    both = ((Visit(0.0, 2.0, (0,)), Visit(1.0, 3.0, (0,))),)
    with pytest.raises(InvariantError, match="config 0: visit"):
        verify_joint(times, devices, msgspec.structs.replace(solution, visits=both, makespan=3.0))
    with pytest.raises(InvariantError, match="makespan: 5.0; expected 4.0"):
        verify_joint(times, devices, msgspec.structs.replace(solution, makespan=5.0))

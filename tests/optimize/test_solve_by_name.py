"""Valid arguments, and the errors for invalid ones."""

import math
import subprocess
import sys

import msgspec
import numpy
import pytest

from hoptree.core.errors import MissingExtraError, WorkloadError
from hoptree.optimize import lower_bound, solve
from tests.optimize.matrices import TAILLARD


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "times: no rows; expected one row of times for each config"),
        ([[]], "times[0]: no times; expected one time for each worker"),
        ([[1, 2], [3]], "times[1]: 1 times; expected 2 as in times[0]"),
        ([[1, 2], [1, 2], [3, math.nan]], "times[2][1]: nan; expected a finite time >= 0"),
        ([[1, math.inf]], "times[0][1]: inf; expected a finite time >= 0"),
        ([[1], [-2.5]], "times[1][0]: -2.5; expected a finite time >= 0"),
        ([[10**400]], f"times[0][0]: {10**400}; expected a finite time >= 0"),
        ([["1"]], "times[0][0]: 1; expected a finite time >= 0"),
        ([[None]], "times[0][0]: None; expected a finite time >= 0"),
        ([[1e308, 1e308]], "times: their sum is not finite; expected smaller times, in a larger unit"),
        ([1, 2], "times[0]: 1; expected a sequence"),
        (["12"], "times[0]: '12'; expected a sequence"),
        (5, "times: 5; expected a sequence"),
    ],
)
def test_bad_times_are_named(times, message):
    for ask in (solve, lower_bound):
        with pytest.raises(WorkloadError) as error:
            ask(times)
        assert str(error.value) == message


def test_the_error_for_an_unknown_method_lists_the_known_ones():
    with pytest.raises(WorkloadError) as error:
        solve([[1]], method="gurobi")
    assert str(error.value) == ("method: 'gurobi'; expected one of cp-sat, milp, vector, longest-path, random")


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_bad_seconds(seconds):
    with pytest.raises(WorkloadError, match=f"seconds: {seconds}; expected a time limit > 0"):
        solve([[1]], seconds=seconds)


@pytest.mark.parametrize("kind", [numpy.float32, numpy.float64, numpy.int64])
def test_numpy_arrays_are_read(kind):
    matrix = numpy.array([[1, 2], [2, 1]], dtype=kind)
    solution = solve(matrix, method="longest-path")
    assert solution == msgspec.structs.replace(
        solve(matrix.tolist(), method="longest-path"), seconds=solution.seconds
    )
    assert all(type(start) is float for row in solution.starts for start in row)


@pytest.mark.parametrize(("method", "package"), [("cp-sat", "ortools"), ("milp", "highspy"), ("vector", "numpy")])
def test_a_missing_solver_is_named_with_its_extra(method, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as error:
        solve(TAILLARD, method=method)
    assert str(error.value) == (
        f"method {method!r}: needs {package}, which is not installed; pip install 'hoptree[optimize]'"
    )


def test_lists_need_no_extra_and_the_import_is_fast():
    code = (
        "import sys; from hoptree.optimize import solve; solve([[1, 2], [3, 4]], method='longest-path'); "
        "print(sorted({'numpy', 'ortools', 'highspy', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""Properties of every method: feasible, never below the bound, and proofs are right."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hoptree.optimize import Solution, lower_bound, solve
from hoptree.optimize.schedule import check, makespan_of
from tests.optimize.matrices import METHODS, TAILLARD, any_time, matrices, optimum

small = matrices(st.integers(1, 3), st.integers(1, 3), st.integers(0, 9).map(float) | any_time)
HARD = ((2.0, 3.0, 1.0), (3.0, 1.0, 2.0), (4.0, 2.0, 3.0))
SWAP = ((1.0, 2.0), (2.0, 1.0))
FLOATS = ((0.1, 0.2, 0.7), (0.3, 0.30000000000000004, 0.1), (1.1, 0.6, 0.2))


def examine(times, solution: Solution) -> None:
    check(times, solution.starts)
    assert solution.makespan == makespan_of(times, solution.starts)
    assert solution.makespan >= solution.bound
    assert solution.bound >= lower_bound(times) * (1 - 1e-12)
    if solution.makespan <= lower_bound(times):
        assert solution.proven


@pytest.mark.parametrize("method", ["vector", "longest-path", "random"])
@settings(max_examples=150, deadline=None)
@given(times=matrices(), seed=st.integers(0, 3))
def test_quick_methods_give_a_feasible_schedule(method, times, seed):
    examine(times, solve(times, method=method, seed=seed))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(times=matrices(st.integers(1, 5), st.integers(1, 4)))
def test_cp_sat_gives_a_feasible_schedule(times):
    examine(times, solve(times, method="cp-sat", seconds=5))


@pytest.mark.parametrize("method", ["cp-sat", "vector", "longest-path"])
@settings(max_examples=60, deadline=None)
@given(times=small)
@example(times=HARD)
@example(times=SWAP)
@example(times=FLOATS)
@example(times=((0.0, 0.0), (0.0, 0.0)))
@example(times=((0.0, 5.0), (5.0, 0.0), (0.0, 0.0)))
def test_a_proof_is_the_optimum(method, times):
    solution = solve(times, method=method, seconds=5)
    examine(times, solution)
    best = optimum(times)
    assert solution.bound <= best * (1 + 1e-9)
    if method == "cp-sat":
        assert solution.proven
    if solution.proven:
        assert solution.makespan == pytest.approx(best, rel=2e-9)


@settings(max_examples=12, deadline=None)
@given(times=matrices(st.integers(2, 3), st.integers(2, 3), st.floats(0.5, 2)))
@example(times=HARD)
@example(times=FLOATS)
def test_milp_proves_the_optimum(times):
    solution = solve(times, method="milp", seconds=20)
    examine(times, solution)
    assert solution.proven
    assert solution.makespan == pytest.approx(optimum(times), rel=2e-6)


@pytest.mark.parametrize("method", ["cp-sat", "milp"])
def test_an_optimum_above_the_lower_bound_is_proven(method):
    solution = solve(TAILLARD, method=method, seconds=30)
    examine(tuple(tuple(map(float, row)) for row in TAILLARD), solution)
    assert lower_bound(TAILLARD) == 186
    assert solution.makespan == 193
    assert solution.bound == pytest.approx(193)
    assert solution.proven


@pytest.mark.parametrize("method", METHODS)
def test_out_of_time_there_is_still_a_schedule(method):
    solution = solve(TAILLARD, method=method, seconds=1e-9)
    examine(tuple(tuple(map(float, row)) for row in TAILLARD), solution)
    assert solution.method == method
    assert not solution.proven


def test_a_process_that_overruns_is_stopped(monkeypatch):
    monkeypatch.setattr("hoptree.optimize.highs_process.STARTUP_SECONDS", 0.0)
    monkeypatch.setattr("hoptree.optimize.highs_process.SECONDS_PER_ROW", 0.0)
    solution = solve(TAILLARD, method="milp", seconds=0.01)
    assert solution.makespan == 219
    assert solution.bound == 186


@pytest.mark.parametrize("method", METHODS)
def test_one_unit(method):
    solution = solve([[3]], method=method)
    assert (solution.makespan, solution.bound, solution.proven) == (3, 3, True)
    assert solution.starts == ((0,),)


@pytest.mark.parametrize("method", ["longest-path", "random", "vector"])
@settings(max_examples=50, deadline=None)
@given(times=matrices(times=st.floats(0, 1e300)))
@example(times=((5e-324, 1.0), (1e300, 1e-300)))
def test_times_of_any_size(method, times):
    examine(times, solve(times, method=method))

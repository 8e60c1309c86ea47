"""Properties of every method: feasible, never below the bound, and proofs are right."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hoptree.optimize import joint_lower_bound, solve, solve_joint, verify_joint
from tests.optimize.joint.problems import GAP, METHODS, any_seconds, optimum, problems, tiny
from tests.optimize.matrices import TAILLARD, matrices

LINEAR = ([[{1: 4.0, 2: 2.0, 4: 1.0}, {1: 2.0, 2: 1.0}]] * 3, [4, 2])
ZEROS = ([[{1: 0.0}, {1: 3.0, 2: 0.0}], [{1: 5.0}, {2: 4.0}]], [1, 2])
FREE = ([[{1: 0.0}]], [1])


def examine(problem, solution) -> None:
    verify_joint(*problem, solution)
    lower = joint_lower_bound(*problem)
    assert solution.makespan >= solution.bound
    assert solution.bound >= min(lower, solution.makespan) * (1 - 1e-12)
    if solution.makespan <= lower:
        assert solution.proven


ONE = [{1: 0.0}, {1: 0.0}, {1: 1.0}]
SHORT = ([ONE, ONE, ONE, [{1: 0.0}, {1: 0.0}, {1: 4e-57}]], [1, 2, 2])  # a visit that ends at its start in floats


@pytest.mark.parametrize("method", ["dry-run", "monte-carlo", "random"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(), seed=st.integers(0, 3))
@example(problem=ZEROS, seed=0)
@example(problem=FREE, seed=0)
def test_quick_methods_give_a_feasible_schedule(method, problem, seed):
    examine(problem, solve_joint(*problem, method=method, seed=seed))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(st.integers(1, 4), st.integers(1, 3), 3))
@example(problem=SHORT)
def test_auto_gives_a_feasible_schedule(problem):
    examine(problem, solve_joint(*problem, seconds=0.5, threads=1))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=tiny)
@example(problem=GAP)
@example(problem=LINEAR)
@example(problem=ZEROS)
@example(problem=FREE)
@example(problem=([[{1: 1e9}, {1: 1e-9}], [{1: 1e-9}, {1: 1e9}]], [1, 1]))
def test_cp_sat_proves_the_optimum(problem):
    solution = solve_joint(*problem, method="cp-sat", seconds=20, threads=1)
    examine(problem, solution)
    best = optimum(*problem)
    assert solution.proven
    assert solution.makespan == pytest.approx(best, rel=3e-9)
    assert joint_lower_bound(*problem) <= best * (1 + 1e-12)


@settings(max_examples=8, deadline=None)
@given(problem=problems(st.integers(2, 3), st.just(2), 2, st.floats(0.5, 2)))
@example(problem=GAP)
@example(problem=ZEROS)
def test_milp_proves_the_optimum(problem):
    solution = solve_joint(*problem, method="milp", seconds=30)
    examine(problem, solution)
    assert solution.proven
    assert solution.makespan == pytest.approx(optimum(*problem), rel=2e-6)


@pytest.mark.parametrize("method", ["cp-sat", "milp"])
def test_an_optimum_above_the_lower_bound_is_proven(method):
    solution = solve_joint(*GAP, method=method, seconds=30, threads=1)
    examine(GAP, solution)
    assert solution.proven
    assert joint_lower_bound(*GAP) < solution.makespan * 0.99
    assert solution.makespan == optimum(*GAP)


@settings(max_examples=12, deadline=None)
@given(problem=tiny, random=st.randoms(use_true_random=False))
def test_the_optimum_does_not_depend_on_the_order_of_configs(problem, random):
    times, devices = problem
    shuffled = random.sample(times, len(times))
    one, other = (solve_joint(rows, devices, seconds=20, threads=1) for rows in (times, shuffled))
    assert one.makespan == pytest.approx(other.makespan, rel=3e-9)


@settings(max_examples=15, deadline=None)
@given(times=matrices(st.integers(1, 3), st.integers(1, 3), any_seconds))
def test_nodes_of_one_device_are_an_open_shop(times):
    joint = solve_joint([[{1: time} for time in row] for row in times], [1] * len(times[0]), seconds=20, threads=1)
    assert joint.makespan == pytest.approx(solve(times, seconds=20).makespan, rel=3e-9)


@pytest.mark.parametrize("method", METHODS)
def test_out_of_time_there_is_still_a_schedule(method):
    problem = [[{1: float(time), 2: time * 0.7} for time in row] for row in TAILLARD], [2, 2, 2, 2]
    solution = solve_joint(*problem, method=method, seconds=1e-9)
    examine(problem, solution)
    assert solution.method == method
    assert not solution.proven


@pytest.mark.parametrize("method", METHODS)
def test_one_visit(method):
    solution = solve_joint([[{1: 4, 2: 3}]], [2], method=method)
    assert (solution.makespan, solution.bound, solution.proven) == (3, 3, True)
    assert solution.visits[0][0].devices == (0, 1)


@pytest.mark.parametrize("method", ["dry-run", "random"])
@settings(max_examples=40, deadline=None)
@given(problem=problems(seconds=st.floats(0, 1e300)))
@example(problem=([[{1: 5e-324}, {1: 1.0, 2: 1e-300}], [{1: 1e300, 2: 1e-300}, {1: 1.0}]], [2, 2]))
def test_times_of_any_size(method, problem):
    examine(problem, solve_joint(*problem, method=method))


def test_seeds_change_random_schedules_and_repeat_them():
    times = [[{1: 3.0 + i, 2: 2.0 + i * n} for n in range(4)] for i in range(5)]
    spans = [solve_joint(times, [2] * 4, method="random", seed=seed).makespan for seed in (*range(6), *range(6))]
    assert spans[:6] == spans[6:]
    assert len(set(spans)) > 1

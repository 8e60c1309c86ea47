"""Taillard's open shops come out of the generator as they are published."""

from __future__ import annotations

import pytest
from bench.decisions.taillard import SEEDS, generate, instance

from hoptree.core.errors import WorkloadError
from hoptree.optimize import lower_bound, solve

# The lower bounds that Taillard published: they depend on every time and on every machine. For 20 x 20 two
# rows of each of three published files stand in.
BOUNDS = {
    4: (186, 229, 262, 245, 287, 185, 197, 212, 258, 213),
    5: (295, 255, 321, 306, 321, 307, 298, 292, 349, 321),
    7: (435, 443, 468, 463, 416, 451, 422, 424, 458, 398),
    10: (637, 588, 598, 577, 640, 538, 616, 595, 595, 596),
    15: (937, 918, 871, 934, 946, 933, 891, 893, 899, 902),
}
LARGEST = {
    2: (
        (66, 65, 65, 49, 40, 84, 48, 7, 16, 27, 23, 51, 47, 64, 33, 64, 99, 54, 56, 52),
        (75, 30, 14, 68, 16, 97, 71, 36, 67, 97, 13, 71, 45, 54, 80, 43, 46, 17, 39, 55),
    ),
    7: (
        (63, 8, 50, 54, 58, 51, 93, 61, 50, 44, 29, 13, 15, 34, 22, 93, 27, 36, 76, 85),
        (44, 96, 7, 76, 49, 90, 65, 70, 74, 2, 16, 39, 85, 87, 81, 20, 56, 55, 1, 24),
    ),
    9: (
        (92, 22, 87, 56, 73, 81, 88, 16, 58, 23, 12, 21, 25, 33, 84, 73, 43, 56, 44, 7),
        (20, 84, 75, 70, 73, 21, 99, 6, 37, 78, 5, 52, 19, 3, 55, 99, 73, 79, 77, 73),
    ),
}


def test_the_first_instance_is_the_published_one() -> None:
    assert instance(4, 1) == ((34, 2, 54, 61), (15, 89, 70, 9), (38, 19, 28, 87), (95, 7, 34, 29))


@pytest.mark.parametrize("size", BOUNDS)
def test_instances_have_the_published_lower_bounds(size: int) -> None:
    assert tuple(lower_bound(instance(size, number)) for number in range(1, 11)) == BOUNDS[size]


@pytest.mark.parametrize("number", LARGEST)
def test_the_largest_instances_have_the_published_rows(number: int) -> None:
    rows = instance(20, number)
    assert (rows[0], rows[-1]) == LARGEST[number]


@pytest.mark.parametrize(("number", "optimum"), [(6, 189), (8, 217)])
def test_the_heuristic_leaves_a_solver_something_to_solve(number: int, optimum: int) -> None:
    times = instance(4, number)
    assert solve(times, method="longest-path").makespan > optimum > lower_bound(times)
    solution = solve(times, method="cp-sat")
    assert (solution.makespan, solution.proven) == (optimum, True)


def test_there_are_sixty_instances_and_no_two_are_equal() -> None:
    every = {instance(size, number) for size in SEEDS for number in range(1, len(SEEDS[size]) + 1)}
    assert len(every) == 60


def test_jobs_and_machines_may_differ_in_number() -> None:
    rows = generate(3, 5, 1, 1)
    assert [len(row) for row in rows] == [5, 5, 5]
    assert all(1 <= time <= 99 for row in rows for time in row)


@pytest.mark.parametrize(
    ("size", "number", "given"), [(6, 1, "size: 6"), (4, 0, "number: 0"), (4, 11, "number: 11")]
)
def test_unknown_instances_are_refused(size: int, number: int, given: str) -> None:
    with pytest.raises(WorkloadError, match=f"{given}; expected"):
        instance(size, number)


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_seeds_that_make_the_generator_constant_are_refused(seed: int) -> None:
    with pytest.raises(WorkloadError, match=f"seed: {seed}; expected"):
        generate(2, 2, seed, 1)

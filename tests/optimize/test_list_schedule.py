"""List schedulers: rotation for equal units, no needless waiting, seeds."""

from itertools import pairwise

import pytest
from hypothesis import given, settings

from hoptree.optimize.bounds import load_bound, worker_loads
from hoptree.optimize.list_schedule import longest_path, random_order, rotation
from hoptree.optimize.schedule import check, makespan_of
from hoptree.optimize.settings import paper_setting
from tests.optimize.matrices import matrices


@pytest.mark.parametrize("time", [1.0, 0.1])
def test_equal_configs_rotate_without_idle_workers(time):
    for configs in range(1, 14):
        for workers in range(1, 14):
            times = ((time,) * workers,) * configs
            starts = longest_path(times)
            check(times, starts)
            assert makespan_of(times, starts) == pytest.approx(max(configs, workers) * time, rel=1e-12)


def test_rotation_is_a_latin_rectangle():
    for configs in range(1, 14):
        for workers in range(1, 14):
            turns = rotation(configs, workers)
            lines = turns + [list(column) for column in zip(*turns, strict=True)]
            assert all(len(set(line)) == len(line) for line in lines)
            assert {turn for row in turns for turn in row} == set(range(max(configs, workers)))


@settings(deadline=None)
@given(times=matrices())
def test_no_worker_waits_while_a_config_is_ready(times):
    for starts in (longest_path(times), random_order(times, 0)):
        ends = [[s + t for s, t in zip(*rows, strict=True)] for rows in zip(starts, times, strict=True)]
        instants = sorted({instant for rows in (starts, ends) for row in rows for instant in row})
        long = 2e-9 * load_bound(times)
        moments = [(a + b) / 2 for a, b in pairwise(instants) if b - a > long]
        running = [
            {(i, j) for i, row in enumerate(times) for j in range(len(row)) if starts[i][j] < now < ends[i][j]}
            for now in moments
        ]
        for i, row in enumerate(times):
            for j, time in enumerate(row):
                for now, units in zip(moments, running, strict=True):
                    waits = time > 0 and now < starts[i][j]
                    assert not waits or any(i == config or j == worker for config, worker in units)


@settings(max_examples=200)
@given(times=matrices())
def test_the_makespan_is_within_a_config_of_the_load(times):
    makespan = makespan_of(times, random_order(times, 1))
    loads = worker_loads(times)
    most = max(loads[j] + sum(row) - row[j] for row in times for j in range(len(loads)))
    assert makespan <= most * (1 + 1e-9)


def test_random_order_is_seeded():
    times = paper_setting(16, 8, heterogeneous=True)
    assert random_order(times, 5) == random_order(times, 5)
    assert len({makespan_of(times, random_order(times, seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("workers", [8, 16])
def test_longest_path_meets_the_bound_of_the_large_settings(workers, seed):
    times = paper_setting(256, workers, heterogeneous=True, seed=seed)
    assert makespan_of(times, longest_path(times)) == pytest.approx(load_bound(times), rel=1e-9)

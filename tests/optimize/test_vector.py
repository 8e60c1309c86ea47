"""The guarantees of vector rearrangement, and of its vector sums."""

import math

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hoptree.optimize.bounds import worker_loads
from hoptree.optimize.schedule import check, makespan_of
from hoptree.optimize.settings import paper_setting
from hoptree.optimize.steinitz import compact_order, largest_sum, spans, steinitz_order
from hoptree.optimize.vector import pad, vector_rearrangement
from tests.optimize.matrices import matrices

times_alike = st.floats(0.25, 1) | st.sampled_from([0.0, 0.5, 1.0])


def examine(times) -> None:
    workers = len(times[0])
    load, longest = max(worker_loads(times)), max(map(max, times))
    starts = vector_rearrangement(times, seconds=60)
    check(times, starts)
    assert makespan_of(times, starts) <= (load + (workers - 1) * longest) * (1 + 1e-9)
    if load >= (workers**2 + workers - 1) * longest:
        assert makespan_of(times, starts) <= load * (1 + 1e-9)


@settings(max_examples=150, deadline=None)
@given(times=matrices())
def test_never_further_from_the_load_than_the_guarantee(times):
    examine(times)


@pytest.mark.parametrize(("workers", "configs"), [(2, 24), (3, 40), (4, 60)])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_optimal_with_much_work(workers, configs, data):
    times = data.draw(matrices(st.integers(configs - 5, configs + 5), st.just(workers), times_alike))
    load, longest = max(worker_loads(times)), max(map(max, times))
    assume(load >= (workers**2 + workers - 1) * longest)
    examine(times)


@pytest.mark.parametrize("workers", [8, 16])
def test_optimal_in_the_large_settings(workers):
    times = paper_setting(256, workers, heterogeneous=True)
    starts = vector_rearrangement(times, seconds=60)
    assert makespan_of(times, starts) == pytest.approx(max(worker_loads(times)), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(times=matrices())
def test_padding_balances_the_loads_within_the_bound(times):
    padded = pad(times)
    longest = max(map(max, times))
    load = max(worker_loads(times))
    assert worker_loads(padded) == pytest.approx([load] * len(times[0]), rel=1e-9)
    for row, before in zip(padded, times, strict=True):
        for time, old in zip(row, before, strict=True):
            assert old * (1 - 1e-9) <= time <= longest * (1 + 1e-9)


coordinate = st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1e-9, 1.0])


@settings(max_examples=200, deadline=None)
@given(data=st.data(), count=st.integers(1, 25), workers=st.integers(1, 6))
def test_partial_sums_stay_within_the_dimensions(data, count, workers):
    row = st.lists(coordinate, min_size=workers, max_size=workers)
    vectors = numpy.array(data.draw(st.lists(row, min_size=count, max_size=count)))
    vectors -= vectors.mean(axis=0)
    most = (workers - 1) * spans(vectors).max() + 1e-8
    for order in (compact_order(vectors, math.inf), steinitz_order(vectors, math.inf)):
        assert sorted(order) == list(range(count))
        assert largest_sum(vectors, order) <= most


def test_out_of_time_it_is_a_list_schedule():
    times = paper_setting(256, 16, heterogeneous=True)
    starts = vector_rearrangement(times, seconds=-1)
    check(times, starts)
    longest = max(map(max, times))
    assert makespan_of(times, starts) <= max(worker_loads(times)) + 15 * longest

"""Parameters: numbers from 0 to 1 become values within bounds, on the grid, with the right probabilities."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.search.parsed_parameters import Continuous, Stepped, Whole, index_at
from hoptree.search.streams import share

SHARES = st.floats(0, 1, exclude_max=True) | st.just(math.nextafter(1, 0))
BOUNDS = st.floats(-1e300, 1e300)
POSITIVE = st.floats(1e-300, 1e300)
TENTHS = st.integers(-1000, 1000).map(lambda n: n / 10)


@given(st.tuples(BOUNDS, BOUNDS).map(sorted), SHARES)
def test_a_uniform_number_is_within_its_bounds(bounds: list[float], at: float):
    value = Continuous("x", *bounds, log=False).at(at)
    assert bounds[0] <= value <= bounds[1]


@given(st.tuples(POSITIVE, POSITIVE).map(sorted), SHARES)
def test_a_log_number_is_within_its_bounds(bounds: list[float], at: float):
    value = Continuous("x", *bounds, log=True).at(at)
    assert bounds[0] <= value <= bounds[1]


@given(TENTHS, st.integers(1, 500), st.integers(1, 200), SHARES)
def test_a_number_with_a_step_is_exactly_on_its_grid(low: float, step: int, steps: int, at: float):
    size, high = step / 100, float(Decimal(repr(low)) + steps * Decimal(step) / 100)
    parameter = Stepped("x", low, high, size)
    assert parameter.count == steps + 1
    index = parameter.at(at)
    assert 0 <= index <= steps
    assert parameter.value(index) == float(Decimal(repr(low)) + index * Decimal(repr(size)))
    assert parameter.value(0) == low
    assert parameter.value(steps) == high


def test_steps_that_do_not_reach_the_end_stop_before_it():
    parameter = Stepped("x", 0.0, 1.0, 0.3)
    assert [parameter.value(index) for index in range(parameter.count)] == [0.0, 0.3, 0.6, 0.9]


@given(st.integers(-(2**53), 2**53), st.integers(0, 2**53), st.integers(1, 1000), SHARES)
def test_a_whole_number_is_within_its_bounds(low: int, span: int, step: int, at: float):
    parameter = Whole("x", low, low + span, step, log=False)
    value = parameter.value(parameter.at(at))
    assert low <= value <= low + span
    assert (value - low) % step == 0
    assert parameter.value(parameter.count - 1) + step > low + span


@given(st.integers(1, 10**6), st.integers(0, 10**6), SHARES)
def test_a_log_whole_number_is_within_its_bounds(low: int, span: int, at: float):
    parameter = Whole("x", low, low + span, 1, log=True)
    assert low <= parameter.value(parameter.at(at)) <= low + span


@given(st.integers(1, 10**9))
def test_shares_reach_the_first_and_the_last_index(count: int):
    assert index_at(0.0, count) == 0
    assert index_at(math.nextafter(1, 0), count) == count - 1


@given(st.lists(st.text() | st.integers(), min_size=1))
def test_streams_give_numbers_from_zero_to_one(parts: list[object]):
    assert 0 <= share(*parts) < 1
    assert share(*parts) == share(*parts)


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        (Whole("x", 1, 4, 1, log=False), {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}),
        (Stepped("x", 0.0, 1.0, 0.5), {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}),
        # each whole number owns the part of the log range nearest to it
        (Whole("x", 8, 24, 8, log=True), {0: 0.565, 1: 0.263, 2: 0.173}),  # ln 3, ln 5/3 and ln 7/5, over ln 7
        (Stepped("x", 0.1, 0.3, 0.1, log=True), {0: 0.565, 1: 0.263, 2: 0.173}),
        (Stepped("x", 0.1, 0.9, 0.4, log=True), {0: 0.580, 1: 0.274, 2: 0.146}),  # the first from half of it on
        (Whole("x", 1, 3, 1, log=True), {k - 1: math.log((k + 0.5) / (k - 0.5)) / math.log(7) for k in (1, 2, 3)}),
    ],
)
def test_values_are_as_likely_as_they_should_be(parameter: Whole | Stepped, expected: dict[int, float]):
    draws = 20_000
    found = Counter(parameter.at(share(0, "x", draw)) for draw in range(draws))
    assert {index: found[index] / draws for index in expected} == pytest.approx(expected, abs=0.02)


def test_decades_are_equally_likely_in_a_log_range():
    parameter = Continuous("lr", 1e-4, 1.0, log=True)
    found = Counter(math.floor(math.log10(parameter.at(share(3, "lr", draw)))) for draw in range(20_000))
    assert [found[decade] / 20_000 for decade in (-4, -3, -2, -1)] == pytest.approx([0.25] * 4, abs=0.02)


def test_streams_of_two_parameters_are_unrelated():
    pairs = [(share(0, "a", n), share(0, "b", n)) for n in range(20_000)]
    assert sum((a - 0.5) * (b - 0.5) for a, b in pairs) / len(pairs) == pytest.approx(0, abs=0.003)
    assert sum(a for a, _ in pairs) / len(pairs) == pytest.approx(0.5, abs=0.01)

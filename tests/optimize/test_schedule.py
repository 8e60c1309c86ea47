"""A checker that finds conflicts, starts that follow from an order, and ticks that bound times."""

import re
from fractions import Fraction

import pytest
from hypothesis import given

from hoptree.core.errors import InvariantError
from hoptree.optimize.bounds import load_bound
from hoptree.optimize.grid import TOLERANCE, to_grid
from hoptree.optimize.schedule import check, earliest_starts, order_by_start
from tests.optimize.matrices import matrices


@pytest.mark.parametrize(
    ("times", "starts", "message"),
    [
        (((2.0, 1.0),), ((0.0, 1.0),), "config 0: unit [0][0] holds it from 0.0 to 2.0 and unit [0][1] from 1.0"),
        (((2.0,), (1.0,)), ((0.5,), (0.0,)), "worker 0: unit [1][0] holds it from 0.0 to 1.0 and unit [0][0]"),
        (((2.0, 0.0),), ((0.0, 1.0),), "config 0: unit [0][0] holds it from 0.0 to 2.0 and unit [0][1] from 1.0"),
        (((2.0,),), ((-1.0,),), "starts[0][0]: -1.0; expected a start >= 0"),
        (((2.0,),), ((float("nan"),),), "starts[0][0]: nan; expected a start >= 0"),
        (((2.0, 1.0),), ((0.0,),), "starts: rows of [1]; expected the shape of times, rows of [2]"),
    ],
)
def test_a_clash_is_named(times, starts, message):
    with pytest.raises(InvariantError, match=re.escape(message)):
        check(times, starts)


def test_touching_units_do_not_clash():
    check(((2.0, 1.0, 0.0), (1.0, 2.0, 0.0)), ((0.0, 2.0, 2.0), (2.0, 0.0, 3.0)))


@given(times=matrices())
def test_any_order_gives_a_feasible_schedule(times):
    order = [(i, j) for i, row in enumerate(times) for j in range(len(row))]
    starts = earliest_starts(times, order)
    check(times, starts)
    again = earliest_starts(times, order_by_start(times, starts))
    assert all(a <= b for rows in zip(again, starts, strict=True) for a, b in zip(*rows, strict=True))


@given(times=matrices())
def test_ticks_are_rounded_down_and_hardly(times):
    grid = to_grid(times)
    lost = Fraction(0)
    for row, ticks in zip(times, grid.ticks, strict=True):
        for time, tick in zip(row, ticks, strict=True):
            loss = Fraction(time) - tick * grid.tick
            assert 0 <= loss <= grid.tick
            lost += loss
    assert lost <= grid.error * grid.tick <= load_bound(times) * TOLERANCE / 2


def test_whole_numbers_are_exact():
    grid = to_grid(((4.0, 6.0), (0.0, 10.0)))
    assert grid.ticks == ((2, 3), (0, 5))
    assert grid.error == 0
    assert grid.time(5) == 10

"""Schedules: their values, how far two of them agree, and what is refused."""

from __future__ import annotations

import math
import struct
from itertools import islice, pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.errors import ScheduleError
from hoptree.core.schedules import (
    Form,
    Scalar,
    Schedule,
    as_schedule,
    constant,
    cosine,
    cyclic,
    exponential,
    linear,
    multistep,
    piecewise,
    warmup,
)
from tests.core.strategies import numeric, pairs

quick = settings(max_examples=150, deadline=None)
typed = st.sampled_from([0, 0.0, 1, 1.0, 2, 2.0, 0.5])


def bits(value: Scalar) -> tuple[str, object]:
    """Return a value so that equal means the same type and the same bits."""
    return type(value).__name__, struct.pack("<d", value) if isinstance(value, float) else value


def form_at(schedule: Schedule, progress: float) -> Form:
    form = None
    for piece in schedule.pieces():
        if piece.start > progress:
            break
        form = piece.form
    assert form is not None
    return form


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (constant("adam"), {0: "adam", 1e9: "adam"}),
        (constant(None), {3: None}),
        (constant(True), {3: True}),
        (linear(1.0, 0.0, over=4), {0: 1.0, 1: 0.75, 3.5: 0.125, 4: 0.0, 100: 0.0}),
        (linear(0.5, 0.5, over=4), {0: 0.5, 2: 0.5, 9: 0.5}),
        (exponential(8.0, 0.5), {0: 8.0, 1: 4.0, 3: 1.0, 0.5: 8.0 * 0.5**0.5}),
        (multistep(1.0, at=[2, 5], gamma=0.5), {0: 1.0, 1.999: 1.0, 2: 0.5, 4.999: 0.5, 5: 0.25, 1e6: 0.25}),
        (multistep(0.1, at=[], gamma=0.5), {0: 0.1, 50: 0.1}),
        (multistep(64, at=[2], gamma=2), {0: 64, 2: 128}),
        (cyclic(0.0, 1.0, up=2, down=4), {0: 0.0, 1: 0.5, 2: 1.0, 4: 0.5, 6: 0.0, 7: 0.5, 8: 1.0, 12: 0.0}),
        (cyclic(0.5, 0.5, up=1, down=1), {0: 0.5, 7.25: 0.5}),
        (cosine(1.0, period=10), {0: 1.0, 5: 0.5, 10: 1.0, 15: 0.5}),
        (cosine(1.0, 0.5, period=2, gamma=2.0), {0: 1.0, 1: 0.75, 2: 1.0, 4: 0.75, 6: 1.0, 10: 0.75}),
        (cosine(0.3, 0.3, period=2), {0: 0.3, 1: 0.3}),
        (warmup(0.0, 4, constant(1.0)), {0: 0.0, 1: 0.25, 4: 1.0, 9: 1.0}),
        (warmup(0.0, 4, 1.0), {0: 0.0, 2: 0.5, 4: 1.0}),
        (warmup(0.0, 4, multistep(1.0, at=[2], gamma=0.5)), {2: 0.5, 5.9: 1.0, 6: 0.5}),
        (piecewise([1.0, linear(1.0, 0.0, over=2), "off"], at=[3, 4]), {0: 1.0, 3: 1.0, 3.5: 0.75, 4: "off"}),
        (piecewise([0.1], at=[]), {0: 0.1}),
        (piecewise([cyclic(0.0, 1.0, up=1, down=1), 5.0], at=[2.5]), {2.25: 0.25, 2.5: 5.0}),
    ],
)
def test_values_at_given_progress(schedule: Schedule, values: dict[float, Scalar]):
    assert {progress: schedule(progress) for progress in values} == pytest.approx(values)


@pytest.mark.parametrize("value", [0.1, 3, True, "adam", None, linear(0.0, 1.0, over=2)])
def test_a_plain_value_is_a_constant_and_a_schedule_is_itself(value: Scalar | Schedule):
    schedule = as_schedule(value)
    assert schedule == (value if isinstance(value, Schedule) else constant(value))
    assert as_schedule(schedule) is schedule


@quick
@given(numeric())
def test_pieces_begin_at_zero_increase_and_change_form(schedule: Schedule):
    pieces = list(islice(schedule.pieces(), 30))
    assert pieces[0].start == 0
    for one, two in pairwise(pieces):
        assert one.start < two.start
        assert one.form != two.form


@quick
@given(numeric(), st.floats(0, 20))
def test_a_warmup_is_a_line_and_then_the_other_schedule_later(schedule: Schedule, progress: float):
    later = warmup(0.25, 2, schedule)
    first = schedule(0.0)
    assert isinstance(first, int | float)
    assert later(0.0) == 0.25
    assert later(1.0) == pytest.approx((0.25 + first) / 2)
    assert later(2.0 + progress) == pytest.approx(schedule(progress), rel=1e-9, abs=1e-9)


# --- agreement --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "until"),
    [
        (constant(0.1), multistep(0.1, at=[40], gamma=0.1), 40),
        (constant(0.1), multistep(0.1, at=[40], gamma=1.0), math.inf),
        (constant(0.1), constant(0.2), 0),
        (constant("adam"), constant("adam"), math.inf),
        (constant("adam"), constant("sgd"), 0),
        (multistep(0.1, at=[40], gamma=0.1), multistep(0.1, at=[40, 60], gamma=0.1), 60),
        (multistep(0.1, at=[40], gamma=0.1), multistep(0.1, at=[40], gamma=0.5), 40),
        (multistep(0.1, at=[30], gamma=0.1), multistep(0.1, at=[40], gamma=0.1), 30),
        # a warmup into two schedules with the same first value: until it ends, or as long as they agree
        (warmup(0.0, 5, exponential(0.1, 0.9)), warmup(0.0, 5, cosine(0.1, period=5)), 5),
        (warmup(0.0, 5, constant(0.1)), warmup(0.0, 5, multistep(0.1, at=[30], gamma=0.1)), 35),
        (warmup(0.0, 5, constant(0.1)), warmup(0.0, 5, constant(0.2)), 0),
        (warmup(0.0, 5, constant(0.1)), warmup(0.0, 6, constant(0.1)), 0),
        (linear(0.0, 0.1, over=5), warmup(0.0, 5, constant(0.1)), math.inf),
        (linear(0.0, 1.0, over=2), cyclic(0.0, 1.0, up=2, down=2), 2),
        (linear(0.0, 1.0, over=2), linear(0.0, 2.0, over=4), 2),
        (cyclic(0.0, 1.0, up=2, down=2), cyclic(0.0, 1.0, up=2, down=4), 2),
        (cosine(1.0, period=4), cosine(1.0, period=4, gamma=2.0), 4),
        (cosine(1.0, period=4), piecewise([cosine(1.0, period=4)], at=[]), 4 * 9_999),
        (exponential(0.1, 1.0), constant(0.1), math.inf),
        (piecewise([0.1, 0.2], at=[3]), multistep(0.1, at=[3], gamma=2.0), math.inf),
        (piecewise([0.1, 0.1, 0.3], at=[2, 7]), constant(0.1), 7),
        (piecewise([cyclic(0.0, 1.0, up=1, down=1), 0.5], at=[9.5]), cyclic(0.0, 1.0, up=1, down=1), 9.5),
    ],
)
def test_agreement_of_examples(one: Schedule, two: Schedule, until: float):
    assert one.agrees_until(two) == until
    assert two.agrees_until(one) == until


@quick
@given(pairs())
def test_agreement_is_reflexive_and_symmetric(pair: tuple[Schedule, Schedule]):
    one, two = pair
    assert one.agrees_until(one) == math.inf
    assert one.agrees_until(two) == two.agrees_until(one)


@settings(max_examples=300, deadline=None)
@given(pairs(), st.lists(st.floats(0, 1), max_size=8))
def test_below_the_agreement_all_bits_are_equal(pair: tuple[Schedule, Schedule], shares: list[float]):
    one, two = pair
    until = min(one.agrees_until(two), 20.0)
    starts = [piece.start for schedule in pair for piece in islice(schedule.pieces(), 10)]
    edges = [near for start in starts for near in (start, math.nextafter(start, math.inf))]
    below = [math.nextafter(until, -math.inf), *(share * until for share in shares), *edges]
    for progress in (p for p in below if 0 <= p < until):
        assert bits(one(progress)) == bits(two(progress))


@quick
@given(pairs())
def test_where_the_agreement_ends_the_forms_differ(pair: tuple[Schedule, Schedule]):
    one, two = pair
    until = one.agrees_until(two)
    if until < 1_000:  # endless ones that agree are followed for 10,000 pieces
        assert form_at(one, until) != form_at(two, until)


@quick
@given(numeric(), numeric(), st.integers(1, 40))
def test_a_schedule_agrees_with_its_own_beginning(one: Schedule, two: Schedule, at: int):
    assert one.agrees_until(piecewise([one, two], at=[at])) >= at


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (multistep(1, at=[3], gamma=1), multistep(1.0, at=[3], gamma=2.0)),
        (constant(1), multistep(1.0, at=[3], gamma=0.5)),
        (constant(True), multistep(1, at=[3], gamma=2)),
        (constant("1"), multistep(1, at=[3], gamma=2)),
        (constant(None), multistep(0, at=[3], gamma=2)),
    ],
)
def test_equal_numbers_of_different_types_differ(one: Schedule, two: Schedule):
    assert one.agrees_until(two) == 0


# --- as data ----------------------------------------------------------------------------------------------


@quick
@given(numeric(typed) | st.builds(constant, st.none() | st.booleans() | st.text(max_size=5) | st.integers()))
def test_json_keeps_a_schedule_and_the_types_of_its_values(schedule: Schedule):
    text = msgspec.json.encode(schedule)
    read = msgspec.json.decode(text, type=Schedule)
    assert read == schedule
    assert list(islice(read.pieces(), 20)) == list(islice(schedule.pieces(), 20))
    for progress in (0.0, 0.3, 1.0, 7.7):
        assert bits(read(progress)) == bits(schedule(progress))


def test_a_schedule_can_be_printed_and_kept_in_a_set():
    schedule = warmup(0.0, 5, multistep(0.1, at=[30], gamma=0.1))
    assert str(schedule) == "warmup(0.0, 5, multistep(0.1, [30], 0.1))"
    assert len({schedule, warmup(0.0, 5, multistep(0.1, at=[30], gamma=0.1))}) == 1


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, "0.1", None, True, [0.1]])
@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("start", lambda x: linear(x, 1.0, over=2)),
        ("end", lambda x: linear(1.0, x, over=2)),
        ("over", lambda x: linear(1.0, 2.0, over=x)),
        ("init", lambda x: exponential(x, 0.5)),
        ("gamma", lambda x: exponential(1.0, x)),
        ("init", lambda x: multistep(x, at=[1], gamma=0.5)),
        ("at[0]", lambda x: multistep(1.0, at=[x], gamma=0.5)),
        ("at[1]", lambda x: multistep(1.0, at=[1, x], gamma=0.5)),
        ("gamma", lambda x: multistep(1.0, at=[1], gamma=x)),
        ("init", lambda x: cyclic(x, 1.0, up=1, down=1)),
        ("peak", lambda x: cyclic(1.0, x, up=1, down=1)),
        ("up", lambda x: cyclic(1.0, 2.0, up=x, down=1)),
        ("down", lambda x: cyclic(1.0, 2.0, up=1, down=x)),
        ("init", lambda x: cosine(x, period=1)),
        ("low", lambda x: cosine(1.0, x, period=1)),
        ("period", lambda x: cosine(1.0, period=x)),
        ("gamma", lambda x: cosine(1.0, period=1, gamma=x)),
        ("init", lambda x: warmup(x, 5, 0.1)),
        ("period", lambda x: warmup(0.0, x, 0.1)),
        ("at[0]", lambda x: piecewise([1.0, 2.0], at=[x])),
    ],
)
def test_a_value_that_is_not_a_finite_number_is_refused_by_field(field: str, make, wrong: object):
    with pytest.raises(ScheduleError) as caught:
        make(wrong)
    assert str(caught.value).startswith(f"{field}: {wrong!r}; expected")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear(0.0, 1.0, over=0), "over: 0; expected a number above 0"),
        (lambda: cyclic(0.0, 1.0, up=0, down=1), "up: 0; expected a number above 0"),
        (lambda: cyclic(0.0, 1.0, up=1, down=-1), "down: -1; expected a number above 0"),
        (lambda: cosine(1.0, period=0), "period: 0; expected a number above 0"),
        (lambda: cosine(1.0, period=1, gamma=0.5), "gamma: 0.5; expected 1 or more"),
        (lambda: warmup(0.0, 0, 0.1), "period: 0; expected a number above 0"),
        (lambda: exponential(1.0, 0), "gamma: 0; expected a number above 0"),
        (lambda: exponential(1.0, -0.5), "gamma: -0.5; expected a number above 0"),
        (lambda: multistep(0.1, at=[0], gamma=0.1), "at[0]: 0; expected a number above 0"),
        (lambda: multistep(0.1, at=[-4], gamma=0.1), "at[0]: -4; expected a number above 0"),
        (lambda: multistep(0.1, at=[40, 20], gamma=0.1), "at[1]: 20 comes after 40; expected increasing"),
        (lambda: multistep(0.1, at=[10, 20, 20], gamma=0.1), "at[2]: 20 comes after 20; expected increasing"),
        (lambda: piecewise([1, 2, 3], at=[5, 4]), "at[1]: 4 comes after 5; expected increasing"),
        (lambda: piecewise([1, 2], at=[]), "at: 0 milestones for 2 parts; expected one fewer"),
        (lambda: piecewise([1], at=[3]), "at: 1 milestones for 1 parts; expected one fewer"),
        (lambda: piecewise([], at=[]), "at: 0 milestones for 0 parts; expected one fewer"),
        (lambda: warmup(0.0, 5, "adam"), "into: begins with 'adam'; a warmup needs"),
        (lambda: warmup(0.0, 5, None), "into: begins with None; a warmup needs"),
        (lambda: warmup(0.0, 5, piecewise([True, 0.1], at=[1])), "into: begins with True; a warmup needs"),
        (lambda: constant(math.nan), "value: nan; expected a finite number"),
        (lambda: constant(-math.inf), "value: -inf; expected a finite number"),
        (lambda: constant([1]), "value: [1]; expected a number, a string, a boolean or None"),
        (lambda: constant(0.1)(-1), "progress: -1; expected a number of epochs"),
        (lambda: constant(0.1)(math.nan), "progress: nan; expected a number of epochs"),
    ],
)
def test_impossible_values_are_refused_by_field(make, message: str):
    with pytest.raises(ScheduleError) as caught:
        make()
    assert str(caught.value).startswith(message)

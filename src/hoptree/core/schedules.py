"""Schedules: hyper-parameter values as functions of training progress, counted in epochs.

A schedule is a sequence of *pieces*; a piece holds from its start until the next one and has a *form*: a
constant, a line, an exponential or half a cosine, with the progress it counts from. Values are computed from
the form alone, so two schedules give the same bits exactly as far as their pieces have equal forms. So comparing
forms, never samples, tells until when two schedules are identical, and what their trials can share.

    >>> constant(0.1).agrees_until(multistep(0.1, at=[40], gamma=0.1))
    40.0
    >>> warmup(0.0, 5, constant(0.1)).agrees_until(warmup(0.0, 5, multistep(0.1, at=[30], gamma=0.1)))
    35.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias, final

import msgspec

from hoptree.core.errors import ScheduleError
from hoptree.core.plain_values import (
    is_text,
    milestones_argument,
    number_argument,
    period_argument,
    plain,
    positive_argument,
)

Scalar: TypeAlias = bool | int | float | str | None


class Form(NamedTuple):
    """The function of a piece: ``kind`` and its numbers, the first being its origin."""

    kind: str
    type: str
    numbers: tuple[Scalar, ...]

    def at(self, progress: float) -> Scalar:
        """Return the value at a progress within the piece."""
        try:
            value: Scalar = _EVALUATE[self.kind](progress, *self.numbers)
        except OverflowError:
            raise ScheduleError(
                f"{self.kind}{self.numbers}: the value at progress {progress} is too large for a float"
            ) from None
        return value


class Piece(NamedTuple):
    """One stretch of a schedule: from ``start`` until the start of the next piece."""

    start: float
    form: Form


@final
class Schedule(msgspec.Struct, frozen=True):
    """A value as a function of progress; created by the functions of this module.

    ``kind`` and ``arguments`` are what the user wrote; a journal holds them as plain data.
    """

    kind: str
    arguments: tuple[Scalar | Schedule | tuple[Scalar | Schedule, ...], ...]

    def __post_init__(self) -> None:
        if self.kind not in _PIECES:
            raise ScheduleError(f"kind: {self.kind!r}; expected one of {', '.join(_PIECES)}")

    def __call__(self, progress: float) -> Scalar:
        """Return the value at ``progress`` epochs.

        >>> linear(0.0, 1.0, over=10)(2.5)
        0.25
        """
        if not (progress >= 0 and math.isfinite(progress)):
            raise ScheduleError(f"progress: {progress!r}; expected a number of epochs, 0 or more")
        form = Form("constant", "NoneType", (None,))
        for piece in self.pieces():
            if piece.start > progress:
                break
            form = piece.form
        return form.at(progress)

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order, neighbours of equal form joined; cyclic schedules yield without end."""
        last: Form | None = None
        for piece in _PIECES[self.kind](0.0, *self.arguments):
            if piece.form != last:
                yield piece
            last = piece.form

    def agrees_until(self, other: Schedule) -> float:
        """Return the progress up to which both give identical values (``inf`` if they never differ)."""
        if repr(self) == repr(other):  # equal and of equal types: 1, 1.0 and True are three values
            return math.inf
        return agreement(self.pieces(), other.pieces())

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(_text, self.arguments))})"


Value: TypeAlias = Scalar | Schedule
Config: TypeAlias = dict[str, Value]


def agreement(one: Iterator[Piece], two: Iterator[Piece]) -> float:
    """Return where two sequences of joined pieces first differ in form.

    Endless sequences are compared for 10,000 pieces: beyond that they do not count as equal.
    """
    reached = 0.0
    for _ in range(10_000):
        a, b = next(one, None), next(two, None)
        if a is None and b is None:
            return math.inf
        if a is None or b is None or a.form != b.form or a.start != b.start:
            return min(piece.start for piece in (a, b) if piece is not None)
        reached = a.start
    return reached


def as_schedule(value: Value) -> Schedule:
    """Return ``value`` itself if it is a schedule, else the schedule that is always ``value``."""
    return value if isinstance(value, Schedule) else constant(value)


# --- constructors for users -------------------------------------------------------------------------------


def constant(value: Scalar) -> Schedule:
    """Return the schedule that is always ``value`` (a number, a string, a boolean or None)."""
    value = plain(value)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ScheduleError(f"value: {value!r}; expected a number, a string, a boolean or None")
    if isinstance(value, str) and not is_text(value):
        raise ScheduleError(f"value: {value!r}; expected text that UTF-8 can encode, without lone surrogates")
    return Schedule("constant", (number_argument("value", value) if isinstance(value, float) else value,))


def linear(start: float, end: float, over: float) -> Schedule:
    """Go from ``start`` to ``end`` in a straight line over that many epochs, then stay.

    >>> linear(1.0, 0.0, over=4)(3)
    0.25
    """
    numbers = (number_argument("start", start), number_argument("end", end), positive_argument("over", over))
    if not math.isfinite((numbers[1] - numbers[0]) / numbers[2]):
        raise ScheduleError(
            f"over: {over!r}; expected a longer time: the slope from {start!r} to {end!r} is not finite"
        )
    return Schedule("linear", numbers)


def exponential(init: float, gamma: float) -> Schedule:
    """Multiply by ``gamma`` every epoch, smoothly.

    >>> exponential(8.0, 0.5)(2)
    2.0
    """
    return Schedule("exponential", (number_argument("init", init), positive_argument("gamma", gamma)))


def multistep(init: float, at: Sequence[float], gamma: float) -> Schedule:
    """Multiply by ``gamma`` at each of the milestones; whole numbers stay whole.

    >>> [multistep(64, at=[2, 4], gamma=2)(epoch) for epoch in range(5)]
    [64, 64, 128, 128, 256]
    """
    first, milestones, factor = (
        number_argument("init", init),
        milestones_argument("at", at),
        number_argument("gamma", gamma),
    )
    try:
        finite = math.isfinite(first * factor ** len(milestones))
    except OverflowError:
        finite = False
    if not finite:
        raise ScheduleError(
            f"gamma: {gamma!r}, multiplied {len(milestones)} times, makes the value too large for a float"
        )
    return Schedule("multistep", (first, milestones, factor))


def cyclic(init: float, peak: float, up: float, down: float) -> Schedule:
    """Go up from ``init`` to ``peak`` in ``up`` epochs and back in ``down``, again and again.

    >>> cyclic(0.0, 1.0, up=2, down=2)(5)
    0.5
    """
    numbers = (
        number_argument("init", init),
        number_argument("peak", peak),
        period_argument("up", up),
        period_argument("down", down),
    )
    return Schedule("cyclic", numbers)


def cosine(init: float, low: float = 0.0, *, period: float, gamma: float = 1.0) -> Schedule:
    """Fall from ``init`` to ``low`` along half a cosine, then restart; each period ``gamma`` times longer.

    >>> cosine(1.0, period=10)(5)
    0.5
    """
    growth = number_argument("gamma", gamma)
    if not growth >= 1:
        raise ScheduleError(f"gamma: {gamma!r}; expected 1 or more, so that periods do not shrink")
    return Schedule(
        "cosine",
        (number_argument("init", init), number_argument("low", low), period_argument("period", period), growth),
    )


def warmup(init: float, period: float, into: Value) -> Schedule:
    """Rise in a line from ``init`` to where ``into`` begins, over ``period`` epochs; then follow ``into``.

    >>> warmup(0.0, 5, constant(0.1))(2.5)
    0.05
    """
    follow = _part("into", into)
    target = follow(0.0)
    if isinstance(target, str | bool) or target is None:
        raise ScheduleError(f"into: begins with {target!r}; a warmup needs a schedule of numbers")
    return Schedule("warmup", (number_argument("init", init), positive_argument("period", period), follow))


def piecewise(parts: Sequence[Value], at: Sequence[float]) -> Schedule:
    """Follow the first part, and switch to the next at each milestone; every part counts from its own start.

    >>> piecewise([constant(1.0), linear(1.0, 0.0, over=2)], at=[3])(4)
    0.5
    """
    milestones = milestones_argument("at", at)
    if isinstance(parts, str) or not isinstance(parts, Sequence):
        raise ScheduleError(f"parts: {parts!r}; expected a list of schedules or values")
    if len(parts) != len(milestones) + 1:
        raise ScheduleError(
            f"at: {len(milestones)} milestones for {len(parts)} parts; expected one fewer milestone than parts"
        )
    follow = tuple(_part(f"parts[{index}]", part) for index, part in enumerate(parts))
    return Schedule("piecewise", (follow, milestones))


# --- pieces of each kind ----------------------------------------------------------------------------------


def _constant(origin: float, value: Scalar) -> Iterator[Piece]:
    yield Piece(origin, Form("constant", type(value).__name__, (value,)))


def _linear(origin: float, start: float, end: float, over: float) -> Iterator[Piece]:
    yield _line(origin, start, end, over)
    yield from _constant(origin + over, float(end))


def _line(origin: float, start: float, end: float, over: float) -> Piece:
    slope = (end - start) / over
    if slope == 0:
        return Piece(origin, Form("constant", "float", (float(start),)))
    return Piece(origin, Form("linear", "float", (origin, float(start), slope)))


def _exponential(origin: float, init: float, gamma: float) -> Iterator[Piece]:
    if gamma == 1 or init == 0:
        yield from _constant(origin, float(init))
    else:
        yield Piece(origin, Form("exponential", "float", (origin, float(init), float(gamma))))


def _multistep(origin: float, init: float, at: tuple[float, ...], gamma: float) -> Iterator[Piece]:
    yield from _constant(origin, init)
    for power, milestone in enumerate(at, start=1):
        value = init * gamma**power + 0  # -0.0 and 0.0 are one value
        whole = isinstance(init, int) and float(value).is_integer()
        yield from _constant(origin + milestone, int(value) if whole else value)


def _cyclic(origin: float, init: float, peak: float, up: float, down: float) -> Iterator[Piece]:
    for cycle in count():
        start = origin + cycle * (up + down)
        yield _line(start, init, peak, up)
        yield _line(start + up, peak, init, down)
        if init == peak:
            return


def _cosine(origin: float, init: float, low: float, period: float, gamma: float) -> Iterator[Piece]:
    if init == low:
        yield from _constant(origin, float(init))
        return
    while True:
        yield Piece(origin, Form("cosine", "float", (origin, float(init), float(low), float(period))))
        origin += period
        period *= gamma


def _warmup(origin: float, init: float, period: float, into: Schedule) -> Iterator[Piece]:
    target = into(0.0)
    assert isinstance(target, int | float)
    yield _line(origin, init, target, period)
    yield from _PIECES[into.kind](origin + period, *into.arguments)


def _piecewise(origin: float, parts: tuple[Schedule, ...], at: tuple[float, ...]) -> Iterator[Piece]:
    starts = (0.0, *at)
    ends = (*at, math.inf)
    for part, start, end in zip(parts, starts, ends, strict=True):
        yield from until(_PIECES[part.kind](origin + start, *part.arguments), origin + end)


def until(pieces: Iterable[Piece], end: float) -> Iterator[Piece]:
    """Yield the pieces that begin before ``end``."""
    for piece in pieces:
        if piece.start >= end:
            return
        yield piece


_PIECES: dict[str, Callable[..., Iterator[Piece]]] = {
    "constant": _constant,
    "linear": _linear,
    "exponential": _exponential,
    "multistep": _multistep,
    "cyclic": _cyclic,
    "cosine": _cosine,
    "warmup": _warmup,
    "piecewise": _piecewise,
}

_EVALUATE: dict[str, Callable[..., Any]] = {
    "constant": lambda _, value: value,
    "linear": lambda t, origin, start, slope: start + slope * (t - origin),
    "exponential": lambda t, origin, init, gamma: init * gamma ** (t - origin),
    "cosine": lambda t, origin, init, low, period: (
        low + (init - low) * (1 + math.cos(math.pi * (t - origin) / period)) / 2
    ),
}


def _part(field: str, value: Value) -> Schedule:
    try:
        return as_schedule(value)
    except ScheduleError as error:
        raise ScheduleError(f"{field}: {error}") from None


def _text(argument: object) -> str:
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_text, argument))}]"
    return str(argument) if isinstance(argument, Schedule) else repr(argument)

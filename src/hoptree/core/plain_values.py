"""Checks of the values that users write in configs and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hoptree.core.errors import ScheduleError

_LARGEST = 1e300
_SHORTEST = 1e-3


def plain(value: Any) -> Any:
    """Return a numpy scalar as a Python number, and a member of an enumeration of numbers or text as its value.

    Keys must not depend on the type that holds a value, and a journal keeps plain values only. Return anything else
    unchanged.
    """
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):
        value = value.item()
    if type(value) in _PLAIN:
        return value
    return next((copy(value) for kind, copy in _PLAIN.items() if isinstance(value, kind)), value)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    bool: bool, int: int.__int__, float: float.__float__, str: str.__str__
}  # fmt: skip


def is_text(value: str) -> bool:
    r"""Return whether UTF-8 can encode a text, so that journals and keys can hold it.

    >>> is_text("lr"), is_text("\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def number_argument(field: str, value: float) -> float:
    """Return a finite number, or raise ScheduleError."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise ScheduleError(f"{field}: {value!r}; expected a finite number of at most {_LARGEST:g}")
    return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 are one value


def positive_argument(field: str, value: float) -> float:
    """Return a number above 0, or raise ScheduleError."""
    number = number_argument(field, value)
    if not number > 0:
        raise ScheduleError(f"{field}: {value!r}; expected a number above 0")
    return number


def period_argument(field: str, value: float) -> float:
    """Return a number of epochs that is long enough for a period, or raise ScheduleError."""
    number = positive_argument(field, value)
    if number < _SHORTEST:
        raise ScheduleError(
            f"{field}: {value!r} epochs; expected at least {_SHORTEST}, to limit the number of pieces"
        )
    return number


def milestones_argument(field: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return increasing milestones, in epochs, or raise ScheduleError."""
    if not isinstance(values, Iterable):
        raise ScheduleError(f"{field}: {values!r}; expected a list of milestones, in epochs")
    milestones = tuple(positive_argument(f"{field}[{index}]", value) for index, value in enumerate(values))
    for index, value in enumerate(milestones):
        if index and not value > milestones[index - 1]:
            raise ScheduleError(
                f"{field}[{index}]: {value!r} comes after {milestones[index - 1]!r}; "
                "expected increasing milestones, in epochs"
            )
    return milestones

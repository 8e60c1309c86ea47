"""Checks of a procedure's settings: errors say what was given, what was expected and why."""

from __future__ import annotations

import math

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.core.plain_values import plain
from hoptree.search.rungs import rung_epochs


def plain_settings(record: msgspec.Struct) -> None:
    """Convert NumPy numbers in the settings to Python numbers, so that the text of the settings stays the same."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        own = type(value)(map(plain, value)) if type(value) in (list, tuple) else plain(value)
        if own is not value:
            msgspec.structs.force_setattr(record, name, own)


def whole(field: str, value: object, least: int, why: str = "") -> None:
    """Raise an error if a value is not a whole number of at least ``least``.

    >>> whole("factor", 1, 2, "a rung keeps one in so many")
    Traceback (most recent call last):
    hoptree.core.errors.WorkloadError: factor: 1; expected a whole number, at least 2: a rung keeps one in so many
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WorkloadError(f"{field}: {value!r}; expected a whole number, at least {least}{why and f': {why}'}")


def between(field: str, value: object, low: float, high: float, why: str = "") -> None:
    """Raise an error if a value is not a number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise WorkloadError(f"{field}: {value!r}; expected a number from {low} to {high}{why and f': {why}'}")


def boolean(field: str, value: object, why: str) -> None:
    """Raise an error if a value is not a boolean."""
    if not isinstance(value, bool):
        raise WorkloadError(f"{field}: {value!r}; expected True or False: {why}")


def factors(field: str, values: object) -> None:
    """Raise an error if a value is not a list of positive numbers."""
    if not isinstance(values, list | tuple) or not values or not all(map(_is_positive, values)):
        raise WorkloadError(f"{field}: {values!r}; expected numbers above 0, for example (0.8, 1.2)")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def reports(every: object) -> None:
    """Raise an error if a value cannot be the number of epochs between reports."""
    whole("every", every, 0, "the epochs between reports, or 0 for only the reports that decide")


def halving(min_epochs: int, max_epochs: int, factor: int) -> None:
    """Raise an error if the rungs are impossible: below one epoch, in the wrong order, or without elimination."""
    whole("max_epochs", max_epochs, 1)
    whole("min_epochs", min_epochs, 1, "a rung is at least one epoch")
    if min_epochs > max_epochs:
        raise WorkloadError(
            f"min_epochs: {min_epochs} with max_epochs {max_epochs}; expected min_epochs up to max_epochs: the "
            "first rung comes before the last"
        )
    whole("factor", factor, 2, "a rung keeps one in so many")


def enough(trials: int, min_epochs: int, max_epochs: int, factor: int) -> None:
    """Raise an error if there are too few trials for one to reach the last rung."""
    least = factor ** (len(rung_epochs(min_epochs, max_epochs, factor)) - 1)
    if trials < least:
        raise WorkloadError(
            f"trials: {trials}; expected at least {least}, so that one trial reaches {max_epochs} epochs; use more "
            "trials, a higher min_epochs or a lower factor"
        )

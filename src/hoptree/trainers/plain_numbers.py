"""Conversion of users' metrics to floats."""

from __future__ import annotations

from typing import Any

from hoptree.trainers.errors import TrainerError


def as_number(name: str, value: Any) -> float:
    """Return a metric's value as a float; numpy numbers and tensors with one element are accepted.

    >>> as_number("accuracy", 1)
    1.0
    """
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) is not None:
        elements = value.numel() if hasattr(value, "numel") else value.size
        value = item() if elements == 1 else f"{type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, int | float):
        return float(value)
    shown = value if isinstance(value, str) else f"{value!r} ({type(value).__name__})"
    raise TrainerError(f"metric {name!r}: it returned {shown}; expected one number")

"""Metrics in stored formats: JSON has no NaN and no infinity, so these are spelled as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from hoptree.core.events import Metrics

Spelled: TypeAlias = dict[str, float | Literal["nan", "inf", "-inf"]]


def spelled(metrics: Metrics) -> Spelled:
    """Return metrics in a form that JSON can hold.

    >>> spelled({"loss": float("nan"), "accuracy": 0.5})
    {'loss': 'nan', 'accuracy': 0.5}
    """
    return {name: value if math.isfinite(value) else str(float(value)) for name, value in metrics.items()}  # type: ignore[misc]


def unspelled(metrics: Mapping[str, float | str]) -> Metrics:
    """Return metrics as numbers again."""
    return {name: float(value) for name, value in metrics.items()}

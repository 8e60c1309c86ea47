"""Sparklines: curves as one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values from left to right, scaled from the lowest to the highest; sampled if there are too many.

    >>> sparkline([1, 2, 3, 8], 10), sparkline([5, 5], 10), sparkline([1, float("nan"), 2], 10)
    ('▁▂▃█', '▄▄', '▁·█')
    >>> sparkline(range(100), 5)
    '▁▃▅▆█'
    """
    shown = _thinned(values, width)
    known = [value for value in shown if math.isfinite(value)]
    if not known:
        return _UNKNOWN * len(shown)
    low, high = min(known), max(known)
    return "".join(_level(value, low, high) for value in shown)


def _thinned(values: Sequence[float], width: int) -> list[float]:
    """Return at most ``width`` of the values, including the first and the last."""
    if len(values) <= width:
        return list(values)
    if width < 2:
        return list(values[-width:]) if width else []
    step = (len(values) - 1) / (width - 1)
    return [values[round(i * step)] for i in range(width)]


def _level(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    span = high - low
    if not 0 < span < math.inf:
        return _LEVELS[3]
    return _LEVELS[min(7, int((value - low) / span * 8))]

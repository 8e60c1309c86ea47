"""Durations that users write as text."""

from __future__ import annotations

import math
import re
from typing import Final

from hoptree.core.errors import WorkloadError

_SECONDS: Final = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes", "m"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_duration(given: object, name: str) -> float:
    """Return the seconds that a text such as "1 h 30 min" means, or a number of them; ``name`` is the argument.

    >>> parse_duration("2 h", "deadline"), parse_duration("1h 30min", "deadline"), parse_duration(45, "deadline")
    (7200.0, 5400.0, 45.0)
    """
    if isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    else:
        seconds = _parse(given.strip().lower()) if isinstance(given, str) else math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise WorkloadError(
            f"{name}: {given!r}; expected a duration above 0, such as '2 h', '90 min', '1 h 30 min', '45 s' or a "
            "number of seconds"
        )
    return seconds


def _parse(text: str) -> float:
    """Return the seconds of a text; NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        pass
    parts = list(_PART.finditer(text))
    whole = "".join(part.group(0) for part in parts)
    if not parts or whole != text or any(part.group(2) not in _SECONDS for part in parts):
        return math.nan
    return sum(float(part.group(1)) * _SECONDS[part.group(2)] for part in parts)

"""What the parsers of both problems share."""

from collections.abc import Iterable
from typing import Any

from hoptree.core.errors import WorkloadError

LONGEST_SECONDS = 1_000_000
"""Operating systems cannot wait much longer in one call."""


def iterate(name: str, values: Any) -> Iterable[Any]:
    """Return the values if they are a sequence or an array, not text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise WorkloadError(f"{name}: {values!r}; expected a sequence")
    return values


def check_seconds(seconds: float) -> None:
    """Raise WorkloadError unless the time limit can be waited for."""
    if not 0 < seconds <= LONGEST_SECONDS:
        raise WorkloadError(f"seconds: {seconds}; expected a time limit > 0 and <= {LONGEST_SECONDS}")

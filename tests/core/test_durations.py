"""Durations that users write as text."""

from __future__ import annotations

import pytest

from hoptree.core.durations import parse_duration
from hoptree.core.errors import WorkloadError


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2 h", 7200.0), ("2h", 7200.0), ("90 min", 5400.0), ("45 s", 45.0), ("1 h 30 min", 5400.0),
        ("1.5 h", 5400.0), ("1 d", 86400.0), ("2 Hours", 7200.0), ("30m", 1800.0), (" 10 ", 10.0), (0.5, 0.5),
    ],
)  # fmt: skip
def test_durations_are_seconds(given: object, seconds: float) -> None:
    assert parse_duration(given, "time_limit") == seconds


@pytest.mark.parametrize(
    "given",
    ["", "soon", "h", "2 weeks", "1 h and", "-1 h", 0, -2, True, None, float("inf"), "inf", "nan", [1]],
)
def test_what_is_no_duration_is_refused_by_name(given: object) -> None:
    with pytest.raises(WorkloadError, match="deadline: .*; expected a duration above 0"):
        parse_duration(given, "deadline")

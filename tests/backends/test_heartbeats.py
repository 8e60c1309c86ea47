"""Workers are given up after enough missed heartbeats, counted only while the driver checks."""

from __future__ import annotations

import pytest

from hoptree.backends.heartbeats import Heartbeats, beat_interval, check_heartbeat_limit
from hoptree.core.errors import WorkloadError


class Worker:
    def __init__(self) -> None:
        self.silent_seconds = 0.0
        self.beats = True

    def has_beaten(self) -> bool:
        return self.beats


def check_each_second(
    heartbeats: Heartbeats, workers: list[Worker], begin: float, seconds: float
) -> list[list[Worker]]:
    return [heartbeats.stopped(workers, begin + second) for second in range(1, round(seconds) + 1)]


def test_a_worker_is_replaced_after_the_limit_and_not_before() -> None:
    heartbeats, silent, other = Heartbeats(30.0, 0.0), Worker(), Worker()
    silent.beats = False
    found = check_each_second(heartbeats, [silent, other], 0.0, 30)
    assert found == [[]] * 29 + [[silent]]


def test_a_heartbeat_gives_the_whole_limit_again() -> None:
    heartbeats, worker = Heartbeats(30.0, 0.0), Worker()
    worker.beats = False
    assert not any(check_each_second(heartbeats, [worker], 0.0, 29))
    worker.beats = True
    heartbeats.stopped([worker], 30.0)
    worker.beats = False
    assert not any(check_each_second(heartbeats, [worker], 30.0, 29))
    assert heartbeats.stopped([worker], 60.0) == [worker]


def test_time_in_which_the_driver_did_not_check_hardly_counts() -> None:
    heartbeats, worker = Heartbeats(30.0, 0.0), Worker()
    worker.beats = False
    assert heartbeats.stopped([worker], 3600.0) == []  # the driver itself was stopped for an hour
    assert heartbeats.stopped([worker], 7200.0) == []
    assert not any(check_each_second(heartbeats, [worker], 7200.0, 14))
    assert heartbeats.stopped([worker], 7215.0) == [worker]


def test_a_worker_sends_several_heartbeats_within_the_limit() -> None:
    heartbeats = Heartbeats(30.0, 100.0)
    assert beat_interval(30.0) == 5.0
    assert heartbeats.next_check == 105.0


@pytest.mark.parametrize("limit", [0.5, 0, -1, float("inf"), float("nan"), True, "30", None])
def test_an_invalid_limit_is_refused(limit: object) -> None:
    with pytest.raises(WorkloadError, match=r"heartbeat_limit: .*; expected seconds, at least 1"):
        check_heartbeat_limit(limit)

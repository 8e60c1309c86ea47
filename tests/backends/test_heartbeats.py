"""Workers are given up by how long they were silent while the driver looked on."""

from __future__ import annotations

import pytest

from hoptree.backends.heartbeats import Heartbeats, beat_interval, check_heartbeat_limit
from hoptree.core.errors import WorkloadError


class Worker:
    def __init__(self) -> None:
        self.silence = 0.0
        self.beats = True

    def heard(self) -> bool:
        return self.beats


def looks(hearts: Heartbeats, workers: list[Worker], begin: float, seconds: float) -> list[list[Worker]]:
    """Look every second."""
    return [hearts.stopped(workers, begin + second) for second in range(1, round(seconds) + 1)]


def test_a_worker_is_given_up_after_the_limit_and_not_before() -> None:
    hearts, silent, other = Heartbeats(30.0, 0.0), Worker(), Worker()
    silent.beats = False
    found = looks(hearts, [silent, other], 0.0, 30)
    assert found == [[]] * 29 + [[silent]]


def test_a_sign_of_life_gives_the_whole_limit_again() -> None:
    hearts, worker = Heartbeats(30.0, 0.0), Worker()
    worker.beats = False
    assert not any(looks(hearts, [worker], 0.0, 29))
    worker.beats = True
    hearts.stopped([worker], 30.0)
    worker.beats = False
    assert not any(looks(hearts, [worker], 30.0, 29))
    assert hearts.stopped([worker], 60.0) == [worker]


def test_time_in_which_the_driver_did_not_look_hardly_counts() -> None:
    hearts, worker = Heartbeats(30.0, 0.0), Worker()
    worker.beats = False
    assert hearts.stopped([worker], 3600.0) == []  # the driver itself was stopped for an hour
    assert hearts.stopped([worker], 7200.0) == []
    assert not any(looks(hearts, [worker], 7200.0, 14))
    assert hearts.stopped([worker], 7215.0) == [worker]


def test_a_worker_beats_several_times_within_the_limit() -> None:
    hearts = Heartbeats(30.0, 100.0)
    assert beat_interval(30.0) == 5.0
    assert hearts.next_look == 105.0


@pytest.mark.parametrize("limit", [0.5, 0, -1, float("inf"), float("nan"), True, "30", None])
def test_what_is_no_limit_is_refused(limit: object) -> None:
    with pytest.raises(WorkloadError, match=r"heartbeat_limit: .*; expected seconds, at least 1"):
        check_heartbeat_limit(limit)

"""Workers that cannot start are counted out, and counted in again when they have come."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from hoptree.backends.placement import place
from hoptree.backends.ray_startup import StartupMonitor


@dataclass
class Worker:
    name: str
    node: str
    arrived: bool = False
    ready: bool = False
    leaving: bool = False
    sent_for: float = 0.0


def test_a_node_that_others_use_holds_nothing_that_is_waited_for() -> None:
    attendance, wanted = StartupMonitor(), {"busy": 1, "free": 1}
    workers = [Worker("b", "busy"), Worker("f", "free", arrived=True)]
    assert attendance.count(wanted, workers, now=1.0) == wanted  # it may still come
    counted = attendance.count(wanted, workers, now=60.0)
    assert place(4, counted) == {"free": (0, 1, 2, 3)}
    workers[0].arrived = True
    assert attendance.count(wanted, workers, now=61.0) == wanted


def test_a_node_with_some_room_counts_for_what_has_begun_there() -> None:
    workers = [Worker("a", "big", arrived=True), Worker("b", "big"), Worker("c", "big", leaving=True)]
    assert StartupMonitor().count({"big": 3, "new": 2}, workers, now=60.0) == {"big": 2, "new": 2}


def test_where_nobody_has_come_yet_any_node_may_be_first() -> None:
    workers = [Worker("a", "x"), Worker("b", "y")]
    assert StartupMonitor().count({"x": 1, "y": 1}, workers, now=60.0) == {"x": 1, "y": 1}


def test_a_node_without_room_is_told_once_until_it_has_some(caplog: pytest.LogCaptureFixture) -> None:
    attendance, names = StartupMonitor(), {"busy": "10.0.0.2 (1 CPU)", "free": "10.0.0.3 (1 CPU)"}
    workers = [Worker("b", "busy"), Worker("f", "free", arrived=True, ready=True)]

    def complaints(now: float) -> int:
        caplog.clear()
        attendance.complain(workers, names, "1 CPU", now)
        return len(caplog.records)

    with caplog.at_level(logging.WARNING, logger="hoptree"):
        assert [complaints(now) for now in (5.0, 60.0, 120.0)] == [0, 1, 0]
        workers[0].arrived = True
        assert complaints(130.0) == 0
        workers[0].arrived = False
        assert complaints(140.0) == 1
        assert "node 10.0.0.2 (1 CPU): no room yet for 1 of its workers, each with 1 CPU" in caplog.text


def test_that_nobody_works_is_told_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    attendance = StartupMonitor()
    with caplog.at_level(logging.WARNING, logger="hoptree"):
        for now in (1.0, 20.0, 40.0, 60.0, 80.0):
            attendance.complain([], {"a": "10.0.0.2 (1 CPU)"}, "1 GPU", now)
    assert [record.getMessage() for record in caplog.records] == [
        "no worker is ready yet; each takes 1 GPU, and the cluster has 10.0.0.2 (1 CPU): waiting"
    ] * 2

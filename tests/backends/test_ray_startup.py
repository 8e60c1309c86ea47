"""Workers that cannot start are not expected, until they have started."""

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
    running: bool = False
    joined: bool = False
    leaving: bool = False
    requested_at: float = 0.0


def test_a_node_that_other_jobs_use_holds_no_partitions() -> None:
    monitor, wanted = StartupMonitor(), {"busy": 1, "free": 1}
    workers = [Worker("b", "busy"), Worker("f", "free", running=True)]
    assert monitor.count(wanted, workers, now=1.0) == wanted  # it may still start
    counted = monitor.count(wanted, workers, now=60.0)
    assert place(4, counted) == {"free": (0, 1, 2, 3)}
    workers[0].running = True
    assert monitor.count(wanted, workers, now=61.0) == wanted


def test_a_node_with_some_room_counts_for_the_workers_that_run_there() -> None:
    workers = [Worker("a", "big", running=True), Worker("b", "big"), Worker("c", "big", leaving=True)]
    assert StartupMonitor().count({"big": 3, "new": 2}, workers, now=60.0) == {"big": 2, "new": 2}


def test_if_all_workers_are_late_any_node_may_be_first() -> None:
    workers = [Worker("a", "x"), Worker("b", "y")]
    assert StartupMonitor().count({"x": 1, "y": 1}, workers, now=60.0) == {"x": 1, "y": 1}


def test_a_node_without_room_causes_one_warning_until_it_has_room(caplog: pytest.LogCaptureFixture) -> None:
    monitor, names = StartupMonitor(), {"busy": "10.0.0.2 (1 CPU)", "free": "10.0.0.3 (1 CPU)"}
    workers = [Worker("b", "busy"), Worker("f", "free", running=True, joined=True)]

    def warnings(now: float) -> int:
        caplog.clear()
        monitor.warn(workers, names, "1 CPU", now)
        return len(caplog.records)

    with caplog.at_level(logging.WARNING, logger="hoptree"):
        assert [warnings(now) for now in (5.0, 60.0, 120.0)] == [0, 1, 0]
        workers[0].running = True
        assert warnings(130.0) == 0
        workers[0].running = False
        assert warnings(140.0) == 1
        assert "node 10.0.0.2 (1 CPU): no room yet for 1 of its workers, each with 1 CPU" in caplog.text


def test_warnings_repeat_while_no_worker_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    monitor = StartupMonitor()
    with caplog.at_level(logging.WARNING, logger="hoptree"):
        for now in (1.0, 20.0, 40.0, 60.0, 80.0):
            monitor.warn([], {"a": "10.0.0.2 (1 CPU)"}, "1 GPU", now)
    assert [record.getMessage() for record in caplog.records] == [
        "no worker is ready yet; each needs 1 GPU, and the cluster has 10.0.0.2 (1 CPU): waiting"
    ] * 2

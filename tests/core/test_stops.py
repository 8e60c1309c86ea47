"""Stopping a trial takes time in proportion to its open reports; counted in calls, not in seconds."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from hoptree.core.events import TrialStopped
from hoptree.core.schedules import Config, multistep
from tests.core.driver import Driver


def calls_to_stop(epochs: int, config: Config) -> int:
    """Return how many calls it takes to stop a trial that owes a report for every epoch."""
    driver = Driver(1)
    driver.ask(0, config, epochs, every=1)
    driver.join("w")
    driver.go_on("w")
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    step = driver.engine.step
    sys.setprofile(count)
    try:
        step(TrialStopped(0), 0.0)
    finally:
        sys.setprofile(None)
    assert driver.engine.trials[0].ending == "stopped"
    assert driver.engine.open_work.backlog == pytest.approx(0.0)
    return calls


@pytest.mark.parametrize(
    "config", [{"lr": 0.1}, {"lr": multistep(0.1, at=[50, 100, 150], gamma=0.5)}], ids=["one", "four"]
)
def test_stopping_a_trial_is_linear_in_its_open_reports(config: Config):
    few, many = calls_to_stop(200, config), calls_to_stop(800, config)
    assert many < 5 * few


@pytest.mark.parametrize("every", [1, 3])
def test_shared_units_continue_when_a_trial_is_stopped(every: int):
    driver = Driver(2)
    driver.ask(0, {"lr": multistep(0.1, at=[4], gamma=0.1)}, 9, every=every)
    driver.ask(1, {"lr": multistep(0.1, at=[6], gamma=0.1)}, 9, every=2)
    driver.join("w")
    driver.go_on("w")
    driver.stop(0)
    driver.finish()
    assert [ending[:2] for ending in driver.endings] == [(0, "stopped"), (1, "complete")]
    assert [epoch for trial, epoch in driver.reports if trial == 1] == [2, 4, 6, 8, 9]
    assert len(driver.trained) == 2 * 9

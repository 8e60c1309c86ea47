"""Clocks that jump: of a driver and its workers, by an hour, forwards or back."""

from __future__ import annotations

import signal

from bench.faults.driver import Driver
from bench.faults.kinds import Kind
from bench.faults.run import Run

HOUR = 3600.0


def jump_ahead(run: Run) -> None:
    _jump(run, run.start(clock=True), HOUR)


def jump_back(run: Run) -> None:
    _jump(run, run.start(clock=True), -HOUR)


def jump_to_and_fro(run: Run) -> None:
    driver = run.start(clock=True)
    _jump(run, driver, run.random.choice([HOUR, -HOUR]))
    _jump(run, driver, 0.0)


def jump_and_kill(run: Run) -> None:
    """Kill the driver after a jump; the next one has another clock."""
    driver = run.start(clock=True)
    _jump(run, driver, run.random.choice([HOUR, -HOUR]))
    if run.moment(0.0, 1.0, driver):
        driver.send(signal.SIGKILL)
        run.stop(driver)


def _jump(run: Run, driver: Driver, seconds: float) -> None:
    if run.moment(driver=driver):
        run.note(f"the clock is {seconds:+g} s off")
        run.clock.write_text(str(seconds))


KINDS = {
    "clock-ahead": Kind(jump_ahead),
    "clock-back": Kind(jump_back),
    "clock-to-and-fro": Kind(jump_to_and_fro),
    "clock-jump-and-kill": Kind(jump_and_kill),
}

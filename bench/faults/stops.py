"""Processes that are stopped for a while, and interrupts."""

from __future__ import annotations

import os
import signal
import time

from bench.faults.driver import end
from bench.faults.kinds import Kind
from bench.faults.run import Run

SLOW = 0.3  # seconds that a unit takes, so that there is time for a second interrupt
LIMIT = 3.0  # seconds without a heartbeat after which a worker is replaced


def stop_worker(run: Run) -> None:
    """Stop a worker for good."""
    _stop_worker(run)


def stop_worker_for_long(run: Run) -> None:
    """Stop a worker, and continue it after it was replaced."""
    worker = _stop_worker(run)
    driver, limit = run.begin(), time.monotonic() + 4 * LIMIT
    while driver.alive and worker in driver.workers() and time.monotonic() < limit:
        time.sleep(0.05)
    _go_on(worker)


def stop_worker_for_short(run: Run) -> None:
    """Stop a worker, and continue it before it would be replaced."""
    worker = _stop_worker(run)
    time.sleep(run.random.uniform(0.0, LIMIT / 2))
    _go_on(worker)


def stop_starter(run: Run) -> None:
    """Stop the processes that start workers, and kill a worker: it cannot be replaced until they are."""
    driver = run.begin()
    if run.moment(0.0, 0.7) and (workers := driver.workers()):
        run.note(f"starters stopped: {driver.starters()}")
        for starter in driver.starters():
            os.kill(starter, signal.SIGSTOP)
        end([run.random.choice(workers)])


def stop_driver(run: Run) -> None:
    """Stop a driver for less than its lease lasts."""
    driver = run.begin()
    if run.moment():
        driver.send(signal.SIGSTOP)
        time.sleep(run.random.uniform(0.0, 2.0))
        driver.send(signal.SIGCONT)


def interrupt(run: Run) -> None:
    """Interrupt: no unit is lost."""
    for _ in range(run.random.randint(1, 2)):
        driver = run.begin()
        if run.moment():
            run.note("interrupted")
            driver.send(signal.SIGINT, group=True)
            run.stop(driver)
    run.most_again = 0


def interrupt_twice(run: Run) -> None:
    """Interrupt twice: no more is lost than by a kill, that is, what ran."""
    driver = run.start(nap=SLOW)
    if run.moment(0.0, 0.5, driver):
        run.note("interrupted twice")
        driver.send(signal.SIGINT, group=True)
        time.sleep(run.random.uniform(0.0, SLOW))
        driver.send(signal.SIGINT, group=True)
        run.stop(driver)
    run.most_again = IN_FLIGHT


IN_FLIGHT = 4  # units: one that runs and one behind it for each of two workers


def _stop_worker(run: Run) -> int:
    driver = run.begin()
    if not run.moment(0.0, 0.7) or not (workers := driver.workers()):
        return 0
    worker = run.random.choice(workers)
    run.note(f"worker {worker} stopped")
    os.kill(worker, signal.SIGSTOP)
    return worker


def _go_on(worker: int) -> None:
    if worker:
        try:
            os.kill(worker, signal.SIGCONT)
        except ProcessLookupError:
            return


_SOON = {"run": {"heartbeat_limit": LIMIT}}

KINDS = {
    "worker-stopped": Kind(stop_worker, _SOON),
    "worker-stopped-for-long": Kind(stop_worker_for_long, _SOON),
    "worker-stopped-for-short": Kind(stop_worker_for_short, _SOON),
    "starter-stopped": Kind(stop_starter, _SOON),
    "driver-stopped": Kind(stop_driver),
    "interrupted": Kind(interrupt),
    "interrupted-twice": Kind(interrupt_twice),
}

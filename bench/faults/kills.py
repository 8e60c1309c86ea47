"""Processes that are killed: drivers, workers, both; at any moment, at the very start and at the very end."""

from __future__ import annotations

import signal
import time

from bench.faults.driver import Driver, end
from bench.faults.kinds import Kind
from bench.faults.run import Run


def kill_driver(run: Run) -> None:
    _end_driver(run, signal.SIGKILL)


def terminate_driver(run: Run) -> None:
    _end_driver(run, signal.SIGTERM)


def hang_up(run: Run) -> None:
    """Close the terminal: all of its processes get a signal."""
    _end_driver(run, signal.SIGHUP, group=True)


def kill_driver_twice(run: Run) -> None:
    _end_driver(run, signal.SIGKILL)
    _end_driver(run, signal.SIGKILL)


def kill_worker(run: Run) -> None:
    for _ in range(run.random.randint(1, 3)):
        driver = run.begin()
        if run.moment():
            _kill_workers(run, driver, 1)


def kill_all_workers(run: Run) -> None:
    driver = run.begin()
    if run.moment():
        _kill_workers(run, driver, len(driver.workers()))


def kill_starter(run: Run) -> None:
    """Kill a process that starts workers: its workers end with it."""
    driver = run.begin()
    if run.moment() and (starters := driver.starters()):
        chosen = run.random.choice(starters)
        run.note(f"starter killed: {chosen}")
        end([chosen])


def kill_both(run: Run) -> None:
    driver = run.begin()
    if run.moment():
        _kill_workers(run, driver, 1)
        time.sleep(run.random.uniform(0.0, 0.2))
        driver.send(signal.SIGKILL)


def kill_at_start(run: Run) -> None:
    for _ in range(run.random.randint(1, 2)):
        driver = run.start()
        time.sleep(run.random.uniform(0.0, 1.5))
        run.note("killed at its start")
        driver.send(signal.SIGKILL)
        run.stop(driver)


def kill_at_end(run: Run) -> None:
    """Kill the driver when a trial's end is written down, before anything else is done about it."""
    ends = len(run.reference.trials)
    driver = run.start(end=run.random.choice([ends, run.random.randint(1, ends)]))
    driver.forgiven.add(-signal.SIGKILL)
    run.stop(driver)


def _end_driver(run: Run, number: signal.Signals, group: bool = False) -> None:
    driver = run.begin()
    if run.moment(0.0, 1.0):
        run.note(f"{number.name} to the driver")
        driver.send(number, group)
        run.stop(driver)


def _kill_workers(run: Run, driver: Driver, count: int) -> None:
    workers = driver.workers()
    chosen = run.random.sample(workers, min(count, len(workers)))
    run.note(f"workers killed: {chosen}")
    end(chosen)


KINDS = {
    "driver-killed": Kind(kill_driver),
    "driver-terminated": Kind(terminate_driver),
    "terminal-closed": Kind(hang_up),
    "driver-killed-twice": Kind(kill_driver_twice),
    "worker-killed": Kind(kill_worker),
    "all-workers-killed": Kind(kill_all_workers),
    "starter-killed": Kind(kill_starter),
    "both-killed": Kind(kill_both),
    "killed-at-start": Kind(kill_at_start),
    "killed-at-an-end": Kind(kill_at_end, {"size": 1 << 17}),  # 1 MB: saving takes a while
}

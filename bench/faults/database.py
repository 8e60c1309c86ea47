"""A database server that dies or does not answer, with the journal in it."""

from __future__ import annotations

import atexit
import signal
import time
from functools import cache

from bench.faults.kinds import Kind
from bench.faults.run import Run
from bench.faults.server import Server

AWAY = 5.0  # seconds


def kill_database(run: Run) -> None:
    """Kill it at any moment, and start it again soon, perhaps twice: a driver waits for it."""
    server = _use(run)
    run.most_drivers = 1
    for _ in range(run.random.randint(1, 2)):
        run.begin()
        if run.moment():
            run.note("database killed")
            server.kill()
            time.sleep(run.random.uniform(0.0, 1.0))
            server.start()
            run.note("database started")


def kill_quiet_database(run: Run) -> None:
    """Kill it right after an entry was written, and start it before the driver comes back to it."""
    server = _use(run)
    run.most_drivers = 1
    driver = run.begin()
    if run.moment():
        driver.send(signal.SIGSTOP)  # else it might look in between
        run.note("database killed")
        server.kill()
        server.start()
        run.note("database started")
        driver.send(signal.SIGCONT)


def kill_database_and_driver(run: Run) -> None:
    server = _use(run)
    driver = run.begin()
    if run.moment():
        server.kill()
        driver.send(signal.SIGKILL)
        run.stop(driver)
        server.start()


def take_database_away(run: Run) -> None:
    """Shut it down in order, and start it a few seconds later: a driver waits for it."""
    server = _use(run)
    run.most_drivers = 1
    run.begin()
    if run.moment():
        server.shut_down()
        run.note("database shut down")
        time.sleep(AWAY)
        server.start()
        run.note("database started")


def freeze_database(run: Run) -> None:
    """Let it not answer for a few seconds."""
    server = _use(run)
    run.most_drivers = 1
    run.begin()
    if run.moment():
        server.freeze()
        run.note("database frozen")
        time.sleep(AWAY)
        server.thaw()


def _use(run: Run) -> Server:
    server = _server()
    if not run.options["journal"]:
        run.options["journal"] = server.database()
    return server


@cache
def _server() -> Server:
    server = Server()
    atexit.register(server.close)
    return server


KINDS = {
    "database-killed": Kind(kill_database),
    "database-killed-quiet": Kind(kill_quiet_database),
    "database-and-driver-killed": Kind(kill_database_and_driver),
    "database-away": Kind(take_database_away),
    "database-frozen": Kind(freeze_database),
}

"""Several drivers: of one study, of two studies on one store, and one that takes over from another."""

from __future__ import annotations

import signal
import time

from bench.faults.kinds import Kind
from bench.faults.run import Run

AWAY = 3600.0  # seconds by which the successor's clock is ahead: to it, the lease has run out


def start_two(run: Run) -> None:
    """Start a second driver of the same study: it is refused, and the first one continues."""
    first = run.begin()
    if not run.moment(0.0, 0.5):
        return
    second = run.start()
    ended = run.stop(second)
    if ended.code == 0 and first.alive:
        run.found("two drivers", "a second driver ran the study while the first one did")
    run.stop(first)


def start_two_studies(run: Run) -> None:
    """Start two studies on one store: they train what they have in common."""
    run.names.append("other")
    run.start()
    time.sleep(run.random.uniform(0.0, 1.0))
    run.start("other")


def start_two_studies_and_kill(run: Run) -> None:
    """Kill one of two drivers on one store."""
    start_two_studies(run)
    victim = run.random.choice(run.drivers)
    if run.moment(0.0, 0.9, victim):
        run.note(f"driver {victim.number} killed")
        victim.send(signal.SIGKILL)


def replace(run: Run) -> None:
    """Stop a driver until another one has its lease, and then continue or interrupt it."""
    first = run.begin()
    if not run.moment(0.0, 0.7):
        return
    first.send(signal.SIGSTOP)
    run.clock.write_text(str(AWAY))
    second = run.start(clock=True)
    run.until(run.units() + run.random.randint(1, 8), second)
    if run.random.random() < 0.7:
        run.note("the first one is interrupted")
        first.send(signal.SIGINT, group=True)
    run.note("the first one goes on")
    first.send(signal.SIGCONT)
    run.stop(first)
    run.stop(second)


KINDS = {
    "two-drivers": Kind(start_two),
    "two-studies": Kind(start_two_studies),
    "two-studies-one-killed": Kind(start_two_studies_and_kill),
    "driver-replaced": Kind(replace),
}

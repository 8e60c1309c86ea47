"""Helpers for tests of real processes and of the stores that they leave."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

from hoptree.core.actions import RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import StateLost, UnitFinished
from hoptree.core.facts import UnitFinishedFact
from hoptree.core.invariants import InvariantChecker
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.store import Store

_STARTER = b"hoptree.worker.starter"


def workers_of(driver: int) -> list[int]:
    """Return the worker processes of a driver: the children of its starters."""
    starters = {*starters_of(driver)}
    return [pid for pid, (parent, _) in _processes().items() if parent in starters]


def starters_of(driver: int) -> list[int]:
    """Return the processes that start the workers of a driver."""
    return [pid for pid, (parent, command) in _processes().items() if parent == driver and _STARTER in command]


def _processes() -> dict[int, tuple[int, bytes]]:
    """Return the parent and the command of each process that is no zombie."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(entry.name)] = int(fields[1]), command
    return found


def alive(pids: list[int], patience: float = 5.0) -> list[int]:
    """Return which processes outlive their driver; they may need a moment to notice."""
    end = time.monotonic() + patience
    while (left := [pid for pid in pids if _lives(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def units_done_twice(folder: Path, study: str) -> int:
    """Return how many units the journal acknowledges more than once without a loss in between.

    On the way, every step is held against the nine invariants, and time has to run forwards.
    """
    with Store(folder, create=False) as store:
        known = store.catalog.find(study)
        assert known is not None
        record = Record(StudySpec.read(known.spec).settings)
        checker, last = InvariantChecker(Engine(record.settings, state=record.state), progress=False), 0.0
        done: Counter[tuple[int, int]] = Counter()
        for step in record.replay(store.journal.read(study)):
            checker.see(step)
            assert step.now >= last
            last = step.now
            if isinstance(step.event, UnitFinished) and isinstance(step.run, RunUnit):
                done[step.run.node, step.run.unit] += 1
            elif isinstance(step.event, StateLost):
                done.clear()
    return sum(count - 1 for count in done.values() if count > 1)


def trained_units(folder: Path, study: str) -> int:
    """Return how many units the journal of a study acknowledges."""
    with Store(folder / "store", create=False) as store:
        return sum(isinstance(recorded.entry.event, UnitFinishedFact) for recorded in store.journal.read(study))

"""Drivers that share a store, each in its own process, and what they trained together."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.store import Store
from tests.system.plain import dataset

PROGRAM = Path(__file__).with_name("shared_store_study.py")
PATIENCE = 120.0


def start(folder: Path, name: str, widths: Sequence[int], *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(folder), name, json.dumps(list(widths)), *options]
    path = os.pathsep.join([str(PROGRAM.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    around = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return dict(json.loads(out))


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Let no unit begin within the block."""
    if not (folder / "data").exists():
        dataset(folder, partitions=3)
    with (folder / "go").open("w") as go:
        fcntl.flock(go, fcntl.LOCK_EX)
        yield


def await_all(folder: Path, journal: str | None, *studies: str) -> None:
    """Wait until all studies are driven and have said what they want."""
    from sqlalchemy import select

    from hoptree.store.tables import WANTS

    def there() -> bool:
        with Store(folder / "store", journal_url=journal) as store, store._database.reading() as connection:
            return set(studies) <= set(connection.execute(select(WANTS.c.study)).scalars())

    await_that(there)


def await_that(holds: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


def unique_epochs(folder: Path, journal: str | None, *studies: str) -> float:
    """Return how many epochs there are in all trials of some studies, equal ones counted once."""
    reach: dict[str, tuple[int, int]] = {}
    partitions = 1
    with Store(folder / "store", create=False, journal_url=journal) as store:
        for name in studies:
            known = store.catalog.find(name)
            assert known is not None
            record = Record(StudySpec.read(known.spec).settings).read(store.journal.read(name))
            partitions = record.settings.partitions
            for trial in record.trials:
                for node, end in record.plan.path_with_ends(trial, trial.epochs * partitions):
                    reach[node.key] = node.start, max(end, reach.get(node.key, (0, 0))[1])
    return sum(end - first for first, end in reach.values()) / partitions


def run_together(
    folder: Path, grids: dict[str, Sequence[int]], journal: str | None = None, search: str = "grid"
) -> dict[str, dict[str, Any]]:
    """Start all drivers; units begin when each knows of the others."""
    with closed(folder):
        drivers = {name: start(folder, name, widths, journal or "", search) for name, widths in grids.items()}
        await_all(folder, journal, *grids)
    return {name: finish(driver) for name, driver in drivers.items()}

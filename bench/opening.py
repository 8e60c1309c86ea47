"""How long it takes to open a study with many units in its journal: ``hoptree show NAME --json``, in a process.

The journal is written by the real engine, search and store; only the workers are simulated. Random search trains
every trial for 100 epochs of 10 units with a report after each, on 16 workers.

    python -m bench.opening [--units 2000000] [--label LABEL] [--store FOLDER]

A store that is there already is used as it is. The label goes into the name of the section, so that figures from
before and after a change stand next to each other.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hoptree as ht
from bench.memory import peak_memory
from bench.results import record, table
from hoptree.backends.event_loop import drive, without_collector
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.fact_writer import FactWriter
from hoptree.core.facts import Entry
from hoptree.core.snapshots import SNAPSHOT_VERSION, take_snapshot
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from hoptree.driver.recorder import SNAPSHOT_EVERY
from hoptree.record.spec import agree
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuner, Tuners
from hoptree.simulator import Cluster, Workload
from hoptree.store import Store
from hoptree.trainers.base import ModelState

EPOCHS = 100
PARTITIONS = 10
WORKERS = 16
BATCH = 1_000  # entries in one transaction
NAME = "opened"
SPACE = {"lr": ht.log(1e-5, 1e-1), "width": ht.integer(16, 2048), "batch_size": ht.choice(16, 32, 64)}


class Nothing(ht.Trainer):
    """A trainer that is never called."""

    fingerprint = "nothing"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        """Return nothing."""

    def train(self, model: Any, data: Any, unit: Any) -> None:
        """Train nothing."""

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        """Return a number."""
        return {"loss": 0.0}

    def dump(self, model: Any) -> ModelState:
        """Return nothing."""
        return ModelState({}, {})

    def load(self, model: Any, state: ModelState) -> None:
        """Load nothing."""


class Writer:
    """Appends what happens to the journal, many entries at a time; the only place that knows how they look."""

    def __init__(self, store: Store, token: int, state: StudyState) -> None:
        self._journal = store.journal
        self._writer = store.journal.writer(NAME, token)
        self._token = token
        self._state = state
        self._facts = FactWriter(state)
        self._entries: list[tuple[float, Entry]] = []
        self._taken = 0
        self.snapshot_seconds: list[float] = []
        self.snapshot_bytes = 0

    def see(self, step: Step) -> None:
        """Take one step of the engine."""
        self._entries.append((step.now, self._facts.entry(step)))
        if len(self._entries) >= BATCH:
            self.flush()
            if self._writer.tail.seq - self._taken >= SNAPSHOT_EVERY:
                self._take_snapshot(step.now)

    def _take_snapshot(self, now: float) -> None:
        """Take one as a driver does: the last of a driver that is killed is up to so many entries old."""
        began = time.perf_counter()
        self._taken = self._writer.tail.seq
        data = take_snapshot(self._state, now)
        self._journal.write_snapshot(NAME, self._token, self._taken, data, version=SNAPSHOT_VERSION)
        self.snapshot_seconds.append(time.perf_counter() - began)
        self.snapshot_bytes = len(data)

    def flush(self) -> None:
        """Write what is left."""
        self._writer.append(self._entries, durable=False)
        self._entries.clear()

    @property
    def after(self) -> int:
        """How many entries came after the last snapshot."""
        return self._writer.tail.seq - self._taken


def build(folder: Path, units: int) -> None:
    """Write the journal of a finished study."""
    trials = max(1, units // (EPOCHS * PARTITIONS))
    rows = np.zeros((4 * PARTITIONS, 1), np.float32)
    study = ht.Study(
        NAME,
        trainer=Nothing(),
        data=ht.Dataset.from_arrays(x=rows, partitions=PARTITIONS, valid=0.25, to=folder / "data"),
        space=SPACE,
        search=ht.Random(trials, epochs=EPOCHS),
        minimize="loss",
        store=folder,
    )
    with study.open_store() as store, store.lease(NAME) as lease:
        spec = agree(store, NAME, {NAME: study.spec}, False).spec
        engine = Engine(spec.settings)
        writer = Writer(store, lease.token, engine.state)
        backend = SimulatedBackend(Cluster(workers=WORKERS), PARTITIONS, Workload().landscape(), record=False)
        numbers = TrialNumbers([NAME])
        tuners = Tuners(
            [
                Tuner(search, study=NAME, root=spec.root, place=place, numbers=numbers)
                for place, search in enumerate(study.searches())
            ],
            numbers,
        )
        with without_collector():
            drive(engine, backend, tuners, [writer.see])
        writer.flush()
        if writer.snapshot_seconds:
            print(
                f"{len(writer.snapshot_seconds)} snapshots, the last of {writer.snapshot_bytes / 1e6:.1f} MB in "
                f"{writer.snapshot_seconds[-1]:.2f} s; {writer.after} entries after it"
            )
        store.catalog.set_status(NAME, "finished")


def show(folder: Path) -> None:
    """Be the command, and say at the end how much memory that took."""
    from hoptree.ui.cli import main as hoptree

    sys.argv = ["hoptree", "show", NAME, "--json", "--store", str(folder)]
    try:
        hoptree()
    finally:
        sys.stderr.write(f"peak {peak_memory()}\n")


class Opened(NamedTuple):
    """The time of the command, and the number of trials that it printed."""

    seconds: float
    processor: float
    memory: int
    trials: int


def measure(folder: Path) -> Opened:
    """Run the command once."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "bench.opening", "--show", str(folder)], capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Opened(seconds, processor, int(done.stderr.split()[-1]), done.stdout.count('"number"'))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.opening", description="Opening a large study.")
    parser.add_argument("--units", type=int, nargs="+", default=[2_000_000], help="in the journal [2000000]")
    parser.add_argument("--label", default="", help="a word for the section's name")
    parser.add_argument("--store", type=Path, help="where to keep the journal [a temporary folder]")
    parser.add_argument("--repeats", type=int, default=3, help="measurements, of which the least counts [3]")
    parser.add_argument("--show", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show:
        show(options.show)
        return
    rows = []
    for units in options.units:
        with tempfile.TemporaryDirectory(prefix="hoptree-opening-") as temporary:
            folder = (options.store or Path(temporary)) / f"{units}"
            took = ""
            if not folder.exists():
                began = time.perf_counter()
                build(folder, units)
                took = f"{time.perf_counter() - began:.1f} s"
            found = [measure(folder) for _ in range(options.repeats)]
            size = sum(path.stat().st_size for path in folder.glob("journal.sqlite*"))
            rows.append(
                [
                    f"{units:,}",
                    f"{found[0].trials:,}",
                    f"{size / 1e6:.1f} MB",
                    took,
                    f"{min(opened.seconds for opened in found):.2f} s",
                    f"{min(opened.processor for opened in found):.2f} s",
                    f"{max(opened.memory for opened in found) / 1e6:.0f} MB",
                ]
            )
    columns = ["units", "trials", "journal", "written in", "show --json", "of the processor", "peak memory"]
    text = (
        f"## Opening a study{f' ({options.label})' if options.label else ''}\n\n"
        f"`hoptree show {NAME} --json` in a process of its own, least of {options.repeats}; trials of {EPOCHS} "
        f"epochs on {PARTITIONS} partitions, reports every epoch; limits for 2,000,000 units: 3 s and 1 GB.\n\n"
        + table(columns, rows)
    )
    section = f"opening-{options.label}" if options.label else "opening"
    label = f" --label {options.label}" if options.label else ""
    record(section, f"python -m bench.opening --units {' '.join(map(str, options.units))}{label}", text)


if __name__ == "__main__":
    main()

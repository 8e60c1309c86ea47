"""Seconds for each plot of a 500-trial study: its journal read from a real store, the figure drawn and written.

`python -m bench.plots [FOLDER]` prints the figures; with a folder, the pictures stay there to be looked at.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec
from tests.report.study_timelines import WIDE, run

import hoptree as ht
from bench.results import record, table
from hoptree.core.fact_writer import FactWriter
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.exports import export
from hoptree.record.load_timeline import load_timeline
from hoptree.record.spec import StudySpec
from hoptree.report.study_timeline import StudyTimeline
from hoptree.search.protocol import Goal
from hoptree.search.space import describe
from hoptree.store import Store

REPEATS = 3
T = TypeVar("T")
RATES = [ht.multistep(rate, at=[at], gamma=0.1) for rate in (1e-3, 1e-2, 0.1) for at in (4, 8, 12)]
GRID = {
    "lr": ht.choice(1e-3, *RATES),
    "width": ht.choice(16, 32, 64, 128, 256),
    "act": ht.choice("relu", "gelu"),
    "drop": ht.choice(0.0, 0.1, 0.2, 0.3, 0.5),
}
STUDIES = {"asha": (ht.ASHA(500, max_epochs=27), WIDE), "grid": (ht.Grid(epochs=16), GRID)}


def journal(store: Store, name: str) -> None:
    """Run a study on made-up workers, and keep its events as a driver would."""
    procedure, space = STUDIES[name]
    steps: list[Step] = []
    told = run(procedure, space, workers=8, partitions=8, watches=(steps.append,))
    writer = FactWriter(told.state)
    spec = StudySpec(
        trainer="made-up", data="made-up", space=describe(space), search=repr(procedure),
        goal=Goal("accuracy", True), seed=1, share=True, settings=Settings(8), root="root", program="",
    )  # fmt: skip
    store.catalog.register(name, msgspec.to_builtins(spec))
    with store.lease(name) as lease:
        store.journal.writer(name, lease.token).append([(step.now, writer.entry(step)) for step in steps])


def measure(store: Store, name: str, folder: Path) -> list[list[str]]:
    (told,), times = timed(lambda: load_timeline(store, name), 1)
    units = sum(span.kind == "unit" for span in told.timeline.spans)
    rows = [[name, "read the journal", *times, f"{len(told.trials)} trials, {units:,} units"]]
    for kind in ht.plot.KINDS:
        try:
            for dark in (False, True):
                pages, times = timed(partial(draw, told, kind, folder, dark), REPEATS)
        except ht.HoptreeError:
            continue  # a grid has no rungs
        rows.append([name, f"plot {kind}", *times, f"{pages[0].stat().st_size / 1e3:.0f} kB"])
    (page,), times = timed(lambda: export(told, "html", folder / f"{name}.html"), 1)
    rows.append([name, "export html", *times, f"{page.stat().st_size / 1e6:.1f} MB"])
    return rows


def draw(told: StudyTimeline, kind: str, folder: Path, dark: bool) -> Path:
    page = ht.plot.KINDS[kind](told, dark=dark)
    return ht.plot.save(page, folder / f"{told.name}-{kind}-{'dark' if dark else 'light'}.png")


def timed(work: Callable[[], T], repeats: int) -> tuple[list[T], list[str]]:
    """Return what came of it, and the median seconds: by the clock, and of the processor."""
    results, clock, processor = [], [], []
    for _ in range(repeats):
        began = time.perf_counter(), time.process_time()
        results.append(work())
        clock.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    return results, [f"{median(clock):.2f} s", f"{median(processor):.2f} s"]


def main() -> None:
    with TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if sys.argv[1:] else Path(scratch)
        with Store(Path(scratch) / "store") as store:
            rows = []
            for name in STUDIES:
                journal(store, name)
                rows += measure(store, name, folder)
    text = (
        "## Plots of 500 trials\n\nFrom a journal in SQLite. Each figure is drawn and written; the bar is 5 s. "
        f"Medians of {REPEATS}; by the clock they include waiting for a machine that others used.\n\n"
        + table(["study", "what", "by the clock", "of the processor", ""], rows)
    )
    record("plots", "python -m bench.plots", text)


if __name__ == "__main__":
    main()

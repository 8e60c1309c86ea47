"""2,000 trials in one driver: its memory, and what a decision takes, with real searches on simulated workers.

A decision is one event: the step of the engine, and what the search makes of the reports. It is timed by the CPU
time of the thread, so that other programs do not count. Costs are learned on the way, as in a real run.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

import hoptree as ht
from bench.memory import peak_memory
from bench.results import record, table
from hoptree.backends.event_loop import drive, without_collector
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import Action
from hoptree.core.engine import Engine
from hoptree.core.events import CostsLearned, Event
from hoptree.core.settings import Settings
from hoptree.estimate import Estimator
from hoptree.search.protocol import Goal
from hoptree.search.tuner import Tuner
from hoptree.simulator import Cluster, Workload

TRIALS = 2_000
SPACE = {
    "lr": ht.choice(0.1, ht.multistep(0.1, at=[1], gamma=0.1), ht.multistep(0.1, at=[2], gamma=0.1)),
    "width": ht.integer(16, 2048),
    "decay": ht.log(1e-6, 1e-2),
    "batch_size": ht.choice(16, 32, 64),
}
SEARCHES: dict[str, Callable[[], Any]] = {
    "ASHA": lambda: ht.ASHA(trials=TRIALS, max_epochs=27),
    "Hyperband": lambda: ht.Hyperband(max_epochs=2187),
    "Random": lambda: ht.Random(TRIALS, epochs=5),
    "MedianStopping": lambda: ht.MedianStopping(TRIALS, epochs=9),
}
PARTITIONS = {"Hyperband": 2}  # it trains for very long; 8 for the others
EVERY = 20_000  # events between two looks at what was learned


class Figures(msgspec.Struct):
    """What one process measured; decisions in seconds."""

    trials: int
    units: int
    seconds: float
    bytes: int
    median: float
    nearly_all: float  # 999 of 1,000
    longest: float
    learning: float  # the longest decision about costs


class Clocked:
    """An engine or a tuner whose calls are timed."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.learning: list[float] = []

    def engine(self, engine: Engine) -> Engine:
        """Time every step."""
        step = engine.step

        def timed(event: Event, now: float, *, more: bool = False) -> list[Action]:
            began = time.thread_time()
            actions = step(event, now, more=more)
            (self.learning if isinstance(event, CostsLearned) else self.steps).append(time.thread_time() - began)
            return actions

        engine.step = timed  # type: ignore[method-assign]
        return engine

    def tuner(self, tuner: Tuner) -> Tuner:
        """Add the decisions of the search to the step that reported the update."""
        tell = tuner.tell

        def timed(news: Any) -> list[Event]:
            began = time.thread_time()
            events = tell(news)
            self.steps[-1] += time.thread_time() - began
            return events

        tuner.tell = timed  # type: ignore[method-assign]
        return tuner


def measure(name: str) -> Figures:
    """Run one search through the real engine and the real loop, in this process."""
    partitions, clocked, estimator = PARTITIONS.get(name, 8), Clocked(), Estimator()
    engine = clocked.engine(Engine(Settings(partitions)))
    search = SEARCHES[name]().search(SPACE, Goal("loss", False), 0)
    landscape = Workload(factors={"batch_size": {"16": 4.0, "32": 2.0}}).landscape()
    backend = SimulatedBackend(Cluster(workers=16), partitions, landscape, record=False)
    began = time.perf_counter()
    seen = 0

    wait = backend.wait

    def waiting(seconds: float | None = None) -> tuple[float, list[Event]]:
        nonlocal seen
        now, events = wait(seconds)
        seen += len(events)
        if seen > EVERY:
            seen = 0
            gc.collect(1)
            news = estimator.news()
            events += [] if news is None else [news]
        return now, events

    backend.wait = waiting  # type: ignore[method-assign]
    tuner = clocked.tuner(Tuner(search, root="bench"))
    with without_collector():
        drive(engine, backend, tuner, [estimator.watch])
    took = time.perf_counter() - began
    steps = sorted(clocked.steps)
    return Figures(
        trials=len(engine.trials),
        units=backend.units,
        seconds=took,
        bytes=peak_memory(),
        median=steps[len(steps) // 2],
        nearly_all=steps[len(steps) * 999 // 1000],
        longest=steps[-1],
        learning=max(clocked.learning, default=0.0),
    )


def fresh(name: str) -> Figures:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "bench.trials", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=Figures)


def main() -> None:
    rows = []
    for name in SEARCHES:
        found = fresh(name)
        rows.append(
            [
                name,
                f"{found.trials:,}",
                f"{found.units:,}",
                f"{found.bytes / 1e6:.0f} MB",
                f"{found.median * 1e6:.0f} µs",
                f"{found.nearly_all * 1e3:.2f} ms",
                f"{found.longest * 1e3:.1f} ms",
                f"{found.learning * 1e3:.1f} ms",
            ]
        )
    columns = ["search", "trials", "units", "peak memory", "decision (median)", "999 of 1,000", "longest", "costs"]
    text = (
        "## 2,000 trials in one driver\n\n"
        "Real searches and the real engine on 16 simulated workers, 8 partitions (Hyperband 2); "
        "a process each, CPU time of the thread. A decision is an event with all that engine and search make of "
        'it; "costs" is the longest in which costs were learned: nodes are priced anew in parts, with the events '
        "that follow.\n\n" + table(columns, rows)
    )
    record("trials", "python -m bench.trials", text)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.buffer.write(msgspec.json.encode(measure(sys.argv[1])))
    else:
        main()

"""What a log gets, how often, and how long the rest is said to take."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.estimate import Estimator
from hoptree.progress import RunStats, RunViews, TimeLeft, TimeLeftEstimator
from hoptree.progress.plain import PlainDisplay
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Goal
from hoptree.search.tuner import Tuner
from hoptree.simulator import Cluster, FlakyUnits, Workload
from hoptree.store.logs import Logs

GOAL = Goal("loss", maximize=False)


class Run:
    """A simulated run whose clock is the display's clock."""

    def __init__(self, workload: Workload, cluster: Cluster, retries: int = 2) -> None:
        landscape = workload.landscape()
        self.now = 0.0
        self.engine = Engine(Settings(workload.partitions, retries=retries), landscape.seconds)
        self.stats = RunStats(self.engine, {"": GOAL}, lambda: self.now)
        self.estimator = Estimator()
        self.views = RunViews(self.stats, cluster.workers, self.estimator)
        self.backend = SimulatedBackend(cluster, workload.partitions, landscape, state_bytes=0.0)
        self.tuner = Tuner(Fixed(workload.config_list(), workload.epochs, every=1), root="r")
        self.left: list[tuple[float, TimeLeft]] = []

    def drive(self, display: PlainDisplay) -> float:
        remaining = TimeLeftEstimator(self.stats, self.estimator)

        def watch(step: Step) -> None:
            self.now = now = step.now
            self.stats.see(step)
            self.estimator.watch(step)
            if not step.more:
                display.update(self.views)
                if (left := remaining.remaining()) is not None:
                    self.left.append((now, left))

        display.begin(self.views, Logs(Path("logs")))
        end = drive(self.engine, self.backend, self.tuner, [watch])
        display.end(self.views)
        return end


def test_a_log_gets_few_lines_and_fewer_with_time() -> None:
    out = io.StringIO()
    run = Run(Workload(configs=20, epochs=20, partitions=2, seconds=5.0), Cluster(workers=2))
    end = run.drive(PlainDisplay(out))
    lines = out.getvalue().splitlines()
    assert end == 2000.0
    assert len(lines) <= 6 + 18 + 24 + 1
    assert lines[0].startswith(": 0 %, 10 s elapsed, ")
    assert lines[-1].startswith(": 20 complete in 33 min 20 s; best trial ")
    assert lines[-1].endswith("epochs: 400 requested, 400 trained in this run")
    assert all(line.isprintable() for line in lines)


def test_first_failures_are_shown_at_once_with_their_file() -> None:
    out = io.StringIO()
    flaky = Cluster(workers=2, faults=[FlakyUnits(0.999999)])
    run = Run(Workload(configs=30, epochs=1, partitions=1), flaky, retries=0)
    run.drive(PlainDisplay(out))
    lines = out.getvalue().splitlines()
    told = [line for line in lines if " failed: " in line]
    assert len(told) == 10
    assert told[0].endswith(f"see {Path('logs') / '-trial-0.txt'}")
    assert "further failures are not shown" in out.getvalue()
    assert lines[-1].startswith(": 30 failed in ")


def test_the_time_left_is_right_when_units_are_alike() -> None:
    run = Run(Workload(configs=8, epochs=4, partitions=2, seconds=3.0), Cluster(workers=2))
    end = run.drive(PlainDisplay(io.StringIO()))
    assert run.left
    for now, (least, expected, most) in run.left:
        assert least <= expected <= most
        assert expected == pytest.approx(end - now, abs=6.1)  # a unit under way on either worker

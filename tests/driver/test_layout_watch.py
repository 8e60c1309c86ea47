"""A layout that needs more workers than will ever come ends the run instead of letting it wait."""

from __future__ import annotations

import pytest

from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.errors import RefusedError
from hoptree.core.events import TrialAsked, WorkerJoined
from hoptree.core.layout_choice import LayoutChoice, LayoutOptions
from hoptree.core.lineage import config_items
from hoptree.core.settings import Settings
from hoptree.driver.layout_watch import PATIENCE, LayoutWatch


class Run:
    """An engine with a fixed pipeline, one worker on each of two machines, and a clock."""

    def __init__(self) -> None:
        layouts = LayoutChoice(2)
        layouts.offer(LayoutOptions(("pipeline",)))
        self.engine = Engine(Settings(1), allotment=Allotment(2), layouts=layouts)
        self.now = 0.0
        self.watch = LayoutWatch(self.engine, lambda: self.now)
        for name in ("a", "b"):
            self.join(name, name)
        self.engine.step(TrialAsked(0, config_items({"lr": 0.1}), 1), 0.0)

    def join(self, name: str, machine: str) -> None:
        self.engine.step(WorkerJoined(name, (0,), machine=machine), 0.0)


def test_a_pipeline_without_two_workers_on_a_machine_is_refused_after_a_while() -> None:
    run = Run()
    assert not run.engine.runs
    run.watch.poll()
    run.now = PATIENCE
    run.watch.poll()
    run.now = PATIENCE + 1
    with pytest.raises(RefusedError, match="layout: 'pipeline' needs 2 workers of one machine that hold part"):
        run.watch.poll()


def test_a_worker_that_joins_begins_the_wait_anew_and_a_second_one_ends_it() -> None:
    run = Run()
    run.watch.poll()
    run.now = PATIENCE + 1
    run.join("c", "c")
    run.watch.poll()
    run.join("d", "a")
    assert [len(each.crew) for each in run.engine.runs.values()] == [1]
    run.now = 9 * PATIENCE
    run.watch.poll()

"""What a chronicler tells against what the engine and the backend know."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.events import Event, TrialAsked, TrialExtended, UnitFinished, WorkerJoined, WorkerLost
from hoptree.core.lineage import config_items
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.progress import RunStats
from hoptree.record.record import Record
from hoptree.report.timeline_builder import TimelineBuilder
from hoptree.search.protocol import Goal
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Landscape
from tests.report.study_timelines import STEPPED, WIDE, history, run


def test_sums_are_those_of_the_plan() -> None:
    told = history(ht.Grid(epochs=12), STEPPED)
    last = told.progress[-1]
    assert last.got == 12 * 12
    # Of three schedules, two begin alike for 4 and 8 epochs: 4 groups of 12 + 8 + 4.
    assert last.trained == pytest.approx(4 * 24)
    assert sum(tree_node.end - tree_node.start for tree_node in told.tree) == 4 * 24
    assert last.alone > last.spent > 0
    assert len(told.trials) == 12
    assert told.searched == ["act", "lr", "width"]
    assert all(len(trial_timeline.reports) == 12 for trial_timeline in told.trials)


@settings(max_examples=20, deadline=None)
@given(workers=st.integers(1, 5), partitions=st.integers(1, 4), trials=st.integers(1, 12))
def test_workers_do_one_thing_at_a_time_and_every_unit_is_recorded(
    workers: int, partitions: int, trials: int
) -> None:
    units = []

    def count(step: Step) -> None:
        units.append(isinstance(step.event, UnitFinished))

    workers = min(workers, partitions)
    told = history(ht.Random(trials, epochs=3), WIDE, workers=workers, partitions=partitions, watches=(count,))
    spans = [span for span in told.timeline.spans if span.kind == "unit"]
    assert len(spans) == sum(units)
    assert told.progress[-1].trained == pytest.approx(sum(units) / partitions)
    for worker in told.timeline.workers:
        mine = sorted((s.start, s.end) for s in told.timeline.spans if s.worker == worker)
        for (_, end), (start, _) in pairwise(mine):
            assert start >= end - 1e-9
    for hop in told.hops:
        assert hop.source != hop.worker
        assert hop.left <= hop.begun


class Late:
    """Asks for an epoch that a trial has passed, once it has ended, and for one that it has told of."""

    def __init__(self) -> None:
        self.later: list[Event] = [TrialExtended(0, 2), TrialExtended(0, 4)]

    def start(self) -> list[Event]:
        return [TrialAsked(0, config_items({"lr": 0.1}), until=1), TrialExtended(0, 4)]

    def tell(self, news: Report | EndTrial) -> list[Event]:
        return [self.later.pop(0)] if isinstance(news, EndTrial) and self.later else []


def test_late_and_repeated_reports_are_written_once_and_in_order() -> None:
    record = Record(Settings(partitions=2))
    engine, builder = Engine(record.settings, state=record.state), TimelineBuilder(record.state)
    landscape = Landscape(lambda _: 1.0, lambda _, epoch, __: {"loss": 1 / epoch})
    backend = SimulatedBackend(Cluster(workers=1), 2, landscape)
    drive(engine, backend, Late(), [record.note, builder.see])
    (trial_timeline,) = builder.study_timeline("late", "loss", maximize=False).trials
    assert [told.epoch for told in trial_timeline.reports] == [1, 2, 4]
    assert trial_timeline.epochs == 4
    assert list(record.by_number[0].curve.items()) == [(1, {"loss": 1.0}), (2, {"loss": 0.5}), (4, {"loss": 0.25})]


def test_spans_agree_with_the_simulator() -> None:
    seen = {}

    def watch(step: Step) -> None:
        if isinstance(step.event, UnitFinished):
            seen[step.event.run] = step.now

    told = history(ht.Grid(epochs=3), STEPPED, watches=(watch,))
    assert sorted(seen.values()) == sorted(span.end for span in told.timeline.spans if span.kind == "unit")


def test_workers_are_called_as_in_the_live_view() -> None:
    """By the first place that is free: one that takes the place of a lost one is called as that was."""
    engine = Engine(Settings(1))
    builder, tally = TimelineBuilder(engine.state), RunStats(engine, {"": Goal("loss", False)})
    events = [WorkerJoined("f15475bc-0", (0,)), WorkerJoined("f15475bc-1", (0,)), WorkerLost("f15475bc-0")]
    for event in [*events, WorkerJoined("f15475bc-2", (0,))]:
        step = engine.state.note(event, 0.0, False, engine.step(event, 0.0))
        builder.see(step)
        tally.see(step)
    assert builder.study_timeline("s", "loss", False).timeline.workers == ("w0", "w1")
    assert tally.workers == {"f15475bc-1": "w1", "f15475bc-2": "w0"}


def test_lost_workers_are_absent_and_what_they_did_failed() -> None:
    told = history(ht.Grid(epochs=3), STEPPED, faults=[ht.Crash("w1", at=20, back=60)])
    kinds = [span.kind for span in told.timeline.spans if span.worker == "w1"]
    assert kinds.count("failed") == 1
    (down,) = (span for span in told.timeline.spans if span.kind == "down")
    assert (down.worker, down.start, down.end) == ("w1", 20, 60)
    assert all(trial_timeline.state == "complete" for trial_timeline in told.trials)


def test_grants_and_sources() -> None:
    told = history(ht.SuccessiveHalving(9, max_epochs=9), WIDE)
    assert sorted(max(until for _, until in trial_timeline.grants) for trial_timeline in told.trials) == [1] * 6 + [
        3
    ] * 2 + [9]
    assert told.common_epoch == 1
    bred = history(ht.PBT(population=4, epochs=6, interval=2), {"lr": ht.log(1e-4, 1e-1)})
    assert any(trial_timeline.source is not None for trial_timeline in bred.trials)


def test_best_prefers_complete_trials() -> None:
    told = history(ht.SuccessiveHalving(9, max_epochs=9), WIDE)
    assert told.best is not None
    assert told.best.state == "complete"
    silent = run(ht.Grid(epochs=1), STEPPED).study_timeline("x", "nonsense", False)
    assert silent.best is None  # a metric that nobody reports has no best, and is no reason to fall over

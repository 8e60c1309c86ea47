"""A run on nodes that come and go: when it decides, what it records, and what it asks of the backend."""

from __future__ import annotations

import math

from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.events import (
    AllocationPlanned,
    Event,
    NodesRequested,
    NodeStarted,
    UnitFinished,
    WorkerJoined,
)
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.driver.elastic_run import ElasticRun
from hoptree.driver.study_stages import StudyStages, TrainingTimes
from hoptree.elastic.controller import NodeController
from hoptree.elastic.instance import Instance
from hoptree.search import Goal, SuccessiveHalving
from hoptree.search.tuner import Tuner
from hoptree.search.value_kinds import uniform
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.elastic_nodes import ElasticNodes

SEARCH = SuccessiveHalving(9, max_epochs=3)
INSTANCE = Instance("two", devices=2, price=3.6, provision=5.0, start=5.0)


def tuner() -> Tuner:
    return Tuner(SEARCH.search({"lr": uniform(0.0, 1.0)}, Goal("loss", maximize=False), 0), root="r")


class Rig:
    """An engine, a backend and the run that connects them; events are applied one at a time."""

    def __init__(self, deadline: float) -> None:
        workload = Workload(partitions=2, seconds=10.0)
        self.engine = Engine(Settings(2), workload.landscape().seconds)
        cluster = Cluster(elastic=ElasticNodes(devices=2, provision=5.0, start=5.0))
        self.backend = SimulatedBackend(cluster, 2, workload.landscape())
        self.times = TrainingTimes(lambda _: 10.0)
        self.run = ElasticRun(
            self.engine.state,
            StudyStages({("", 0): SEARCH}, tuner, ["loss"], 2),
            NodeController(INSTANCE, deadline=deadline, budget=None),
            self.backend,
            lambda: self.times,
            lambda: self.backend.now,
        )
        self.backend.start()

    def apply(self, *events: Event) -> list[Step]:
        steps = []
        for event in events:
            actions = self.engine.step(event, self.backend.now)
            steps.append(self.engine.state.note(event, self.backend.now, False, actions))
            self.run.see(steps[-1])
            for action in actions:
                self.backend.submit(action)  # type: ignore[arg-type]  # no reports here
        return steps

    def wait(self) -> list[Event]:
        _, events = self.backend.wait(None)
        self.apply(*events)
        return events


def test_it_plans_before_anything_was_asked_for_and_records_that() -> None:
    rig = Rig(deadline=300.0)
    assert rig.run.pause() == 0.0
    planned, requested = rig.run.poll()
    assert isinstance(planned, AllocationPlanned)
    assert (planned.stage, planned.reason) == (0, "start")
    assert planned.plan["deadline"] == 300.0
    assert isinstance(requested, NodesRequested)
    assert [plan.deadline for plan in rig.run.plans] == [300.0]
    assert 0.0 < rig.run.pause() < math.inf
    rig.apply(planned, requested)
    assert rig.engine.state.nodes.rows.plans[0].reason == "start"
    assert rig.engine.state.nodes.rows.requests == [(0.0, requested.count)]
    started = [event for event in rig.wait() if isinstance(event, NodeStarted)]
    assert len(started) == requested.count


def test_it_decides_again_when_nodes_or_trials_change_and_not_for_each_unit() -> None:
    rig = Rig(deadline=300.0)
    rig.apply(*rig.run.poll())
    rig.apply(*tuner().start())
    assert rig.run.pause() == 0.0
    assert rig.run.poll() == []
    rig.wait()  # nodes start
    assert rig.run.pause() == 0.0
    rig.run.poll()
    assert any(isinstance(event, WorkerJoined) for event in rig.wait())
    rig.run.poll()
    pause = rig.run.pause()
    events = rig.wait()
    assert any(isinstance(event, UnitFinished) for event in events)
    assert rig.run.pause() == max(0.0, pause - 10.0)


def test_times_that_are_learned_change_the_plan() -> None:
    rig = Rig(deadline=300.0)
    rig.apply(*rig.run.poll())
    rig.apply(*tuner().start())
    while not rig.engine.state.units:
        rig.wait()
    rig.run.poll()
    rig.times = TrainingTimes(lambda _: 30.0)
    found = [event for event in rig.run.poll() if isinstance(event, AllocationPlanned)]
    assert [event.reason for event in found] == ["deviation"]
    assert len(rig.run.plans) == 2

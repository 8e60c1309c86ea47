"""The real engine on simulated nodes that come and go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.backends.event_loop import Observer, drive
from hoptree.backends.protocol import ScalesNodes
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import (
    Event,
    NodeLost,
    NodeReleased,
    NodeStarted,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.invariants import InvariantChecker
from hoptree.core.saving import SavePolicy
from hoptree.core.settings import Order, Settings
from hoptree.core.steps import Step
from hoptree.elastic.instance import Instance
from hoptree.forecast.elastic_simulation import AllocationRun, AllocationTerms, simulate_allocation
from hoptree.forecast.simulation import simulate
from hoptree.search import Fixed, Goal, Hyperband, SuccessiveHalving
from hoptree.search.tuner import Tuner
from hoptree.search.value_kinds import choice, uniform
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.elastic_nodes import ElasticNodes
from hoptree.simulator.faults import Crash, Fault, NodeLoss
from hoptree.simulator.scaling import profile_of

SPACE = {"lr": uniform(0.0, 1.0), "width": choice(8, 16)}
GOAL = Goal("loss", maximize=False)
INSTANCE = Instance("four", devices=4, price=3.6, minimum=60.0, provision=20.0, start=10.0)
SCALING: dict[str, Any] = {"data": {2: 1.8, 4: 3.1}}


class Scaled:
    """An event source that scales a backend at certain times, and keeps all steps."""

    def __init__(self, backend: SimulatedBackend, orders: dict[float, tuple[int, tuple[str, ...]]]) -> None:
        self._backend = backend
        self._orders = dict(sorted(orders.items()))
        self.steps: list[Step] = []

    def see(self, step: Step) -> None:
        self.steps.append(step)

    def pause(self) -> float:
        return max(0.0, min(self._orders, default=float("inf")) - self._backend.now)

    def poll(self) -> list[Event]:
        self._backend.scale(*self._orders.pop(min(self._orders)))
        return []

    def of(self, *kinds: type[Event]) -> list[tuple[float, Event]]:
        return [(step.now, step.event) for step in self.steps if isinstance(step.event, kinds)]


def run(
    orders: dict[float, tuple[int, tuple[str, ...]]],
    *faults: Fault,
    configs: int = 8,
    epochs: int = 2,
    partitions: int = 4,
    order: Order = "strict",
    seed: int = 0,
    gangs: bool = False,
    **nodes: Any,
) -> tuple[Scaled, Engine, SimulatedBackend]:
    elastic = ElasticNodes(**{"devices": 2, "provision": 3.0, "start": 2.0, **nodes})
    workload = Workload(configs=configs, epochs=epochs, partitions=partitions)
    cluster = Cluster(elastic=elastic, scaling=SCALING if gangs else {}, faults=list(faults))
    engine = Engine(
        Settings(partitions, order),
        allotment=Allotment(2, profile_of(SCALING, 2), exact=True) if gangs else None,
        saving=SavePolicy(every=1),
    )
    backend = SimulatedBackend(cluster, partitions, workload.landscape(), seed=seed)
    scaled = Scaled(backend, orders)
    watches: list[Observer] = [scaled.see, InvariantChecker(engine).see]
    tuner = Tuner(Fixed(workload.config_list(), epochs), root="r")
    drive(engine, backend, tuner, watches, sources=[scaled])
    return scaled, engine, backend


def units_of(scaled: Scaled) -> list[str]:
    """Return the nodes on which units were trained, in order."""
    runs = (step.run for step in scaled.steps if isinstance(step.event, UnitFinished))
    return [run.worker.split(".")[0] for run in runs if isinstance(run, RunUnit)]


def test_nodes_come_when_they_are_requested_and_train() -> None:
    scaled, engine, backend = run({0.0: (1, ()), 10.0: (2, ())})
    assert isinstance(backend, ScalesNodes)
    started = scaled.of(NodeStarted)
    assert started == [(3.0, NodeStarted("i0", 2, 3.0)), (13.0, NodeStarted("i1", 2, 3.0))]
    joined = [(now, event) for now, event in scaled.of(WorkerJoined) if isinstance(event, WorkerJoined)]
    assert [(now, event.node, event.machine) for now, event in joined] == [
        (5.0, "i0", "i0"),
        (5.0, "i0", "i0"),
        (15.0, "i1", "i1"),
        (15.0, "i1", "i1"),
    ]
    assert set(units_of(scaled)) == {"i0", "i1"}
    assert engine.state.nodes.running.keys() == {"i0", "i1"}


@pytest.mark.parametrize("replicas", [None, 1])
def test_no_unit_is_lost_when_a_node_is_given_back(replicas: int | None) -> None:
    scaled, engine, backend = run({0.0: (3, ()), 15.3: (1, ("i0", "i2"))}, replicas=replicas, partition_seconds=0.5)
    released = [event.node for _, event in scaled.of(NodeReleased) if isinstance(event, NodeReleased)]
    assert sorted(released) == ["i0", "i2"]
    assert backend.units == engine.plan.work(engine.trials.values()).unique
    for name in released:
        drained = max(index for index, step in enumerate(scaled.steps) if _is(step, WorkerDrained, name))
        left = min(index for index, step in enumerate(scaled.steps) if _is(step, WorkerLost, name))
        assert drained < left
        assert not any(step.lost for step in scaled.steps)
    assert {trial.ending for trial in engine.trials.values()} == {"complete"}


def _is(step: Step, kind: type[WorkerDrained | WorkerLost], node: str) -> bool:
    return isinstance(step.event, kind) and step.event.worker.startswith(f"{node}.")


def test_a_node_that_holds_a_partition_alone_waits_until_another_has_loaded_it() -> None:
    scaled, _, _ = run({0.0: (2, ()), 50.0: (1, ("i0",))}, replicas=1, partition_seconds=4.0, epochs=16)
    [(drained, _), _] = scaled.of(WorkerDrained)
    assert drained == 50.0 + 2 * 4.0  # the other one loads two of four partitions
    holds = [event.partitions for _, event in scaled.of(WorkerJoined) if isinstance(event, WorkerJoined)]
    assert holds[-1] == (0, 1, 2, 3)


def test_a_node_that_is_given_back_before_it_has_started_costs_nothing() -> None:
    scaled, engine, _ = run({0.0: (3, ()), 1.0: (1, ())})
    assert [event for _, event in scaled.of(NodeStarted)] == [NodeStarted("i0", 2, 3.0)]
    assert len(engine.state.nodes.rows.uses) == 1


def test_a_node_that_starts_up_can_be_given_back() -> None:
    scaled, engine, _ = run({0.0: (2, ()), 4.0: (1, ("i0",))})
    assert scaled.of(NodeReleased) == [(4.0, NodeReleased("i0"))]
    assert {use.node: use.joined for use in engine.state.nodes.rows.uses} == {"i0": None, "i1": 5.0}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 5), st.floats(6.0, 40.0), st.sampled_from([None, 1, 2]), st.sampled_from(["strict", "free"]))
def test_a_lost_node_costs_retries_only(seed: int, at: float, replicas: int | None, order: Order) -> None:
    scaled, engine, backend = run(
        {0.0: (3, ())}, NodeLoss(at=at), seed=seed, replicas=replicas, order=order, epochs=4, spread=0.3
    )
    assert {trial.ending for trial in engine.trials.values()} == {"complete"}
    lost = scaled.of(NodeLost)
    retries = backend.units - engine.plan.work(engine.trials.values()).unique
    # States are saved after each epoch, so at most one epoch of each config is trained again.
    assert 0 <= retries <= len(lost) * 8 * 4
    if lost:
        assert len(engine.state.nodes.rows.uses) == 4 or lost[0][0] > scaled.steps[-1].now - 5.0


def test_the_cluster_replaces_a_lost_node_and_keeps_to_its_limit() -> None:
    scaled, _, _ = run({0.0: (5, ())}, NodeLoss(at=8.0, node="i1"), max_count=2)
    assert [event.node for _, event in scaled.of(NodeStarted) if isinstance(event, NodeStarted)] == [
        "i0",
        "i1",
        "i2",
    ]
    assert scaled.of(NodeLost) == [(8.0, NodeLost("i1"))]


def test_a_node_that_does_not_run_cannot_be_lost() -> None:
    scaled, _, _ = run({0.0: (1, ())}, NodeLoss(at=1.0), NodeLoss(at=7.0, node="other"))
    assert not scaled.of(NodeLost)


def test_gangs_are_on_one_node() -> None:
    scaled, _, _ = run({0.0: (2, ())}, configs=1, epochs=4, gangs=True)
    gangs = [step.run for step in scaled.steps if isinstance(step.run, RunUnit) and step.run.crew]
    assert gangs
    assert all(len({worker.split(".")[0] for worker in (gang.worker, *gang.crew)}) == 1 for gang in gangs)


def elastic(procedure: object, cluster: Cluster, deadline: float, **terms: Any) -> AllocationRun:
    return simulate_allocation(
        Workload(partitions=4, seconds=4.0, evaluation_seconds=0.5),
        procedure,
        SPACE,
        cluster,
        AllocationTerms(instance=INSTANCE, deadline=deadline, **terms),
        check=True,
    )


NODES = ElasticNodes(devices=4, provision=20.0, start=10.0, spread=0.2)
ROUGH: dict[str, Any] = {"noise": 0.2, "stragglers": 0.05, "straggling": 3.0}


@pytest.mark.parametrize(
    ("procedure", "scaling", "again"),
    [
        (SuccessiveHalving(9, max_epochs=9), SCALING, True),
        (SuccessiveHalving(18, max_epochs=9), {}, False),
        (Hyperband(max_epochs=9), {}, True),
    ],
)
def test_trials_and_metrics_are_those_of_a_fixed_cluster(procedure: Any, scaling: Any, again: bool) -> None:
    cluster = Cluster(elastic=NODES, scaling=scaling, faults=[NodeLoss(at=90.0)], **ROUGH)
    found = elastic(procedure, cluster, 500.0, again=again)
    fixed = simulate(
        Workload(partitions=4, seconds=4.0), Cluster(nodes=[4]), search=procedure.search(SPACE, GOAL, 0)
    )
    assert {number: trial.ending for number, trial in found.engine.trials.items()} == {
        number: trial.ending for number, trial in fixed.engine.trials.items()
    }
    for number, trial in found.engine.trials.items():
        assert trial.history == fixed.engine.trials[number].history
        assert trial.curve.keys() == fixed.engine.trials[number].curve.keys()
    assert (len(found.plans) > 1) == again


def test_without_noise_the_run_is_as_long_and_as_dear_as_the_plan() -> None:
    exact = Cluster(elastic=ElasticNodes(devices=4, provision=20.0, start=10.0), scaling=SCALING)
    found = elastic(SuccessiveHalving(32, max_epochs=4, factor=4), exact, 400.0)
    assert found.seconds == pytest.approx(found.forecast.seconds.expected, rel=0.05)
    assert found.cost == pytest.approx(found.forecast.cost.expected, rel=0.1)
    assert found.seconds <= 400.0


def test_a_lost_node_is_planned_for() -> None:
    cluster = Cluster(elastic=NODES, faults=[NodeLoss(at=100.0)])
    found = elastic(SuccessiveHalving(32, max_epochs=4, factor=4), cluster, 400.0)
    plans = found.engine.state.nodes.rows.plans
    assert {"start", "stage", "node lost"} <= {plan.reason for plan in plans}
    assert found.seconds <= 400.0


def test_a_budget_is_kept() -> None:
    cluster = Cluster(elastic=NODES, **ROUGH)
    found = simulate_allocation(
        Workload(partitions=4, seconds=4.0),
        SuccessiveHalving(32, max_epochs=9),
        SPACE,
        cluster,
        AllocationTerms(instance=INSTANCE, budget=0.9),
        check=True,
    )
    assert found.cost <= 0.9


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"devices": 0}, "devices"),
        ({"begin": -1}, "begin"),
        ({"replicas": 0}, "replicas"),
        ({"provision": -1.0}, "provision"),
        ({"spread": float("nan")}, "spread"),
    ],
)
def test_impossible_nodes_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(WorkloadError, match=field):
        ElasticNodes(**settings)


def test_contradictory_clusters_are_refused() -> None:
    with pytest.raises(WorkloadError, match="elastic"):
        Cluster(elastic=ElasticNodes(), nodes=[2])
    with pytest.raises(WorkloadError, match="faults"):
        Cluster(elastic=ElasticNodes(), faults=[Crash("w0", 1.0)])
    with pytest.raises(WorkloadError, match="faults"):
        Cluster(faults=[NodeLoss(1.0)])
    with pytest.raises(WorkloadError, match="at"):
        NodeLoss(-1.0)
    with pytest.raises(WorkloadError, match="cluster"):
        simulate(Workload(), Cluster(elastic=ElasticNodes()))
    with pytest.raises(WorkloadError, match="cluster"):
        elastic(SuccessiveHalving(9, max_epochs=3), Cluster(), 100.0)
    with pytest.raises(WorkloadError, match="deadline"):
        AllocationTerms(instance=INSTANCE)

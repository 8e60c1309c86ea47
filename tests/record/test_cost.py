"""What a study has cost: from a hand-written journal of nodes, by stage and by instance type."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.core.actions import Evaluate, Origin
from hoptree.core.events import (
    AllocationPlanned,
    DriverStarted,
    NodeLost,
    NodeReleased,
    NodeStarted,
    WorkerJoined,
)
from hoptree.core.node_ledger import NodeLedger
from hoptree.elastic.allocation import Allocation, AllocationPlan, Range, StagePlan
from hoptree.record.cost import study_cost

LARGE = ht.Instance("large", devices=4, price=36.0, minimum=60.0)  # a cent per second
SMALL = ht.Instance("small", devices=1, price=3.6, minimum=60.0)


def plan(instance: ht.Instance, cost: float = 5.0, nodes: int = 2) -> dict[str, object]:
    figure = Range(cost, 0.9 * cost, 1.1 * cost)
    stages = (StagePlan(8, nodes, 1, 0.0, 200.0), StagePlan(2, 1, 1, 200.0, 300.0))
    allocation = Allocation(instance, stages, Range(300.0, 290.0, 310.0), figure)
    made = AllocationPlan((allocation,), Range(300.0, 290.0, 310.0), figure, deadline=320.0)
    return made.to_dict()


def trained(ledger: NodeLedger, worker: str, seconds: float) -> None:
    ledger.trained(Evaluate(0, worker, 0, 0, "key", "lineage", Origin({}, 0)), seconds)


def two_stages() -> NodeLedger:
    ledger = NodeLedger()
    ledger.note(AllocationPlanned(plan(LARGE), 0, "start"), 10.0)
    ledger.note(NodeStarted("a", 4, waited=30.0), 40.0)
    ledger.note(NodeStarted("b", 4, waited=30.0), 40.0)
    ledger.note(WorkerJoined("a-0", (0,), node="a"), 50.0)
    ledger.note(WorkerJoined("b-0", (0,), node="b"), 50.0)
    trained(ledger, "a-0", 400.0)
    trained(ledger, "b-0", 300.0)
    ledger.note(AllocationPlanned(plan(LARGE, cost=4.0), 1, "a stage has ended"), 240.0)
    ledger.note(NodeReleased("b"), 250.0)
    trained(ledger, "a-0", 80.0)
    ledger.note(NodeReleased("a"), 340.0)
    return ledger


def test_charges_are_added_up_and_divided_among_stages() -> None:
    cost = study_cost(two_stages(), now=340.0)
    assert cost is not None
    assert cost.money == pytest.approx(3.0 + 2.1)  # 300 and 210 seconds
    assert cost.instances == {"large": pytest.approx(5.1)}
    assert (cost.nodes, cost.lost, cost.seconds) == (2, 0, 330.0)
    assert cost.device_seconds == 4 * (300 + 210)
    assert cost.used_seconds == 780.0
    first, second = cost.stages
    assert (first.money, second.money) == (pytest.approx(4.0), pytest.approx(1.1))
    assert (first.nodes, second.nodes) == (2, 2)
    assert (first.used, second.used) == (700.0, 80.0)
    assert (first.idle, second.idle) == (1600.0 - 700.0, 440.0 - 80.0)
    assert cost.forecast is not None
    assert cost.forecast.cost.expected == 5.0


def test_a_table_has_what_was_planned_beside_what_happened() -> None:
    text = str(study_cost(two_stages(), now=340.0))
    assert "$5.00 ($4.50 to $5.50)" in text
    assert "$5.10" in text
    assert "5 min 30 s" in text


def test_the_minimum_is_charged_and_a_lost_node_counts() -> None:
    ledger = NodeLedger()
    ledger.note(AllocationPlanned(plan(LARGE)), 0.0)
    ledger.note(NodeStarted("a", 4), 0.0)
    ledger.note(NodeLost("a"), 10.0)
    ledger.note(NodeStarted("b", 4), 100.0)
    cost = study_cost(ledger, now=100.0)
    assert cost is not None
    assert cost.money == pytest.approx(0.6 + 0.6)
    assert cost.lost == 1
    assert cost.stages[0].money == pytest.approx(1.2)


def test_a_resumed_study_may_use_another_instance_type() -> None:
    ledger = NodeLedger()
    ledger.note(AllocationPlanned(plan(LARGE)), 0.0)
    ledger.note(NodeStarted("a", 4), 0.0)
    ledger.note(DriverStarted(), 100.0)
    ledger.note(AllocationPlanned(plan(SMALL)), 100.0)
    ledger.note(NodeStarted("a", 1), 110.0)
    cost = study_cost(ledger, now=210.0)
    assert cost is not None
    assert cost.instances == {"large": pytest.approx(1.0), "small": pytest.approx(0.1)}
    assert "small" in str(cost)


def test_data_that_nodes_read_is_paid_for_each() -> None:
    priced = ht.Instance("large", devices=4, price=36.0, minimum=0.0, data_price=0.1)
    ledger = NodeLedger()
    ledger.note(AllocationPlanned({**plan(priced), "data_gb": 5.0}), 0.0)
    for node in ("a", "b"):
        ledger.note(NodeStarted(node, 4), 0.0)
    found = study_cost(ledger, now=10.0)
    assert found is not None
    assert found.money == pytest.approx(2 * (0.1 + 0.5))


def test_per_function_only_training_is_paid() -> None:
    function = ht.Instance("function", devices=4, price=36.0, billing="function")
    ledger = NodeLedger()
    ledger.note(AllocationPlanned(plan(function)), 0.0)
    ledger.note(NodeStarted("a", 4), 0.0)
    ledger.note(WorkerJoined("a-0", (0,), node="a"), 0.0)
    trained(ledger, "a-0", 100.0)
    ledger.note(AllocationPlanned(plan(function), 1), 50.0)
    trained(ledger, "a-0", 300.0)
    cost = study_cost(ledger, now=1000.0)
    assert cost is not None
    assert cost.money == pytest.approx(1.0)
    assert [stage.money for stage in cost.stages] == [pytest.approx(0.25), pytest.approx(0.75)]


def test_without_nodes_there_is_no_cost() -> None:
    assert study_cost(NodeLedger(), now=10.0) is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0, 50)), min_size=1, max_size=6),
    st.lists(st.floats(0, 150), max_size=3),
)
def test_stages_add_up_to_the_total(lives: list[tuple[float, float, float]], stages: list[float]) -> None:
    steps: list[tuple[float, int, object]] = [(0.0, 0, AllocationPlanned(plan(LARGE)))]
    steps += [(now, 0, AllocationPlanned(plan(LARGE), n + 1)) for n, now in enumerate(sorted(stages))]
    for number, (start, life, _) in enumerate(lives):
        steps += [
            (start, 1, NodeStarted(f"n{number}", 4)),
            (start, 2, WorkerJoined(f"w{number}", (0,), node=f"n{number}")),
            (start + life, 3, NodeReleased(f"n{number}")),
        ]
    ledger = NodeLedger()
    for now, _, event in sorted(steps, key=lambda step: step[:2]):
        ledger.note(event, now)  # type: ignore[arg-type]
        if isinstance(event, NodeStarted):
            use = ledger.running[event.node]
            use.busy[ledger.stage] = min(lives[int(event.node[1:])][1:])
    cost = study_cost(ledger, now=100.0)
    assert cost is not None
    assert sum(stage.money for stage in cost.stages) == pytest.approx(cost.money)
    assert sum(stage.used for stage in cost.stages) == pytest.approx(cost.used_seconds, abs=1e-6)
    assert sum(stage.used + stage.idle for stage in cost.stages) >= cost.device_seconds - 1e-6

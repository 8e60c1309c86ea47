"""What the bench of elastic runs on Ray says of them."""

from __future__ import annotations

from bench.elastic_ray import nodes_over_time

from hoptree.core.node_ledger import NodeLedger, NodeRows, NodeUse, PlanMade


def test_nodes_are_counted_from_the_first_plan_on() -> None:
    uses = [NodeUse("a", 1, 105.0, ended=160.0), NodeUse("b", 1, 107.0), NodeUse("c", 1, 106.9, ended=190.0)]
    ledger = NodeLedger(NodeRows(uses, plans=[PlanMade(100.0, 0, "start", {})]))
    assert nodes_over_time(ledger) == "1 (5 s), 3 (7 s), 2 (60 s), 1 (90 s)"

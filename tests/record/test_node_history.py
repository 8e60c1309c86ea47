"""The nodes of a study over time, and their plot: what happened beside what was planned."""

from __future__ import annotations

import msgspec
import pytest

import hoptree as ht
from hoptree.core.node_ledger import NodeLedger
from hoptree.record.cost import study_cost
from hoptree.record.node_history import node_timeline
from tests.record.test_cost import two_stages
from tests.report.study_timelines import STEPPED, history


def test_nodes_and_cost_over_time_end_at_the_totals() -> None:
    found, cost = node_timeline(two_stages(), now=340.0), study_cost(two_stages(), now=340.0)
    assert found is not None
    assert cost is not None
    assert found.nodes == ((0.0, 0), (40.0, 2), (250.0, 1), (340.0, 0))
    assert found.planned == ((10.0, 2), (210.0, 1), (310.0, 0))
    assert found.stages == (240.0,)
    paid = [amount for _, amount in found.paid]
    assert paid == sorted(paid)
    assert found.money == pytest.approx(cost.money)


def test_without_nodes_there_is_no_timeline() -> None:
    assert node_timeline(NodeLedger(), now=10.0) is None


@pytest.mark.parametrize("dark", [False, True])
def test_the_plot_has_both_lines_and_names_both_costs(dark: bool) -> None:
    told = msgspec.structs.replace(
        history(ht.Grid(epochs=4), STEPPED), nodes=node_timeline(two_stages(), now=340.0)
    )
    figure = ht.plot.nodes(told, dark=dark)
    heading = figure.get_suptitle()
    assert "$5.10" in heading
    assert "$5.00" in heading
    assert len(figure.axes) == 2

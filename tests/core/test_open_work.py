"""Open work: which lineage reaches which target."""

from __future__ import annotations

from hoptree.core.nodes import ActiveLineage, Place
from tests.core.driver import Driver


def test_each_target_is_reached_through_one_lineage_also_where_another_lineage_begins() -> None:
    """A final state is lost while a run from it is under way: another lineage trains it again, up to that place."""
    driver = Driver(1, ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.ask(1, 0.1, until=3)
    driver.join("w")
    driver.train("w")
    driver.evaluate("w")
    assert driver.endings == [(0, "complete", "")]
    driver.lose_state(1, 1)
    node = driver.engine.plan.nodes[1]

    def behind(lineage: ActiveLineage) -> list[Place]:
        return list(driver.engine.open_work.targets_behind(lineage))

    assert {lineage.unit: behind(lineage) for lineage in node.active} == {0: [Place(node, 1)], 1: [Place(node, 3)]}

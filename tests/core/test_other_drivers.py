"""What other drivers train is waited for, and what they have trained takes the place of what would be."""

from __future__ import annotations

import math

import pytest

from hoptree.core.errors import InvariantError, ProtocolError
from hoptree.core.events import LineageFreed, LineageTaken, ReportFound, StateFound, UnitCancelled
from hoptree.core.schedules import multistep
from hoptree.core.steps import Step
from tests.core.driver import Driver


def refuse(driver: Driver, worker: str) -> None:
    """Another driver has claimed what a worker was just given."""
    run = driver.queues[worker].pop()
    driver.step(UnitCancelled(run.run, worker), more=True)
    driver.step(LineageTaken(run.node, run.unit))


def test_a_taken_lineage_waits_while_others_continue() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.join("w")
    refuse(driver, "w")
    assert driver.busy("w") is None
    driver.ask(1, 0.2, until=1)
    driver.finish()
    assert driver.ending(1) == "complete"
    assert driver.ending(0) is None
    driver.step(LineageFreed(1, 0))
    driver.finish()
    assert driver.ending(0) == "complete"
    assert len(driver.trained) == 4 + 2


def test_training_continues_from_a_found_state() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=3)
    driver.ask(1, {"lr": multistep(0.1, at=[2], gamma=0.1)}, until=3)
    driver.join("w")
    refuse(driver, "w")
    driver.stored.add((1, 4))
    driver.step(StateFound(1, 4))
    driver.finish()
    assert {driver.ending(0), driver.ending(1)} == {"complete"}
    assert sorted(driver.units()) == [4, 4, 5, 5]  # nothing of the first two epochs


def test_a_found_state_within_an_epoch_keeps_the_rotation() -> None:
    alone, helped = Driver(partitions=4), Driver(partitions=4)
    for driver in (alone, helped):
        driver.ask(0, {"lr": multistep(0.1, at=[0.5], gamma=0.1)}, until=1)
    helped.join("w")
    refuse(helped, "w")
    helped.stored.add((2, 3))
    helped.step(StateFound(2, 3))
    helped.finish()
    alone.join("w")
    alone.finish()
    assert [run.partition for run in helped.trained] == [alone.trained[-1].partition]
    assert helped.ending(0) == "complete"


def test_a_found_state_without_a_report_is_evaluated_once() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.join("w")
    refuse(driver, "w")
    driver.stored.add((1, 2))
    driver.step(StateFound(1, 2))
    driver.finish()
    assert (driver.trained, len(driver.evaluations)) == ([], 1)
    assert driver.ending(0) == "complete"


def test_a_found_report_answers_and_a_late_evaluation_changes_nothing() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.join("w")
    driver.train("w")
    driver.train("w")
    driver.step(ReportFound(1, 2, {"loss": "nan"}))
    assert driver.ending(0) == "complete"
    assert math.isnan(driver.engine.plan.nodes[1].reports[2]["loss"])
    driver.evaluate("w")
    assert driver.reports == [(0, 1)]


def test_a_state_that_a_run_is_training_is_not_taken_from_other_drivers() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.join("w")
    driver.step(StateFound(1, 1))
    assert len(driver.queues["w"]) == 1
    driver.finish()
    assert driver.units() == [0, 1]


def test_a_run_is_cancelled_when_a_later_state_is_found() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1, until=4)
    driver.join("v")
    driver.join("w")
    driver.stored.add((1, 6))
    driver.step(StateFound(1, 6))
    assert len(driver.cancelled) == 1
    driver.finish()
    assert driver.units() == [6, 7]


def test_in_free_order_no_state_comes_from_other_drivers() -> None:
    driver = Driver(order="free")
    driver.ask(0, 0.1)
    for event in (LineageTaken(1, 0), StateFound(1, 2), ReportFound(1, 2, {})):
        with pytest.raises(ProtocolError, match="in free order drivers share no states"):
            driver.step(event)


def test_a_state_is_not_found_before_its_lineage_begins() -> None:
    driver = Driver()
    driver.ask(0, 0.1)
    with pytest.raises(ProtocolError, match="node 1 begins at unit 0"):
        driver.step(StateFound(1, 0))


def test_the_invariant_checker_detects_training_of_a_taken_lineage() -> None:
    driver = Driver(ahead=False)
    driver.ask(0, 0.1)
    actions = driver.join("w")
    run = driver.queues["w"].pop()
    driver.step(UnitCancelled(run.run, "w"), more=True)
    driver.step(LineageTaken(run.node, run.unit))
    with pytest.raises(InvariantError, match="invariant 6 is broken: .*another driver trains that"):
        driver.checker.see(Step(LineageTaken(run.node, run.unit), 0.0, False, actions))

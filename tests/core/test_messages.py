"""Messages that are late, repeated or impossible."""

from __future__ import annotations

from typing import Any

import pytest

from hoptree.core.actions import Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.errors import ProtocolError, WorkloadError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerLost,
)
from hoptree.core.lineage import config_items
from hoptree.core.policies import POLICIES
from hoptree.core.settings import Settings
from tests.core.books import books_of
from tests.core.driver import Driver
from tests.core.steps import one_worker


def test_repeated_messages_change_nothing():
    driver = one_worker(2, ahead=False)
    asked = TrialAsked(0, config_items({"lr": 0.1}), 1)
    driver.step(asked)
    first = driver.busy("w")
    driver.train("w")
    second = driver.busy("w")
    assert isinstance(first, RunUnit)
    assert isinstance(second, RunUnit)
    before = books_of(driver.engine)
    repeated: list[Event] = [
        asked,
        UnitFinished(first.run, "w"),
        UnitFailed(first.run, "w", "too late"),
        UnitCancelled(first.run, "w"),
        StateEvaluated(first.run, "w", {}),
        StateLost(1, 5),
        StateLost(0, 0),
        WorkerLost("nobody"),
        WorkerDrained("nobody"),
        TrialExtended(0, 1),
    ]
    for event in repeated:
        assert driver.engine.step(event, 1.0) == []
        assert books_of(driver.engine) == before
    driver.train("w")
    evaluating = books_of(driver.engine)
    assert driver.engine.step(UnitFinished(second.run, "w"), 1.0) == []
    assert books_of(driver.engine) == evaluating
    driver.evaluate("w")
    assert driver.engine.step(StateEvaluated(second.run, "w", {"loss": 9.0}), 1.0) == []
    assert driver.ask(1, 0.1)[0] == Report(1, 1, {"loss": 0.5})


def test_a_repeated_join_gives_no_work_twice():
    driver = one_worker(2)
    driver.ask(0, 0.1)
    assert driver.join("w") == []
    assert len(driver.queues["w"]) == 2


def test_a_repeated_branch_changes_nothing():
    driver = one_worker(1)
    driver.ask(0, 0.1, until=2)
    event = TrialBranched(1, 0, 1, config_items({"lr": 0.5}), 2)
    driver.step(event)
    assert driver.step(event) == []
    driver.finish()


def test_messages_of_a_replaced_worker_are_ignored():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1)
    lost = driver.busy("w")
    assert isinstance(lost, RunUnit)
    driver.lose("w")
    assert driver.step(UnitFinished(lost.run, "w")) == []
    driver.join("w")
    assert driver.step(UnitFinished(lost.run, "w")) == []
    driver.finish()
    assert driver.units() == [0, 1]


def impossible(driver: Driver, event: Event) -> str:
    with pytest.raises(ProtocolError) as caught:
        driver.engine.step(event, 7.0)
    return str(caught.value)


def test_a_unit_that_was_never_started_cannot_finish():
    message = impossible(one_worker(), UnitFinished(3, "w"))
    assert "UnitFinished(run=3, worker='w', seconds=0.0, size=0): this cannot have happened" in message
    assert "run 3 was never assigned to a worker (no run was assigned yet)" in message
    driver = one_worker()
    driver.ask(0, 0.1)
    assert "last assigned run: 1" in impossible(driver, UnitFailed(2, "w", "?"))
    assert "never assigned" in impossible(driver, UnitFinished(-1, "w"))


def test_the_message_about_an_impossible_event_shows_the_log_of_the_unit():
    driver = one_worker()
    driver.now = 2.0
    driver.ask(0, 0.1)
    message = impossible(driver, UnitFinished(0, "x"))
    assert "run 0 was assigned to w" in message
    story = message.split("Log of the run:\n")[1]
    assert story.startswith("  at 2: RunUnit(run=0, worker='w', node=1, source=0, unit=0,")


def test_a_state_is_not_evaluated_before_it_is_made():
    driver = one_worker()
    driver.ask(0, 0.1)
    assert "the unit has not finished" in impossible(driver, StateEvaluated(0, "w", {}))


def test_a_worker_cannot_finish_what_it_has_not_begun():
    driver = one_worker()
    driver.ask(0, 0.1)
    assert "w was still busy with run 0" in impossible(driver, UnitFinished(1, "w"))


@pytest.mark.parametrize(
    "event", [TrialStopped(4), TrialExtended(4, 3), TrialBranched(5, 4, 1, config_items({"lr": 1.0}), 2)]
)
def test_unknown_trials_are_refused(event: Event):
    driver = one_worker()
    driver.ask(0, 0.1)
    assert "trial 4 was never requested" in impossible(driver, event)


def test_a_number_stands_for_one_trial():
    driver = one_worker()
    driver.ask(0, 0.1)
    assert "trial 0 was requested before" in impossible(driver, TrialAsked(0, config_items({"lr": 0.2}), 1))


def test_a_state_of_an_unknown_node_cannot_be_lost():
    assert "the plan has no node 9" in impossible(one_worker(), StateLost(9, 1))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (TrialAsked(1, config_items({"lr": 0.1}), 0), "until: 0; expected at least one epoch"),
        (TrialAsked(1, config_items({"lr": 0.1}), 1, every=-1), "every: -1; expected 0"),
        (
            TrialBranched(1, 0, 0, config_items({"lr": 0.1}), 3),
            "at: epoch 0 of trial 0, which was requested until 2",
        ),
        (
            TrialBranched(1, 0, 3, config_items({"lr": 0.1}), 4),
            "at: epoch 3 of trial 0, which was requested until 2",
        ),
        (TrialBranched(1, 0, 2, config_items({"lr": 0.1}), 2), "until: 2; expected more than the 2 epochs before"),
    ],
)
def test_impossible_budgets_are_refused_and_leave_no_trace(event: Event, message: str):
    engine = Engine(Settings(2))
    engine.step(TrialAsked(0, config_items({"lr": 0.1}), 2), 0.0)
    before = books_of(engine)
    with pytest.raises(WorkloadError) as caught:
        engine.step(event, 1.0)
    assert str(caught.value).startswith(message)
    assert books_of(engine) == before
    assert engine.live == 1


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"partitions": 0}, "partitions: 0; an epoch needs"),
        ({"order": "any"}, "order: 'any'; expected 'strict' or 'free'"),
        ({"retries": -1}, "retries: -1; expected 0 or more"),
        ({"patience": -2}, "patience: -2; expected 0 or more"),
        ({"policy": "best"}, f"policy: 'best'; expected one of {', '.join(POLICIES)}"),
    ],
)
def test_impossible_settings_are_refused(given_: dict[str, Any], message: str):
    with pytest.raises(WorkloadError) as caught:
        Engine(Settings(**{"partitions": 2, **given_}))
    assert str(caught.value).startswith(message)

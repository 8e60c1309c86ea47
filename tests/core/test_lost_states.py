"""The engine when stored states are lost, and barriers."""

from __future__ import annotations

from hoptree.core.actions import RunUnit
from hoptree.core.saving import SavePolicy
from tests.core.driver import Driver
from tests.core.steps import of, one_worker

# --- states -----------------------------------------------------------------------------------------------


def test_a_lost_state_is_trained_again_from_the_deepest_stored_ancestor():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.finish()
    driver.extend(0, 2)
    driver.train("w")
    assert driver.stored == {(1, 2), (1, 3)}
    running = driver.busy("w")
    driver.lose("w")
    driver.lose_state(1, 3)
    driver.join("w")
    driver.finish()
    assert isinstance(running, RunUnit)
    assert running.unit == 3
    assert driver.units() == [0, 1, 2, 2, 3]
    assert driver.ending(0) == "complete"


def test_with_no_state_left_training_begins_at_the_beginning():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.train("w")
    driver.train("w")
    driver.lose("w")
    driver.lose_state(1, 2)
    driver.join("w")
    driver.finish()
    assert driver.units() == [0, 1, 0, 1, 2, 3]


def test_a_state_lost_while_its_next_unit_runs_is_not_missed_if_that_unit_finishes():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.train("w")
    driver.lose_state(1, 1)
    driver.finish()
    assert driver.units() == [0, 1, 2, 3]


def test_the_lost_state_of_a_complete_trial_is_trained_again():
    driver = one_worker(1)
    driver.ask(0, 0.1, until=2)
    driver.finish()
    assert driver.engine.finished
    driver.lose_state(1, 2)
    assert (driver.engine.live, driver.engine.finished) == (0, False)
    driver.finish()
    assert driver.engine.finished
    assert driver.units() == [0, 1, 0, 1]
    assert driver.stored == {(1, 2)}
    assert driver.endings == [(0, "complete", "")]
    assert driver.reports == [(0, 2)]


def test_the_lost_state_of_a_complete_trial_is_trained_once_when_it_is_extended():
    driver = one_worker(1)
    driver.ask(0, 0.1, until=2)
    driver.finish()
    driver.lose_state(1, 2)
    driver.extend(0, 3)
    driver.finish()
    assert driver.units() == [0, 1, 0, 1, 2]


def test_nothing_is_kept_on_the_way_to_a_state_that_is_made_again():
    """Who has ended lets nothing go: what were kept then would stay for ever."""
    driver = one_worker(1, saving=SavePolicy(every=1))
    driver.ask(0, 0.1, until=3)
    driver.finish()
    driver.lose_state(1, 3)
    driver.finish()
    assert driver.stored == {(1, 3)}


# --- barriers ---------------------------------------------------------------------------------------------


def test_a_barrier_holds_trials_back_until_all_have_reported():
    driver = Driver(1)
    driver.join("a")
    driver.join("b")
    driver.ask(0, 0.1, until=3, every=1, barrier=True)
    driver.ask(1, 0.2, until=3, every=1, barrier=True)
    for epoch in range(1, 4):
        driver.train("a")
        assert not of(RunUnit, driver.evaluate("a"))
        driver.train("b")
        actions = driver.evaluate("b")
        assert len(of(RunUnit, actions)) == (2 if epoch < 3 else 0)
    assert driver.engine.live == 0


def test_a_barrier_opens_when_the_last_trial_with_a_report_due_stops_or_fails():
    for end in ("stop", "fail"):
        driver = Driver(1, retries=0)
        driver.join("a")
        driver.join("b")
        driver.ask(0, 0.1, until=2, every=1, barrier=True)
        driver.ask(1, 0.2, until=2, every=1, barrier=True)
        driver.train("a")
        driver.evaluate("a")
        assert driver.busy("a") is None
        actions = driver.stop(1) if end == "stop" else driver.fail("b")
        assert len(of(RunUnit, actions)) == 1
        driver.finish()
        assert driver.ending(0) == "complete"


def test_a_barrier_is_for_its_own_study_only():
    driver = Driver(1)
    driver.join("a")
    driver.join("b")
    driver.ask(0, 0.1, until=2, every=1, barrier=True, study="one")
    driver.ask(1, 0.2, until=2, every=1, barrier=True, study="two")
    driver.train("a")
    assert len(of(RunUnit, driver.evaluate("a"))) == 1

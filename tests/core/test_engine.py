"""What the engine does, a few lines for each behaviour; a checker checks the invariants all along."""

from __future__ import annotations

import pytest

from hoptree.core.actions import CancelUnit, DropState, EndTrial, Evaluate, Report, RunUnit, SaveState
from hoptree.core.errors import WorkloadError
from hoptree.core.events import (
    StateSaved,
    TrialAsked,
    TrialStopped,
    WorkerJoined,
)
from hoptree.core.lineage import config_items
from hoptree.core.saving import SavePolicy
from tests.core.driver import Driver
from tests.core.steps import LATER, of, one_worker

# --- from trial to report ---------------------------------------------------------------------------------


def test_a_trial_is_trained_evaluated_reported_and_ended():
    driver = one_worker(2, ahead=False)
    first = driver.ask(0, 0.1)
    assert [(run.unit, run.epoch, run.evaluate, run.home) for run in first] == [(0, 0, False, "")]
    second = driver.train("w")
    assert [(run.unit, run.epoch, run.evaluate, run.home) for run in second] == [(1, 0, True, "w")]
    dropped = driver.train("w")
    assert dropped == [DropState(1, 1, driver.engine.plan.nodes[1].key)]
    assert driver.evaluate("w", loss=0.25) == [Report(0, 1, {"loss": 0.25}), EndTrial(0, "complete")]
    assert driver.stored == {(1, 2)}  # the state that the trial ended with is kept
    assert driver.engine.live == 0


def test_a_trial_with_results_is_answered_at_once():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    driver.finish()
    assert driver.ask(1, 0.1, until=2) == [Report(1, 2, {"loss": 0.5}), EndTrial(1, "complete")]


def test_results_before_the_end_are_answered_at_once_and_the_rest_is_trained():
    driver = one_worker()
    driver.ask(0, 0.1, until=1)
    driver.finish()
    done = len(driver.trained)
    actions = driver.ask(1, 0.1, until=2, every=1)
    assert of(Report, actions) == [Report(1, 1, {"loss": 0.5})]
    driver.finish()
    assert driver.units(done) == [2, 3]


def test_extending_trains_only_the_rest():
    driver = one_worker()
    driver.ask(0, 0.1, until=1)
    driver.finish()
    assert driver.units() == [0, 1]
    driver.extend(0, 3)
    assert driver.ending(0) is None
    driver.finish()
    assert driver.units() == [0, 1, 2, 3, 4, 5]
    assert driver.endings == [(0, "complete", ""), (0, "complete", "")]
    assert driver.stored == {(1, 6)}


def test_extending_a_running_trial_does_not_interrupt_it():
    driver = one_worker()
    driver.ask(0, 0.1, until=1)
    assert not of(CancelUnit, driver.extend(0, 2))
    driver.finish()
    assert driver.units() == [0, 1, 2, 3]
    assert driver.reports == [(0, 1), (0, 2)]


def test_extending_to_an_earlier_epoch_adds_a_report_there():
    driver = one_worker()
    driver.ask(0, 0.1, until=3)
    driver.extend(0, 1)
    driver.finish()
    assert driver.units() == [0, 1, 2, 3, 4, 5]
    assert sorted(driver.reports) == [(0, 1), (0, 3)]
    assert driver.endings == [(0, "complete", "")]


def test_a_complete_trial_answers_at_any_epoch_and_ends_again():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    driver.finish()
    driver.extend(0, 2)
    assert driver.reports == [(0, 2), (0, 2)]
    assert driver.endings == [(0, "complete", "")] * 2
    driver.extend(0, 1)  # the state there is gone
    assert driver.ending(0) is None
    driver.finish()
    assert driver.units() == [0, 1, 2, 3, 0, 1]
    assert driver.reports[2:] == [(0, 1)]
    assert driver.endings == [(0, "complete", "")] * 3
    assert driver.stored == {(1, 4)}


def test_intermediate_states_are_removed_when_no_trial_needs_them():
    driver = Driver(saving=SavePolicy(every=1))
    driver.join("a")
    driver.ask(0, 0.1, until=3)
    driver.join("b")
    driver.ask(1, 0.2, until=2)
    for node, worker in ((1, "a"), (2, "b")):
        driver.train(worker)
        (saved,) = of(SaveState, driver.train(worker))
        assert (saved.node, saved.unit, saved.keep, saved.durable) == (node, 2, True, True)
        driver.train(worker)
    assert {(1, 2), (2, 2)} < driver.stored
    driver.stop(1)
    assert (1, 2) in driver.stored
    assert (2, 2) not in driver.stored
    driver.finish()
    assert driver.stored == {(1, 6)}


def test_a_state_that_is_saved_takes_the_place_of_the_one_kept_before_it():
    driver = one_worker(2, saving=SavePolicy(every=1))
    driver.ask(0, 0.1, until=3)
    for _ in range(5):
        driver.train("w")
    assert {(1, 2), (1, 4)} < driver.stored  # until the later one is in the store, a loss would cost both epochs
    key = driver.engine.plan.nodes[1].key
    assert driver.step(StateSaved(1, 4)) == [DropState(1, 2, key)]
    assert (1, 4) in driver.stored
    assert driver.step(StateSaved(1, 4)) == []
    driver.finish()
    assert driver.stored == {(1, 6)}


def test_extending_to_no_epoch_is_refused():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    with pytest.raises(WorkloadError, match="until: 0; expected at least one epoch"):
        driver.extend(0, 0)


def test_extending_a_stopped_trial_changes_nothing():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    driver.stop(0)
    driver.finish()
    assert driver.extend(0, 5) == []
    assert driver.ending(0) == "stopped"


def test_a_trial_that_completed_before_the_stop_stays_complete():
    driver = one_worker()
    driver.ask(0, 0.1, until=1)
    driver.finish()
    assert driver.step(TrialStopped(0, running=True)) == []
    assert driver.ending(0) == "complete"
    driver.extend(0, 2)
    driver.step(TrialStopped(0, running=True))
    assert driver.ending(0) == "stopped"


def test_a_branch_trains_only_what_is_new():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    driver.finish()
    driver.branch(1, source=0, at=2, config=0.5, until=3)
    run = driver.busy("w")
    assert isinstance(run, RunUnit)
    assert (run.source, run.unit, run.home) == (1, 4, "w")
    assert run.node != run.source
    driver.finish()
    assert driver.units() == [0, 1, 2, 3, 4, 5]


def test_a_branch_from_the_middle_trains_its_prefix_again_if_the_state_is_missing():
    driver = one_worker()
    driver.ask(0, 0.1, until=2)
    driver.finish()
    driver.branch(1, source=0, at=1, config=0.5, until=2)
    driver.finish()
    assert driver.units() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert driver.ending(1) == "complete"


def test_a_common_prefix_of_trials_is_trained_once():
    driver = one_worker(2)
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    driver.finish()
    assert sorted(driver.units()) == [0, 1, 2, 2, 3, 3]


def test_unshared_trials_share_nothing():
    driver = one_worker(2)
    driver.ask(0, 0.1, until=1, alone=True)
    driver.ask(1, 0.1, until=1, alone=True)
    driver.finish()
    assert sorted(driver.units()) == [0, 0, 1, 1]
    assert len({(run.key, run.unit, run.seed) for run in driver.trained}) == 2


def test_a_state_is_kept_for_a_trial_that_branches_there():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    for _ in range(3):
        driver.train("w")
    assert (1, 2) in driver.stored
    driver.finish()
    assert (1, 2) not in driver.stored


def test_events_of_one_time_are_applied_before_work_is_assigned():
    driver = Driver(1)
    driver.step(WorkerJoined("w", (0,)), more=True)
    assert driver.step(TrialAsked(0, config_items({"lr": 0.1}), 1), more=True) == []
    assert driver.engine._dispatcher.ready.count == 1  # in line already: the last of thousands does not pay for all
    actions = driver.step(TrialAsked(1, config_items({"lr": 0.2}), 5))
    assert of(RunUnit, actions)[0].values.at(0.0) == {"lr": 0.2}  # the longer one, though it came last


# --- evaluation -------------------------------------------------------------------------------------------


def test_evaluation_is_only_where_it_is_requested():
    driver = one_worker(2)
    driver.ask(0, 0.1, until=5, every=2)
    driver.finish()
    assert [run.unit + 1 for run in driver.trained if run.evaluate] == [4, 8, 10]
    assert driver.evaluations == []
    assert driver.reports == [(0, 2), (0, 4), (0, 5)]


def test_one_evaluation_serves_all_waiting_trials():
    driver = one_worker(1)
    for trial in range(3):
        driver.ask(trial, 0.1, until=2, every=1)
    driver.finish()
    assert [run.evaluate for run in driver.trained] == [True, True]
    assert sorted(driver.reports) == [(t, e) for t in range(3) for e in (1, 2)]


def test_a_stored_state_is_evaluated_on_a_later_request():
    driver = one_worker(1, ahead=False)
    driver.ask(0, 0.1, until=3)
    driver.train("w")
    assert driver.stored == {(1, 1)}
    actions = driver.ask(1, 0.1, until=1)
    assert not of(RunUnit, actions)
    driver.train("w")
    assert [(e.node, e.unit) for e in driver.evaluations] == [(1, 1)]
    driver.finish()
    assert driver.units() == [0, 1, 2]
    assert driver.ending(1) == "complete"


def test_an_evaluation_that_is_no_longer_needed_is_not_begun():
    driver = one_worker(1, ahead=False)
    driver.ask(0, 0.1, until=3)
    driver.train("w")
    driver.ask(1, 0.1, until=1)
    driver.stop(1)
    driver.finish()
    assert driver.evaluations == []


def test_a_failed_evaluation_is_repeated_without_training_again():
    driver = one_worker(1, retries=2)
    driver.ask(0, 0.1)
    driver.train("w")
    driver.fail("w")
    assert isinstance(driver.busy("w"), Evaluate)
    driver.fail("w")
    driver.evaluate("w")
    assert driver.units() == [0]
    assert driver.ending(0) == "complete"


def test_an_evaluation_that_keeps_failing_fails_only_trials_that_requested_it():
    driver = one_worker(1, retries=0)
    driver.ask(0, 0.1, until=2, every=1)
    driver.ask(1, 0.1, until=2)
    driver.train("w")
    driver.fail("w", "no such metric")
    driver.finish()
    assert driver.engine.trials[0].reason == "no such metric"
    assert [driver.ending(trial) for trial in (0, 1)] == ["failed", "complete"]


def test_an_evaluation_is_repeated_on_another_worker_when_its_worker_is_lost():
    driver = Driver(1)
    driver.join("a")
    driver.ask(0, 0.1)
    driver.train("a")
    driver.join("b")
    driver.lose("a")
    assert isinstance(driver.busy("b"), Evaluate)
    driver.finish()
    assert driver.units() == [0]


def test_a_state_lost_under_evaluation_is_trained_again_only_if_the_evaluation_fails():
    driver = one_worker(1)
    driver.ask(0, 0.1)
    driver.train("w")
    driver.lose_state(1, 1)
    driver.fail("w", fault="system")
    driver.finish()
    assert driver.units() == [0, 0]
    assert driver.ending(0) == "complete"


# --- stopping ---------------------------------------------------------------------------------------------


def test_stopping_cancels_units_that_no_trial_needs():
    driver = one_worker(2)
    driver.ask(0, 0.1, until=2)
    runs = [run.run for run in driver.queues["w"]]
    actions = driver.stop(0)
    assert of(EndTrial, actions) == [EndTrial(0, "stopped")]
    assert of(CancelUnit, actions) == [CancelUnit(run, "w") for run in runs]
    while driver.queues["w"]:
        driver.give_up("w")
    assert driver.units() == []
    assert driver.stored == set()


def test_stopping_does_not_cancel_what_another_trial_needs():
    driver = one_worker(2)
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    assert driver.stop(0) == [EndTrial(0, "stopped")]
    driver.finish()
    assert sorted(driver.units()) == [0, 1, 2, 3]
    assert driver.ending(1) == "complete"


def test_a_cancelled_unit_that_finishes_anyway_leaves_no_state():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.stop(0)
    driver.train("w")
    assert driver.stored == set()
    assert driver.busy("w") is None


def test_a_cancelled_unit_that_is_needed_again_is_trained_in_the_end():
    driver = one_worker(1, ahead=False)
    driver.ask(0, 0.1, until=1)
    driver.stop(0)
    driver.ask(1, 0.1, until=1)
    driver.give_up("w")
    driver.finish()
    assert driver.ending(1) == "complete"


def test_stopping_a_complete_trial_releases_its_state():
    driver = one_worker(1)
    driver.ask(0, 0.1)
    driver.finish()
    assert driver.stored == {(1, 1)}
    key = driver.engine.plan.nodes[1].key
    assert driver.stop(0) == [DropState(1, 1, key), EndTrial(0, "stopped")]
    assert driver.stop(0) == []

"""What the engine does, a few lines for each behaviour; a checker checks the invariants all along."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import Action, CancelUnit, DropState, EndTrial, Evaluate, Report, RunUnit, SaveState
from hoptree.core.engine import Engine
from hoptree.core.errors import ProtocolError, WorkloadError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    StateSaved,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.lineage import config_items
from hoptree.core.policies import POLICIES
from hoptree.core.saving import SavePolicy
from hoptree.core.schedules import Config, multistep
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload
from tests.core.books import books_of
from tests.core.driver import Driver
from tests.core.strategies import configs

LATER = multistep(0.1, at=[1], gamma=0.1)  # as 0.1, and different after an epoch


def of(kind: type[Any], actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def one_worker(partitions: int = 2, **more: Any) -> Driver:
    driver = Driver(partitions, **more)
    driver.join("w")
    return driver


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


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_unit_that_keeps_failing_fails_its_trial_with_the_reason(retries: int):
    driver = one_worker(1, retries=retries, ahead=False)
    driver.ask(0, 0.1)
    for _ in range(retries):
        driver.fail("w")
        assert driver.ending(0) is None
    actions = driver.fail("w", "loss is NaN")
    assert actions == [EndTrial(0, "failed", "loss is NaN")]
    assert driver.busy("w") is None


def test_a_failing_unit_fails_only_the_trials_behind_it():
    driver = one_worker(1, retries=0, ahead=False)
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    driver.ask(2, 0.7, until=2)
    broken = None
    while (run := driver.busy("w")) is not None:
        if isinstance(run, RunUnit) and run.unit == 1 and run.source != run.node:
            broken = driver.fail("w", "diverged")
        else:
            driver.go_on("w")
    assert broken is not None
    assert [driver.ending(trial) for trial in range(3)] == ["complete", "failed", "complete"]
    assert driver.engine.trials[1].reason == "diverged"


def test_a_failing_shared_unit_fails_all_trials_behind_it():
    driver = one_worker(1, retries=0)
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    driver.fail("w", "no memory")
    assert sorted(driver.endings) == [(0, "failed", "no memory"), (1, "failed", "no memory")]
    driver.finish()
    assert driver.units() == []


def test_a_trial_requested_again_after_a_failure_gets_its_retries_again():
    driver = one_worker(1, retries=1)
    driver.ask(0, 0.1)
    driver.fail("w")
    driver.fail("w")
    driver.ask(1, 0.1)
    driver.fail("w")
    driver.finish()
    assert [driver.ending(trial) for trial in (0, 1)] == ["failed", "complete"]


def test_faults_of_the_system_do_not_count_as_the_users():
    driver = one_worker(1, retries=1, patience=4)
    driver.ask(0, 0.1)
    for _ in range(4):
        driver.fail("w", "preempted", "system")
    driver.fail("w", "out of memory", "user")
    assert driver.ending(0) is None
    driver.fail("w", "preempted", "system")
    assert (driver.ending(0), driver.engine.trials[0].reason) == ("failed", "preempted")


def test_lost_workers_cost_no_retry():
    driver = Driver(1, retries=0, patience=0)
    driver.ask(0, 0.1)
    for _ in range(30):
        driver.join("w")
        driver.lose("w")
    driver.join("w")
    driver.finish()
    assert driver.ending(0) == "complete"


def test_units_queued_behind_a_failed_unit_are_cancelled():
    driver = one_worker(4)
    driver.ask(0, 0.1)
    first, second = driver.queues["w"]
    assert (first.unit, second.unit) == (0, 1)
    actions = driver.fail("w")
    assert of(CancelUnit, actions) == [CancelUnit(second.run, "w", silent=True)]
    assert [run.unit for run in driver.queues["w"]] == [0, 1]


# --- workers ----------------------------------------------------------------------------------------------


def test_a_lost_workers_unit_runs_on_another_worker_from_the_same_state():
    driver = Driver(2, ahead=False)
    driver.join("a")
    driver.ask(0, 0.1)
    driver.train("a")
    lost = driver.busy("a")
    driver.join("b")
    driver.lose("a")
    again = driver.busy("b")
    assert isinstance(lost, RunUnit)
    assert isinstance(again, RunUnit)
    assert (again.unit, again.partition, again.seed, again.home) == (lost.unit, lost.partition, lost.seed, "a")
    assert again.run != lost.run


def test_a_worker_that_comes_back_continues():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1)
    driver.train("w")
    driver.lose("w")
    actions = driver.join("w")
    assert [run.unit for run in of(RunUnit, actions)] == [1]
    driver.finish()
    assert driver.units() == [0, 1]


def test_a_draining_worker_ends_its_unit_and_gets_nothing_new():
    driver = one_worker(2, ahead=False)
    driver.ask(0, 0.1)
    driver.step(WorkerDrained("w"))
    assert not of(RunUnit, driver.train("w"))
    assert not of(RunUnit, driver.ask(1, 0.2))
    driver.join("other")
    assert isinstance(driver.busy("other"), RunUnit)
    driver.join("w")  # it stays after all
    driver.finish()
    assert driver.engine.live == 0


def test_an_idle_worker_that_drains_gets_nothing():
    driver = one_worker(1)
    driver.step(WorkerDrained("w"))
    assert driver.ask(0, 0.1) == []
    assert driver.step(WorkerLost("w")) == []


@pytest.mark.parametrize("order", ["strict", "free"])
def test_a_partition_that_nobody_holds_is_waited_for(order: str):
    driver = Driver(3, order=order)
    driver.join("a", 0, 2)
    driver.ask(0, 0.1)
    driver.finish()
    assert driver.ending(0) is None
    assert driver.engine.waiting_partitions() == [1]
    driver.join("b", 1)
    driver.finish()
    assert driver.ending(0) == "complete"
    assert sorted(run.partition for run in driver.trained) == [0, 1, 2]


def test_a_worker_may_come_to_hold_other_partitions():
    driver = Driver(2)
    driver.join("a", 0)
    driver.ask(0, 0.1)
    driver.finish()
    driver.join("a", 1)
    driver.finish()
    driver.join("a", 0, 1)
    driver.finish()
    assert driver.ending(0) == "complete"


def test_a_worker_without_partitions_evaluates():
    driver = Driver(1, ahead=False)
    driver.join("a")
    driver.step(WorkerJoined("b", ()))
    driver.ask(0, 0.1, until=3)
    driver.train("a")
    driver.ask(1, 0.1, until=1)
    assert isinstance(driver.busy("b"), Evaluate)
    driver.finish()
    assert {run.worker for run in driver.trained} == {"a"}


def test_a_partition_out_of_range_is_refused():
    driver = Driver(2)
    with pytest.raises(WorkloadError, match=r"^partitions: w holds partition 2; expected numbers from 0 to 1"):
        driver.engine.step(WorkerJoined("w", (0, 2)), 0.0)


def test_a_lineage_stays_on_a_worker_that_holds_everything():
    everything = (0, 1, 2, 3)
    workers = [WorkerSpec(name=name, partitions=everything) for name in "abc"]
    result = simulate(Workload(configs=3, epochs=4, partitions=4), Cluster(workers=workers), check=True)
    assert result.hops == 0
    driver = Driver(4)
    for name in "abc":
        driver.join(name)
    for trial in range(3):
        driver.ask(trial, 0.1 * (1 + trial), until=3)
    driver.finish()
    homes = {run.key: run.worker for run in driver.trained}
    assert all(run.worker == homes[run.key] for run in driver.trained)
    assert len(set(homes.values())) == 3


def test_a_busy_worker_is_given_one_unit_ahead_and_no_more():
    driver = one_worker(4)
    driver.ask(0, 0.1, until=3)
    for _ in range(11):
        assert len(driver.queues["w"]) == 2
        driver.train("w")
    assert len(driver.queues["w"]) == 1
    alone = one_worker(4, ahead=False)
    alone.ask(0, 0.1, until=3)
    assert len(alone.queues["w"]) == 1


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


# --- messages that are late, repeated or impossible -------------------------------------------------------


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


# --- order ------------------------------------------------------------------------------------------------


class Order:
    """A watch that remembers which units were trained."""

    def __init__(self) -> None:
        self.trained: list[RunUnit] = []

    def see(self, step: Step) -> None:
        if isinstance(step.event, UnitFinished) and isinstance(step.run, RunUnit):
            self.trained.append(step.run)

    def lineages(self, result: Simulation) -> list[list[tuple[str, int, int, int]]]:
        """Return for every trial the key, unit, partition and seed of its units, in order."""
        at: dict[tuple[int, int], set[tuple[str, int, int, int]]] = {}
        for run in self.trained:
            what = (run.key, run.unit, run.partition, run.seed)
            at.setdefault((run.node, run.unit), set()).add(what)
        assert all(len(same) == 1 for same in at.values()), "a unit that was trained twice was not the same"
        partitions = result.workload.partitions
        return [
            [
                next(iter(at[node.id, unit]))
                for node, end in result.engine.plan.path_with_ends(trial, trial.until * partitions)
                for unit in range(node.start, end)
            ]
            for trial in result.engine.trials.values()
        ]


MIXED: list[Config] = [
    {"lr": 0.1},
    {"lr": LATER},
    {"lr": multistep(0.1, at=[1.4], gamma=0.1)},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": multistep(0.1, at=[2], gamma=0.5), "momentum": 0.9},
    {"lr": 0.3},
]


def lineages(some: list[Config], cluster: Cluster, *, share: bool = True, epochs: int = 3, **more: Any):
    watch = Order()
    workload = Workload(configs=some, epochs=epochs, partitions=4, share=share)
    return watch.lineages(simulate(workload, cluster, watches=[watch.see], **more))


CRASHES = [Crash("w0", 2.5, 4.0), Crash("w1", 3.0, 9.5, True), StateLoss(0.05)]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(workers=1),
        Cluster(workers=2),
        Cluster(workers=3),
        Cluster(workers=8),
        Cluster(workers=3, replicas=2, noise=0.3, stragglers=0.2),
        Cluster(workers=3, replicas=2, faults=CRASHES),
        Cluster(workers=2, faults=[*CRASHES, FlakyUnits(0.1)]),
    ],
)
def test_in_strict_order_every_lineage_is_the_same_on_any_cluster(cluster: Cluster, share: bool):
    for seed, policy in ((0, "longest-path"), (0, "first-come"), (5, "random")):
        reference = lineages(MIXED, Cluster(workers=1), share=False, seed=seed)
        found = lineages(MIXED, cluster, share=share, policy=policy, seed=seed, check=True, retries=9)
        assert found == reference


@settings(max_examples=30, deadline=None)
@given(st.lists(configs(), min_size=1, max_size=5), st.integers(1, 8), st.booleans(), st.integers(0, 99))
def test_a_lineage_does_not_depend_on_workers_sharing_or_other_drivers(
    some: list[Config], workers: int, share: bool, seed: int
):
    found = lineages(some, Cluster(workers=workers, noise=0.5), share=share, seed=seed)
    for config, lineage in zip(some, found, strict=True):
        assert lineages([config], Cluster(workers=1), seed=seed) == [lineage]


@pytest.mark.parametrize("order", ["strict", "free"])
@settings(max_examples=30, deadline=None)
@given(
    some=st.lists(configs(), min_size=1, max_size=6),
    workers=st.integers(1, 5),
    policy=st.sampled_from(POLICIES),
)
def test_an_epoch_visits_every_partition_once(order: str, some: list[Config], workers: int, policy: str):
    found = lineages(some, Cluster(workers=workers), order=order, policy=policy, check=True, epochs=2)
    for lineage in found:
        partitions = [partition for _, _, partition, _ in lineage]
        assert [sorted(partitions[epoch : epoch + 4]) for epoch in (0, 4)] == [[0, 1, 2, 3]] * 2


def test_in_strict_order_an_epoch_is_a_rotation_and_siblings_begin_at_different_partitions():
    found = lineages([{"lr": 0.1 * i} for i in range(1, 33)], Cluster(workers=4), epochs=1)
    begins = set()
    for lineage in found:
        partitions = [partition for _, _, partition, _ in lineage]
        begins.add(partitions[0])
        assert partitions == [(partitions[0] + step) % 4 for step in range(4)]
    assert begins == {0, 1, 2, 3}


def test_seeds_differ_from_unit_to_unit_and_fit_63_bits():
    seeds = [seed for lineage in lineages(MIXED, Cluster(), share=False) for _, _, _, seed in lineage]
    keyed = {(key, unit) for lineage in lineages(MIXED, Cluster(), share=False) for key, unit, _, _ in lineage}
    assert len(set(seeds)) == len(keyed)
    assert all(0 <= seed < 2**63 for seed in seeds)

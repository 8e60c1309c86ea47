"""The engine when units fail and workers come and go."""

from __future__ import annotations

import pytest

from hoptree.core.actions import CancelUnit, EndTrial, Evaluate, RunUnit
from hoptree.core.errors import WorkloadError
from hoptree.core.events import (
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, WorkerSpec, Workload
from tests.core.driver import Driver
from tests.core.steps import LATER, of, one_worker

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

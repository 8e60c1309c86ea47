"""For each invariant, an engine is broken on purpose, and the checker finds it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from hoptree.core.actions import CancelUnit, DropState, EndTrial, RunUnit
from hoptree.core.active_lineages import ActiveLineages
from hoptree.core.dispatch import Dispatcher
from hoptree.core.engine import Engine
from hoptree.core.errors import InvariantError
from hoptree.core.events import StateFound, TrialStopped, UnitFinished, WorkerJoined
from hoptree.core.invariants import InvariantChecker
from hoptree.core.nodes import ActiveLineage, Node
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan
from hoptree.core.ready import ReadyEntry, ReadyQueue
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.core.trials import Trials
from hoptree.core.workers import Worker
from tests.core.broken_engines import LATER, WITHIN, Patch, broken, run_workload, spawn_at_the_start
from tests.core.driver import Driver


@pytest.mark.parametrize("order", ["strict", "free"])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_correct_engine_keeps_all_invariants(order: str, ahead: bool):
    run_workload(order, ahead=ahead)


def test_the_invariant_checker_shows_the_last_steps():
    engine = Engine(Settings(1))
    checker = InvariantChecker(engine)
    joined = WorkerJoined("w", (0,))
    checker.see(Step(joined, 1.0, False, engine.step(joined, 1.0)))
    with pytest.raises(InvariantError) as caught:
        checker.see(Step(TrialStopped(0), 2.0, False, [DropState(1, 1, "k"), EndTrial(0, "failed")]))
    message = str(caught.value)
    assert "trial 0 failed without a reason" in message
    assert "at 1 WorkerJoined(worker='w'" in message
    story = (
        "at 2 TrialStopped(trial=0, running=False)\n"
        "    -> DropState(node=1, unit=1, lineage='k', tree='')\n    -> EndTrial("
    )
    assert story in message


# --- 1: in an epoch a lineage visits every partition exactly once -----------------------------------------


def test_1_a_partition_visited_twice(monkeypatch: Patch):
    def aim(lineages: ActiveLineages, lineage: ActiveLineage, hint: int) -> None:
        lineage.partition = 0  # always the same one

    monkeypatch.setattr(ActiveLineages, "aim", aim)
    with broken(1):
        run_workload(ahead=False)


def test_1_a_partition_visited_again_by_a_unit_given_ahead(monkeypatch: Patch):
    def next_here(dispatcher: Dispatcher, lineage: ActiveLineage, worker: Worker) -> int:
        return lineage.runs[-1].partition if lineage.node.targets[-1] > lineage.unit + 1 else -1

    monkeypatch.setattr(Dispatcher, "_next_here", next_here)
    driver = Driver(2)
    driver.join("w")
    with broken(1):
        driver.ask(0, 0.1)


def test_1_a_lineage_in_free_order_visits_a_partition_again(monkeypatch: Patch):
    push = ReadyQueue.push

    def forgetful(ready: ReadyQueue, lineage: ActiveLineage) -> Iterable[int]:
        lineage.order = 0
        return push(ready, lineage)

    monkeypatch.setattr(ReadyQueue, "push", forgetful)
    with broken(1):
        run_workload("free", ahead=False)


def own_rotation(plan: Plan, node: Node, unit: int) -> int:
    return node.rotation  # though the epoch may have begun in the node before it


def test_1_a_branch_ignores_the_rotation_of_its_first_epoch(monkeypatch: Patch):
    monkeypatch.setattr(Plan, "rotation", own_rotation)
    driver = Driver(3)
    driver.join("w")
    driver.ask(0, WITHIN, until=2)
    with broken(1):
        driver.finish()


def test_1_a_lineage_taken_from_another_driver_ignores_its_rotation(monkeypatch: Patch):
    """Another driver has trained beyond the branch, and left a state in the middle of the epoch."""
    monkeypatch.setattr(Plan, "rotation", own_rotation)
    driver = Driver(3, ahead=False)
    driver.ask(0, WITHIN, until=2)
    assert len({node.rotation for node in driver.engine.plan.nodes[1:]}) == 2
    driver.stored.add((2, 5))
    driver.step(StateFound(2, 5))
    with broken(1):
        driver.join("w")


@pytest.mark.parametrize("unit", [1, 2, 4, 5])
def test_a_lineage_taken_from_another_driver_continues_as_it_would_have(unit: int):
    alone, helped = Driver(3, ahead=False), Driver(3, ahead=False)
    for driver in (alone, helped):
        driver.ask(0, WITHIN, until=2)
    place = (2 if unit > 4 else 1, unit)
    helped.stored.add(place)
    helped.step(StateFound(*place))
    for driver in (alone, helped):
        driver.join("w")
        driver.finish()
    visited = [(run.unit, run.partition) for run in helped.trained]
    assert visited == [(run.unit, run.partition) for run in alone.trained][unit:]


# --- 2: two units of one lineage never run at the same time -----------------------------------------------


def test_2_a_unit_started_twice(monkeypatch: Patch):
    start = Dispatcher._start

    def twice(dispatcher: Dispatcher, worker: Worker, lineage: ActiveLineage, partition: int) -> None:
        start(dispatcher, worker, lineage, partition)
        run = dispatcher._actions[-1]
        assert isinstance(run, RunUnit)
        others = (name for name in dispatcher.workers.by_name if name != worker.name)
        other = next(others, None)
        if other is not None:
            dispatcher._actions.append(msgspec.structs.replace(run, run=99, worker=other))

    monkeypatch.setattr(Dispatcher, "_start", twice)
    driver = Driver(1)
    driver.join("a")
    driver.join("b")
    with broken(2):
        driver.ask(0, 0.1)


def test_2_a_lineage_that_runs_ahead_of_itself_on_another_worker(monkeypatch: Patch):
    def impatient(dispatcher: Dispatcher, worker: Worker, lineage: ActiveLineage, partition: int) -> None:
        start(dispatcher, worker, lineage, partition)
        run = dispatcher._actions[-1]
        assert isinstance(run, RunUnit)
        following = {"unit": run.unit + 1, "partition": (partition + 1) % 2}
        other = "b" if worker.name == "a" else "a"
        dispatcher._actions.append(msgspec.structs.replace(run, run=99, worker=other, **following))

    start = Dispatcher._start
    monkeypatch.setattr(Dispatcher, "_start", impatient)
    driver = Driver(2, ahead=False, affinity=False)
    driver.join("a")
    driver.join("b")
    with broken(2):
        driver.ask(0, 0.1, until=2)


def test_2_a_unit_from_a_state_that_is_not_there(monkeypatch: Patch):
    monkeypatch.setattr(OpenWork, "_cover", spawn_at_the_start)
    driver = Driver(1)
    driver.join("w")
    with broken(2):
        driver.ask(0, {"lr": LATER}, until=2)


# --- 3: a worker runs one unit at a time ------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [True, False])
def test_3_a_worker_given_more_than_it_has_room_for(monkeypatch: Patch, ahead: bool):
    def overfill(dispatcher: Dispatcher, worker: Worker) -> bool:
        while (best := dispatcher.ready.best(worker.partitions)) is not None:
            dispatcher._start(worker, best[0].lineage, best[1])
        return True

    monkeypatch.setattr(Dispatcher, "_fill_ahead", overfill)
    driver = Driver(1, ahead=ahead)
    for trial in range(3):
        driver.ask(trial, 0.1 + trial)
    with broken(3):
        driver.join("w")


def test_3_a_unit_ahead_for_a_worker_that_must_not_have_one(monkeypatch: Patch):
    fill_ahead = Dispatcher._fill_ahead

    def eager(dispatcher: Dispatcher, worker: Worker) -> bool:
        dispatcher._settings = Settings(4, ahead=True)
        return fill_ahead(dispatcher, worker)

    monkeypatch.setattr(Dispatcher, "_fill_ahead", eager)
    driver = Driver(4, ahead=False)
    driver.join("w")
    with broken(3):
        driver.ask(0, 0.1)


def test_3_a_unit_that_ends_before_the_one_ahead_of_it():
    driver = Driver(2)
    driver.join("w")
    driver.ask(0, 0.1)
    with broken(3):
        driver.checker.see(Step(UnitFinished(driver.queues["w"][1].run, "w"), 1.0, False, []))


# --- 4: no preemption, except of work nobody asks for any more --------------------------------------------


def test_4_a_running_unit_cancelled_though_another_trial_needs_it(monkeypatch: Patch):
    end = Trials.end

    def ruthless(trials: Trials, trial: object, ending: str, reason: str = "") -> None:
        end(trials, trial, ending, reason)  # type: ignore[arg-type]
        trials._actions.extend(CancelUnit(run.number, run.worker) for run in trials._dispatcher.runs.values())

    monkeypatch.setattr(Trials, "end", ruthless)
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1)
    driver.ask(1, 0.1)
    with broken(4):
        driver.stop(0)


def test_4_a_short_unit_preempted_for_a_longer_path(monkeypatch: Patch):
    asked = Trials.asked

    def preempt(trials: Trials, event: object) -> None:
        asked(trials, event)  # type: ignore[arg-type]
        for run in trials._dispatcher.runs.values():
            trials._actions.append(CancelUnit(run.number, run.worker))

    monkeypatch.setattr(Trials, "asked", preempt)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1)
    with broken(4):
        driver.ask(1, 0.2, until=9)


def test_4_a_lineage_is_removed_when_only_one_of_its_trials_stops(monkeypatch: Patch):
    remove_target = OpenWork.remove_target

    def careless(open_work: OpenWork, node: object, unit: int) -> None:
        remove_target(open_work, node, unit)  # type: ignore[arg-type]
        open_work.unneeded.extend(node.active)  # type: ignore[attr-defined]

    monkeypatch.setattr(OpenWork, "remove_target", careless)
    monkeypatch.setattr(OpenWork, "next_target", lambda open_work, lineage: None)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=2)
    driver.ask(1, 0.1, until=3)
    with broken(4):
        driver.stop(1)


# --- 5: a unit runs on a worker that holds its partition --------------------------------------------------


def test_5_a_unit_sent_to_a_worker_without_its_partition(monkeypatch: Patch):
    best = ReadyQueue.best

    def any_partition(ready: ReadyQueue, partitions: Iterable[int]) -> tuple[ReadyEntry, int] | None:
        return best(ready, range(3))

    monkeypatch.setattr(ReadyQueue, "best", any_partition)
    with broken(5):
        run_workload(ahead=False)


def test_5_affinity_that_does_not_look_at_partitions(monkeypatch: Patch):
    def here(dispatcher: Dispatcher, lineage: ActiveLineage, worker: Worker) -> int:
        return lineage.partition

    monkeypatch.setattr(Dispatcher, "_here", here)
    monkeypatch.setattr(Dispatcher, "_may_stay", lambda *_: True)
    with broken(5):
        run_workload(ahead=False)


def test_5_work_for_a_lost_worker():
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1)
    run = driver.busy("w")
    assert isinstance(run, RunUnit)
    driver.lose("w")
    with broken(5):
        driver.checker.see(Step(TrialStopped(0), 1.0, True, [run]))

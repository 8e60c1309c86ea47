"""For each invariant, an engine is broken on purpose, and the checker finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from hoptree.core.actions import CancelUnit, DropState, EndTrial, Evaluate, Origin, Report, RunUnit
from hoptree.core.active_lineages import ActiveLineages
from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.engine import Engine
from hoptree.core.errors import InvariantError
from hoptree.core.events import KnownResults, StateFound, StateSaved, TrialStopped, UnitFinished, WorkerJoined
from hoptree.core.invariants import InvariantChecker
from hoptree.core.nodes import ActiveLineage, Node, Run, State
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan
from hoptree.core.ready import ReadyEntry, ReadyQueue
from hoptree.core.run_results import RunResults
from hoptree.core.saving import SavePolicy
from hoptree.core.schedules import Config, multistep
from hoptree.core.settings import Settings
from hoptree.core.states import StateRegistry
from hoptree.core.steps import Step
from hoptree.core.trials import Trials
from hoptree.core.workers import Worker
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload
from tests.core.driver import Driver

Patch = pytest.MonkeyPatch
LATER = multistep(0.1, at=[1], gamma=0.1)  # as 0.1, and different after an epoch
WITHIN: Config = {"lr": multistep(0.3, at=[4 / 3], gamma=0.1)}  # different after 4 units of 3 partitions


def broken(number: int) -> pytest.RaisesExc[InvariantError]:
    return pytest.raises(InvariantError, match=rf"^invariant {number} is broken")


def run_workload(order: str = "strict", **more: object) -> None:
    """Train some trials that begin alike; all is well unless the engine was broken."""
    configs = [{"lr": 0.1}, {"lr": LATER}, {"lr": multistep(0.1, at=[1.5], gamma=0.1)}, {"lr": 0.7}]
    workload = Workload(configs=configs, epochs=3, partitions=3, every=1)
    simulate(workload, Cluster(workers=2), order=order, check=True, **more)


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
    monkeypatch.setattr(OpenWork, "_cover", _spawn_at_the_start)
    driver = Driver(1)
    driver.join("w")
    with broken(2):
        driver.ask(0, {"lr": LATER}, until=2)


def _spawn_at_the_start(open_work: OpenWork, node: object, unit: int) -> None:
    if not node.active:  # type: ignore[attr-defined]
        open_work.spawn(node, node.start, None)  # type: ignore[arg-type, attr-defined]


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


# --- 6: no unit is trained twice while a state at or after it is stored -----------------------------------


def test_6_training_begins_at_the_beginning_though_a_state_is_stored(monkeypatch: Patch):
    driver = Driver(2, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=1)
    driver.finish()
    monkeypatch.setattr(OpenWork, "_cover", _spawn_at_the_start)
    with broken(6):
        driver.extend(0, 2)


def test_6_a_unit_trained_again_after_it_finished(monkeypatch: Patch):
    def stay(results: RunResults, lineage: ActiveLineage, run: Run, state: State, *, needed: bool) -> None:
        results._lineages.offer(lineage)  # at the unit where it was

    monkeypatch.setattr(RunResults, "_advance", stay)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=2)
    with broken(6):
        driver.train("w")


def test_6_training_continues_without_a_request(monkeypatch: Patch):
    monkeypatch.setattr(OpenWork, "next_target", lambda open_work, lineage: lineage.unit + 1)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=1)
    driver.train("w")
    with broken(6):
        driver.evaluate("w")


# --- 7: a state that something still needs is never dropped -----------------------------------------------


def drop_early(monkeypatch: Patch, users: Callable[[int], int]) -> None:
    release = StateRegistry.release

    def early(states: StateRegistry, state: object) -> None:
        state.users = users(state.users)  # type: ignore[attr-defined]
        release(states, state)  # type: ignore[arg-type]

    monkeypatch.setattr(StateRegistry, "release", early)


def test_7_a_state_dropped_with_its_first_user(monkeypatch: Patch):
    drop_early(monkeypatch, lambda users: 1)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=2)
    driver.ask(1, {"lr": LATER}, until=2)
    driver.train("w")
    with broken(7):
        driver.finish()


def test_7_a_state_dropped_while_it_is_evaluated(monkeypatch: Patch):
    drop_early(monkeypatch, lambda users: 1)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=1)
    with broken(7):
        driver.train("w")


def test_7_a_state_dropped_that_a_trial_ended_with(monkeypatch: Patch):
    monkeypatch.setattr(StateRegistry, "pin", lambda states, trial, state: None)
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1)
    driver.train("w")
    with broken(7):
        driver.evaluate("w")


def test_7_a_state_dropped_that_a_waiting_branch_begins_from(monkeypatch: Patch):
    spawn = OpenWork.spawn

    def unnoted(open_work: OpenWork, node: object, unit: int, state: object) -> ActiveLineage:
        lineage = spawn(open_work, node, unit, state)  # type: ignore[arg-type]
        if state is not None:
            state.users -= 1  # type: ignore[attr-defined]
        return lineage

    monkeypatch.setattr(OpenWork, "spawn", unnoted)
    driver = Driver(1, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=3)
    driver.ask(1, {"lr": LATER}, until=2)
    with broken(7):
        driver.finish()


def test_7_a_state_dropped_though_a_branch_has_yet_to_begin_there(monkeypatch: Patch):
    arrive = OpenWork.arrive

    def forget(open_work: OpenWork, node: object, unit: int) -> list[object]:
        arrive(open_work, node, unit)  # type: ignore[arg-type]
        return []

    monkeypatch.setattr(OpenWork, "arrive", forget)
    with broken(7):
        run_workload()


def test_7_an_evaluation_of_a_state_that_is_not_stored():
    driver = Driver(1)
    driver.join("w")
    with broken(7):
        driver.checker.see(Step(TrialStopped(0), 1.0, True, [Evaluate(0, "w", 1, 1, "", "", Origin({}, 0))]))


# --- 8: every trial that was asked for ends ---------------------------------------------------------------


def test_8_a_trial_whose_active_lineage_was_dropped(monkeypatch: Patch):
    monkeypatch.setattr(ActiveLineages, "offer", lambda lineages, lineage: None)
    driver = Driver(1)
    driver.join("w")
    with broken(8):
        driver.ask(0, 0.1)


def test_8_a_unit_that_failed_and_is_not_tried_again(monkeypatch: Patch):
    monkeypatch.setattr(ActiveLineages, "resume", lambda lineages, lineage: None)
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1)
    with broken(8):
        driver.fail("w")


def test_8_a_barrier_that_never_opens(monkeypatch: Patch):
    monkeypatch.setattr(Barriers, "opened", lambda barriers, trial: [])
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1, until=2, every=1, barrier=True)
    driver.train("w")
    with broken(8):
        driver.evaluate("w")


def test_8_an_evaluation_of_a_lost_worker_is_not_repeated(monkeypatch: Patch):
    monkeypatch.setattr(RunResults, "_evaluate_again", lambda results, state: None)
    driver = Driver(1)
    driver.join("w")
    driver.join("v")
    driver.ask(0, 0.1)
    driver.train("w")
    with broken(8):
        driver.lose("w")


def test_8_a_trial_that_fails_without_a_reason():
    driver = Driver(1, retries=0)
    driver.join("w")
    driver.ask(0, 0.1)
    with broken(8):
        driver.fail("w", reason="")


def test_8_a_report_for_a_trial_that_was_never_requested():
    driver = Driver(1)
    with broken(8):
        driver.checker.see(Step(TrialStopped(0), 1.0, True, [Report(3, 1, {})]))


# --- 9: no state leaks ------------------------------------------------------------------------------------


def test_9_a_state_whose_last_user_goes_and_that_stays(monkeypatch: Patch):
    def keep_all(states: StateRegistry, state: State) -> None:
        state.users -= 1

    monkeypatch.setattr(StateRegistry, "release", keep_all)
    driver = Driver(2, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1)
    driver.train("w")
    driver.train("w")
    with broken(9):
        driver.evaluate("w")


def test_9_a_final_state_that_stays_when_its_trial_is_stopped(monkeypatch: Patch):
    driver = Driver(1)
    driver.join("w")
    driver.ask(0, 0.1)
    driver.finish()
    monkeypatch.setattr(StateRegistry, "pin", lambda states, trial, state: None)
    with broken(9):
        driver.stop(0)


def test_9_a_state_kept_for_a_stopped_trial(monkeypatch: Patch):
    monkeypatch.setattr(StateRegistry, "let_go", lambda states, state: None)
    driver = Driver(2, saving=SavePolicy(every=1))
    driver.join("w")
    driver.ask(0, 0.1, until=3)
    for _ in range(3):
        driver.train("w")
    with broken(9):
        driver.stop(0)


def test_9_a_state_that_is_saved_and_does_not_take_the_place_of_the_one_before(monkeypatch: Patch):
    monkeypatch.setattr(Engine, "_state_saved", lambda engine, event: None)
    driver = Driver(2, saving=SavePolicy(every=1), ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=9)
    driver.ask(1, 0.1, until=3)
    for _ in range(5):
        driver.train("w")
    driver.step(StateSaved(1, 4))
    with broken(9):
        driver.stop(1)


def test_9_a_state_adopted_without_being_kept(monkeypatch: Patch):
    """One that the store knows is to stay while its trials are on their way; then it must not count as kept."""

    def forgetful(states: StateRegistry, state: State) -> None:
        state.users += 1  # a user that nobody takes away

    monkeypatch.setattr(StateRegistry, "keep", forgetful)
    driver = Driver(2, ahead=False)
    driver.stored.add((1, 2))
    driver.join("w")
    driver.ask(0, 0.1, until=2, known=KnownResults((1,)))
    with broken(9):
        driver.finish()


# --- mutations that once went unnoticed -------------------------------------------------------------------


def test_a_known_state_that_is_adopted_is_kept_until_its_trials_have_ended():
    driver = Driver(2, ahead=False)
    driver.stored.add((1, 2))
    driver.join("w")
    driver.ask(0, 0.1, until=3, known=KnownResults((1,)))
    driver.train("w")
    assert (1, 2) in driver.stored
    driver.finish()
    assert driver.stored == {(1, 6)}


def test_7_a_state_adopted_without_being_kept(monkeypatch: Patch):
    monkeypatch.setattr(StateRegistry, "keep", lambda states, state: None)
    driver = Driver(2, ahead=False)
    driver.stored.add((1, 2))
    driver.join("w")
    driver.ask(0, 0.1, until=3, known=KnownResults((1,)))
    with broken(7):
        driver.train("w")


def test_6_a_lineage_trains_one_unit_beyond_its_last_target(monkeypatch: Patch):
    def beyond(open_work: OpenWork, lineage: ActiveLineage) -> int | None:
        later = [stop for stop in lineage.node.targets if stop >= lineage.unit]
        return later[0] if later else lineage.unit + 1

    monkeypatch.setattr(OpenWork, "next_target", beyond)
    with broken(6):
        run_workload(ahead=False)


def test_7_a_lineage_ends_one_unit_before_its_last_target(monkeypatch: Patch):
    def before(open_work: OpenWork, lineage: ActiveLineage) -> int | None:
        stop = next_target(open_work, lineage)
        return None if stop == lineage.unit + 1 else stop

    next_target = OpenWork.next_target
    monkeypatch.setattr(OpenWork, "next_target", before)
    driver = Driver(2, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=1)
    driver.fail("w")  # it is given its chance again at once
    driver.train("w")
    with broken(7):
        driver.fail("w")


def test_the_next_target_is_the_first_that_a_lineage_has_not_reached():
    driver = Driver(2, ahead=False)
    driver.ask(0, 0.1, until=2, every=1)
    driver.join("w")
    lineage = driver.engine.plan.nodes[1].active[0]
    following: list[int | None] = []
    for _ in range(4):
        following.append(driver.engine.open_work.next_target(lineage))
        driver.train("w")
        if driver.engine.runs and driver.busy("w").run in driver.evaluating:  # type: ignore[union-attr]
            driver.evaluate("w")
    assert following == [2, 2, 4, 4]
    assert driver.engine.open_work.next_target(lineage) is None

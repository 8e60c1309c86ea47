"""Mutations of what happens to states and trials: each breaks an invariant."""

from __future__ import annotations

from collections.abc import Callable

from hoptree.core.actions import Evaluate, Origin, Report
from hoptree.core.active_lineages import ActiveLineages
from hoptree.core.barriers import Barriers
from hoptree.core.engine import Engine
from hoptree.core.events import KnownResults, StateSaved, TrialStopped
from hoptree.core.nodes import ActiveLineage, Run, State
from hoptree.core.open_work import OpenWork
from hoptree.core.run_results import RunResults
from hoptree.core.saving import SavePolicy
from hoptree.core.states import StateRegistry
from hoptree.core.steps import Step
from tests.core.broken_engines import LATER, Patch, broken, run_workload, spawn_at_the_start
from tests.core.driver import Driver

# --- 6: no unit is trained twice while a state at or after it is stored -----------------------------------


def test_6_training_begins_at_the_beginning_though_a_state_is_stored(monkeypatch: Patch):
    driver = Driver(2, ahead=False)
    driver.join("w")
    driver.ask(0, 0.1, until=1)
    driver.finish()
    monkeypatch.setattr(OpenWork, "_cover", spawn_at_the_start)
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

"""The contract of a backend, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.testing import BackendContract

    class TestMine(BackendContract):
        @pytest.fixture
        def backend(self):
            return Mine(nodes=2)  # its settings, as in study.run(backend=Mine(nodes=2))

The suite opens the backend with a small job of its own, gives it actions as the engine does, and compares metrics
with those of straight training; one of them is a checksum of the weights.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from hoptree.backends.event_loop import drive
from hoptree.backends.job import BackendSettings, TrainingJob
from hoptree.backends.protocol import Backend, FindsStates
from hoptree.core.actions import EndTrial, Evaluate, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    StateSaved,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.invariants import InvariantChecker
from hoptree.core.schedules import Config, multistep
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.search.protocol import Branch, Decision, Train
from hoptree.search.tuner import Tuner
from hoptree.testing.actions import ActionMaker
from hoptree.testing.backend_run import AnEvent, BackendRun, time_limit
from hoptree.testing.trainer import same
from hoptree.testing.training import PARTITIONS, ReferenceTraining, make_job
from hoptree.trainers.base import ModelState

_CONFIG: Config = {"lr": 0.1}


class BackendContract:
    """The contract of every backend; a subclass defines the fixture ``backend`` and may set attributes below."""

    workers = 2
    """How many workers the job asks for; a backend may have fewer."""

    trains = True
    """Whether units are really trained: a simulated backend computes no metrics."""

    processes = False
    """Whether workers are separate processes, which user code may kill."""

    limit = 300.0
    """Seconds after which a backend that does not answer fails its test."""

    def test_workers_join_with_their_partitions(self, backend: BackendSettings) -> None:
        """Each has a unique name; together they hold all partitions."""
        with self._run(backend) as (run, _, _):
            names = run.wait_for_workers(PARTITIONS)
            joined = [event.worker for event in run.events if isinstance(event, WorkerJoined)]
            assert len(joined) == len(set(joined)), f"a worker joined twice: {joined}"
            assert all(names), f"a worker has no name: {names}"
            for name, held in run.workers.items():
                outside = [partition for partition in held if not 0 <= partition < PARTITIONS]
                assert not outside, f"worker {name} holds the partitions {outside}, of {PARTITIONS}"

    def test_a_unit_is_answered_once(self, backend: BackendSettings) -> None:
        """By ``UnitFinished`` with the run and the worker of the action."""
        with self._run(backend) as (run, make, _):
            run.wait_for_workers(PARTITIONS)
            lineage = make.lineage(_CONFIG)
            units = [make.train(lineage, 0, run.worker(0))]
            run.submit(units[0])
            run.answer(units[0].run, UnitFinished)
            units.append(make.train(lineage, 1, run.worker(1), home=units[0].worker))
            run.submit(units[1])
            run.answer(units[1].run, UnitFinished)
            for unit in units:
                (event,) = run.about(unit.run)
                assert isinstance(event, UnitFinished)
                assert event.worker == unit.worker, (
                    f"run {unit.run} of {unit.worker} was finished by {event.worker}"
                )
                assert event.seconds >= 0, f"run {unit.run} took {event.seconds} seconds"

    def test_metrics_are_those_of_straight_training(self, backend: BackendSettings) -> None:
        """With ``evaluate`` they follow ``UnitFinished``; ``Evaluate`` returns those of any existing state."""
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            lineage = make.lineage(_CONFIG)
            expected, place = [], ""
            for number in range(4):
                place = run.worker(number % PARTITIONS, other_than=place)  # it hops if it can
                unit = make.train(lineage, number, place, evaluate=True)
                run.submit(unit)
                found = run.answer(unit.run, StateEvaluated)
                kinds = [type(event).__name__ for event in run.about(unit.run)]
                assert kinds == ["UnitFinished", "StateEvaluated"], (
                    f"a unit with evaluate=True was answered {kinds}"
                )
                expected.append(reference.run(unit))
                self._same(found, expected[-1], f"after unit {number}")
            for number in (4, 2):
                evaluation = make.evaluate(lineage, number, run.worker(0))
                run.submit(evaluation)
                self._same(run.answer(evaluation.run, StateEvaluated), expected[number - 1], f"state {number}")
                assert len(run.about(evaluation.run)) == 1, (
                    f"an evaluation was answered {run.about(evaluation.run)}"
                )

    def test_a_run_given_ahead_waits_for_the_one_before(self, backend: BackendSettings) -> None:
        """The engine queues a worker's next unit while one is training, also one that needs its state."""
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            worker = next((name for name, held in run.workers.items() if len(held) == PARTITIONS), "")
            if not worker:
                return  # no worker ever has two units of one lineage in a row
            units = [make.train(make.lineage(_CONFIG), number, worker, evaluate=number == 3) for number in range(4)]
            run.submit(*units)
            found = run.answer(units[-1].run, StateEvaluated)
            order = [event.run for event in run.events if isinstance(event, UnitFinished)]
            assert order == [unit.run for unit in units], f"units of one worker were finished in the order {order}"
            self._same(found, [reference.run(unit) for unit in units][-1], "after four units given at once")

    def test_branches_start_from_one_state(self, backend: BackendSettings) -> None:
        """A state can be continued several times, in any order."""
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            trunk = make.lineage(_CONFIG)
            for number in range(PARTITIONS):
                unit = make.train(trunk, number, run.worker(number))
                reference.run(unit)
                run.submit(unit)
                run.answer(unit.run, UnitFinished)
            for rate in (0.5, 0.1, 0.7):
                lineage = make.branch(trunk, 1, {"lr": rate})
                unit = make.train(lineage, PARTITIONS, run.worker(0), evaluate=True)
                run.submit(unit)
                self._same(run.answer(unit.run, StateEvaluated), reference.run(unit), f"a branch with lr={rate}")

    def test_what_user_code_raises_is_its_failure(self, backend: BackendSettings) -> None:
        """``UnitFailed`` reports the exception, and the worker continues."""
        if not self.trains:
            return
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            for act, evaluate in (("raise", False), ("exit", False), ("raise in evaluate", True)):
                unit = make.train(make.lineage({"lr": 0.1, "act": act}), 0, run.worker(0), evaluate=evaluate)
                run.submit(unit)
                failed = run.answer(unit.run, UnitFailed)
                assert failed.fault == "user", f"{act}: the fault is {failed.fault!r}, expected 'user'"
                said = "exit" if act == "exit" else "as the suite asked"
                assert said in failed.reason.lower(), f"{act}: expected {said!r} in the reason: {failed.reason}"
                assert not any("\ud800" <= sign <= "\udfff" for sign in failed.reason), (
                    "UTF-8 cannot encode the reason"
                )
            assert not any(isinstance(event, WorkerLost) for event in run.events), "an exception cost a worker"
            unit = make.train(make.lineage(_CONFIG), 0, run.worker(0), evaluate=True)
            run.submit(unit)
            self._same(run.answer(unit.run, StateEvaluated), reference.run(unit), "a unit after failures")

    def test_a_state_that_is_nowhere_is_lost(self, backend: BackendSettings) -> None:
        """That is a system fault, and ``StateLost`` makes the engine train it again."""
        if not self.trains:
            return
        with self._run(backend) as (run, make, _):
            run.wait_for_workers(PARTITIONS)
            lineage = make.lineage(_CONFIG)
            first = make.train(lineage, 0, run.worker(0))
            run.submit(first)
            run.answer(first.run, UnitFinished)
            run.submit(make.drop(lineage, 1))
            other = make.train(make.lineage({"lr": 0.2}), 0, first.worker)  # what was in memory is another's now
            run.submit(other)
            run.answer(other.run, UnitFinished)
            unit = make.train(lineage, 2, run.worker(0))
            run.submit(unit)
            failed = run.answer(unit.run, UnitFailed)
            assert failed.fault == "system", f"a missing state is the fault of {failed.fault!r}, expected 'system'"
            lost = [event for event in run.events if isinstance(event, StateLost)]
            assert lost, "a state is nowhere, but StateLost did not come before UnitFailed"

    def test_a_cancelled_run_is_answered_once(self, backend: BackendSettings) -> None:
        """With ``UnitCancelled``, or with its result if that was faster; other runs continue."""
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            worker = run.worker(0)
            rates = (0.1, 0.2, 0.3)
            units = [make.train(make.lineage({"lr": rate}), 0, worker, evaluate=True) for rate in rates]
            run.submit(*units, make.cancel(units[1]))
            for unit in (units[0], units[2]):
                self._same(
                    run.answer(unit.run, StateEvaluated), reference.run(unit), "a run beside a cancelled one"
                )
            run.answer(units[1].run, UnitCancelled, StateEvaluated)
            kinds = [type(event).__name__ for event in run.about(units[1].run)]
            assert kinds in (
                ["UnitCancelled"],
                ["UnitFinished", "StateEvaluated"],
                ["UnitFinished", "UnitCancelled"],
            ), f"a cancelled run was answered {kinds}"
            run.submit(make.cancel(units[0]))  # it has ended: there is nothing to cancel or to report
            last = make.train(make.lineage({"lr": 0.4}), 0, worker)
            run.submit(last)
            run.answer(last.run, UnitFinished)
            assert len(run.about(units[0].run)) == 2, (
                f"a run that was over was answered again: {run.about(units[0].run)}"
            )

    def test_a_dropped_state_is_not_missed(self, backend: BackendSettings) -> None:
        """Later states stay, and a dropped state can be trained again."""
        with self._run(backend) as (run, make, reference):
            run.wait_for_workers(PARTITIONS)
            lineage = make.lineage(_CONFIG)
            for number in range(3):
                unit = make.train(lineage, number, run.worker(number % PARTITIONS))
                reference.run(unit)
                run.submit(unit)
                run.answer(unit.run, UnitFinished)
            run.submit(make.drop(lineage, 1), make.drop(lineage, 2), make.drop(make.lineage({"lr": 0.9}), 1))
            again = make.train(lineage, 0, run.worker(0), evaluate=True)
            on = make.train(lineage, 3, run.worker(1), evaluate=True)
            run.submit(again, on)
            self._same(run.answer(again.run, StateEvaluated), reference.run(again), "a unit that was trained again")
            self._same(run.answer(on.run, StateEvaluated), reference.run(on), "a unit after a dropped state")

    def test_a_saved_state_is_in_the_store(self, backend: BackendSettings) -> None:
        """``StateSaved`` reports it; the state exists at the latest when the backend has stopped."""
        with self._job() as job:
            make, reference = ActionMaker(PARTITIONS), ReferenceTraining(job)
            lineage = make.lineage(_CONFIG)
            with BackendRun(backend.open(job)) as run:
                run.wait_for_workers(PARTITIONS)
                for number in range(2):
                    unit = make.train(lineage, number, run.worker(number))
                    reference.run(unit)
                    run.submit(unit)
                    run.answer(unit.run, UnitFinished)
                run.submit(make.save(lineage, 1))
                run.wait_for("StateSaved", lambda: _first(run.events, StateSaved))
                run.submit(make.save(lineage, 2))
            for number in (1, 2) if self.trains else ():
                key = make.save(lineage, number).key
                expected = reference.states[key]
                found = ModelState(*job.states.get(key))
                same(found, expected, f"the state that was saved after {number} units")
            self._go_on(backend, job, make, reference)

    def _go_on(
        self, backend: BackendSettings, job: TrainingJob, make: ActionMaker, reference: ReferenceTraining
    ) -> None:
        """Continue from states that an earlier backend has saved, if this one supports that."""
        lineage, opened = make.lineage(_CONFIG), backend.open(job)
        if not isinstance(opened, FindsStates) or not self.trains:
            return
        saved, never = make.save(lineage, 2), make.save(make.lineage({"lr": 0.9}), 2)
        found = opened.adopt(saved.node, saved.unit, saved.key), opened.adopt(never.node, never.unit, never.key)
        assert found == (True, False), f"adopt returned {found} for a state that was saved and for one that was not"
        with BackendRun(opened) as run:
            run.wait_for_workers(PARTITIONS)
            unit = make.train(lineage, 2, run.worker(0), evaluate=True)
            run.submit(unit)
            self._same(run.answer(unit.run, StateEvaluated), reference.run(unit), "a unit after a saved state")

    def test_waiting_has_a_limit(self, backend: BackendSettings) -> None:
        """The driver does other work meanwhile, whether workers are busy or idle."""
        with self._run(backend) as (run, make, _):
            run.wait_for_workers(PARTITIONS)
            for _ in range(3):
                run.wait_shortly()
            unit = make.train(make.lineage(_CONFIG), 0, run.worker(0))
            run.submit(unit)
            run.wait_shortly()
            run.answer(unit.run, UnitFinished)

    def test_a_lost_worker_is_told_and_costs_no_trial(self, backend: BackendSettings) -> None:
        """``WorkerLost`` is reported, its run fails with a system fault, and another worker replaces it."""
        if not self.processes:
            return
        with self._run(backend) as (run, make, reference), tempfile.TemporaryDirectory() as folder:
            run.wait_for_workers(PARTITIONS, self.workers)
            flag = str(Path(folder) / "flag")
            lineage = make.lineage({"lr": 0.1, "act": "kill", "flag": flag})
            unit = make.train(lineage, 0, run.worker(0))
            run.submit(unit)
            run.wait_for("WorkerLost", lambda: _first(run.events, WorkerLost))
            for event in run.about(unit.run):
                assert isinstance(event, UnitFailed), f"a unit whose worker was killed was answered {event}"
                assert event.fault == "system", f"a killed worker is the fault of {event.fault!r}: {event.reason}"
            run.wait_for_workers(PARTITIONS, self.workers)
            again = make.train(lineage, 0, run.worker(0), evaluate=True)
            run.submit(again)
            self._same(run.answer(again.run, StateEvaluated), reference.run(again), "a unit that was tried again")

    def test_it_stops_at_any_time(self, backend: BackendSettings) -> None:
        """Before a worker is there, and with units under way; after success and after a failure."""
        for failed in (False, True):
            with self._opened(backend) as (opened, _, _):
                opened.start()
                opened.stop(failed=failed)
        with self._run(backend) as (run, make, _):
            run.wait_for_workers(PARTITIONS)
            run.submit(*(make.train(make.lineage({"lr": rate}), 0, run.worker(0)) for rate in (0.1, 0.2)))

    def test_a_study_is_driven_to_its_end(self, backend: BackendSettings) -> None:
        """With the real engine: shared prefixes, a branch, a failing trial; every report equals the reference's."""
        with self._job() as job:
            engine = Engine(Settings(PARTITIONS, retries=0))
            notes = _Notes(ReferenceTraining(job) if self.trains else None)
            tuner = Tuner(_Script(fails=self.trains), root="suite")
            drive(engine, backend.open(job), tuner, [InvariantChecker(engine).see, notes.see])
        endings = {number: trial.ending for number, trial in engine.trials.items()}
        expected = {0: "complete", 1: "complete", 2: "failed" if self.trains else "complete", 3: "complete"}
        assert endings == expected, f"the trials ended {endings}, expected {expected}"
        reached = {number: trial.reached for number, trial in engine.trials.items() if trial.ending == "complete"}
        assert all(reached[number] == 3 for number in (0, 1, 3)), f"the trials reported up to the epochs {reached}"

    # --- inside -----------------------------------------------------------------------------------------

    @contextmanager
    def _job(self) -> Iterator[TrainingJob]:
        with tempfile.TemporaryDirectory() as folder, time_limit(self.limit):
            yield make_job(Path(folder), self.workers)

    @contextmanager
    def _opened(self, backend: BackendSettings) -> Iterator[tuple[Backend, ActionMaker, ReferenceTraining]]:
        with self._job() as job:
            make = ActionMaker(PARTITIONS)
            yield backend.open(job), make, ReferenceTraining(job)

    @contextmanager
    def _run(self, backend: BackendSettings) -> Iterator[tuple[BackendRun, ActionMaker, ReferenceTraining]]:
        with self._opened(backend) as (opened, make, reference), BackendRun(opened) as run:
            yield run, make, reference

    def _same(self, found: StateEvaluated, expected: dict[str, float], what: str) -> None:
        if self.trains:
            assert found.metrics == expected, f"{what}: the metrics are {found.metrics}, expected {expected}"


def _first(events: list[Event], kind: type[AnEvent]) -> AnEvent | None:
    return next((event for event in events if isinstance(event, kind)), None)


@final
class _Script:
    """A search: three trials with a common prefix, of which one fails, and a branch once the first is complete."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._branched = False

    def start(self) -> list[Decision]:
        bad: Config = {"lr": 0.3, "act": "raise"} if self._fails else {"lr": 0.3}
        later: Config = {"lr": multistep(0.1, at=[1], gamma=0.5)}
        return [Train({"lr": 0.1}, 3, 1), Train(later, 3, 1), Train(bad, 3, 1)]

    def tell(self, news: Report | EndTrial) -> list[Decision]:
        if isinstance(news, EndTrial) and news.trial == 0 and not self._branched:
            self._branched = True
            return [Branch(0, 2, {"lr": 0.7}, 3)]
        return []


@final
class _Notes:
    """Also trains every unit with the reference, and compares the metrics."""

    def __init__(self, reference: ReferenceTraining | None) -> None:
        self._reference = reference
        self._expected: dict[int, dict[str, float]] = {}

    def see(self, step: Step) -> None:
        if self._reference is None:
            return
        event = step.event
        if isinstance(event, StateEvaluated):
            expected = self._expected[event.run]
            assert event.metrics == expected, (
                f"run {event.run}: the metrics are {event.metrics}, expected {expected}"
            )
        for action in step.actions:
            if isinstance(action, RunUnit) and action.values.at(0.0).get("act") != "raise":
                self._expected[action.run] = self._reference.run(action)
            elif isinstance(action, Evaluate):
                self._expected[action.run] = self._reference.evaluate(action)

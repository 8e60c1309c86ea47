"""Every backend keeps the contract, and the suite finds what breaks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from examples.own_backend import InProcess, InProcessBackend

from hoptree.backends import Backend, BackendSettings, SimulatedBackend, TrainingJob
from hoptree.backends.local import LocalPool, slot_folders_of_study
from hoptree.backends.pool_backend import PoolBackend
from hoptree.core.actions import CancelUnit, RunUnit, SaveState
from hoptree.core.events import Event, StateLost, StateSaved, UnitFailed, UnitFinished, WorkerJoined
from hoptree.simulator import Cluster
from hoptree.simulator.workload import Workload
from hoptree.store import StateMissingError
from hoptree.testing import BackendContract
from hoptree.trainers import ModelState


class Simulated:
    def open(self, job: TrainingJob) -> Backend:
        workload = Workload(partitions=job.dataset.partitions, evaluation_seconds=0.5)
        return SimulatedBackend(
            Cluster(workers=job.workers or 1, replicas=2), job.dataset.partitions, workload.landscape()
        )


class TestSimulated(BackendContract):
    trains = False

    @pytest.fixture
    def backend(self) -> BackendSettings:
        return Simulated()


class NoLedger:
    def saved(self, key: str, size: int, seconds: float) -> None: ...

    def dropped(self, key: str) -> None: ...

    def has_room(self, size: int) -> bool:
        return False


class Local:
    def open(self, job: TrainingJob) -> Backend:
        slots = slot_folders_of_study(job.folder, job.study)
        pool = LocalPool(job.trainer, job.dataset, job.states, workers=job.workers or 1, slots=slots, token=1)
        return PoolBackend(pool, job.states, seed=job.seed, ledger=NoLedger())


class TestLocal(BackendContract):
    processes = True

    @pytest.fixture
    def backend(self) -> BackendSettings:
        return Local()


class TestInProcess(BackendContract):
    @pytest.fixture
    def backend(self) -> BackendSettings:
        return InProcess()


class Faulty(InProcessBackend):
    """The example with a fault in it."""

    def __init__(self, job: TrainingJob, fault: str) -> None:
        super().__init__(job)
        self.fault = fault

    def start(self) -> None:
        if self.fault != "nobody joins":
            super().start()
        if self.fault == "joins twice":
            super().start()
        if self.fault == "unknown partition":
            self.events.append(WorkerJoined("there", (7,)))

    def submit(self, action: Any) -> None:
        if self.fault == "no cancelling" and isinstance(action, CancelUnit):
            self.queue = type(self.queue)(run for run in self.queue if run.run != action.run)
            return
        if isinstance(action, SaveState):
            match self.fault:
                case "saves nothing":
                    return
                case "saves later":
                    self.events.append(StateSaved(action.node, action.unit))
                    return
                case "saves half":
                    self.states[action.key] = ModelState(self.states[action.key].arrays, {"units": 0})
        super().submit(action)
        if self.fault == "last come, first served":
            self.queue.rotate(1)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        now, events = super().wait(seconds)
        return (0.0 if self.fault == "clock from 0" and not events else now + 1e9), events

    def adopt(self, node: int, unit: int, key: str) -> bool:
        return self.fault == "finds all" or super().adopt(node, unit, key)

    def carry_out(self, action: Any) -> list[Event]:
        if self.fault == "another order of examples" and isinstance(action, RunUnit):
            action = msgspec.structs.replace(action, epoch=action.epoch + 1)
        source = action.source_state if isinstance(action, RunUnit) else None
        events = super().carry_out(action)
        match self.fault:
            case "a system's fault":
                return [UnitFailed(e.run, e.worker, e.reason, "system") if fails(e) else e for e in events]
            case "no reason":
                return [UnitFailed(e.run, e.worker, "it failed", e.fault) if fails(e) else e for e in events]
            case "any text":
                return [UnitFailed(e.run, e.worker, e.reason + "\ud800", "user") if fails(e) else e for e in events]
            case "tells of no loss":
                return [event for event in events if not isinstance(event, StateLost)]
            case "finishes twice":
                return [*events, *(event for event in events if isinstance(event, UnitFinished))]
            case "evaluates first":
                before, self.events = self.events, []
                return [*events, *before]
            case "uses a state up" if source is not None:
                self.states.pop(source, None)
            case "another worker":
                return [UnitFinished(e.run, "w7") if isinstance(e, UnitFinished) else e for e in events]
        return events

    def model(self, action: Any, state: str | None, place: tuple[int, int]) -> Any:
        origin = action.origin
        resident = self.models.get((origin.seed, *sorted(origin.values.items())))
        stale = self.fault == "stale models" or (self.fault == "never untrained" and state is None)
        if resident is not None and stale:
            return resident
        return super().model(action, state, place)

    def train(self, action: RunUnit) -> list[Event]:
        events = super().train(action)
        if self.fault == "shares memory":
            self.states[action.target_state] = self.job.trainer.dump(next(reversed(self.models.values())))
        return events


def fails(event: Event) -> bool:
    return isinstance(event, UnitFailed)


@dataclass
class OpensFaulty:
    fault: str

    def open(self, job: TrainingJob) -> Backend:
        return Faulty(job, self.fault)


@pytest.mark.parametrize(
    ("fault", "test", "message"),
    [
        ("nobody joins", "workers_join_with_their_partitions", "returned no events while WorkerJoined"),
        ("joins twice", "workers_join_with_their_partitions", "a worker joined twice"),
        ("unknown partition", "workers_join_with_their_partitions", r"holds the partitions \[7\], of 2"),
        ("finishes twice", "a_unit_is_answered_once", "too many values to unpack"),
        ("another worker", "a_unit_is_answered_once", "was finished by w7"),
        ("evaluates first", "metrics_are_those_of_straight_training", "'StateEvaluated', 'UnitFinished'"),
        ("another order of examples", "metrics_are_those_of_straight_training", "after unit 0: the metrics are"),
        ("stale models", "branches_start_from_one_state", "a branch with lr=0.1"),
        ("uses a state up", "branches_start_from_one_state", "failed: the state after unit 2 is not here"),
        ("shares memory", "branches_start_from_one_state", "a branch with lr=0.1"),
        ("last come, first served", "a_run_given_ahead_waits_for_the_one_before", "failed|in the order"),
        ("a system's fault", "what_user_code_raises_is_its_failure", "the fault is 'system', expected 'user'"),
        ("no reason", "what_user_code_raises_is_its_failure", "expected 'as the suite asked' in the reason"),
        ("any text", "what_user_code_raises_is_its_failure", "UTF-8 cannot encode the reason"),
        ("saves nothing", "a_saved_state_is_in_the_store", "returned no events while StateSaved was due"),
        ("saves later", "a_saved_state_is_in_the_store", "no such state"),
        ("saves half", "a_saved_state_is_in_the_store", "the state that was saved after 1 units differs"),
        ("finds all", "a_saved_state_is_in_the_store", r"adopt returned \(True, True\)"),
        ("clock from 0", "waiting_has_a_limit", "returned the time"),
        ("tells of no loss", "a_state_that_is_nowhere_is_lost", "StateLost did not come"),
        ("no cancelling", "a_cancelled_run_is_answered_once", "returned no events while UnitCancelled"),
        ("never untrained", "a_dropped_state_is_not_missed", "a unit that was trained again"),
        ("another order of examples", "a_study_is_driven_to_its_end", "the metrics are"),
    ],
)
def test_seeded_faults_are_found(fault: str, test: str, message: str) -> None:
    with pytest.raises((AssertionError, ValueError, StateMissingError), match=message):
        getattr(BackendContract(), f"test_{test}")(OpensFaulty(fault))

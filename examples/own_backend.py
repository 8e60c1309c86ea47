"""An example backend that trains in this process, one unit after the other. The guide explains it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hoptree.backends import Backend, TrainingJob
from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit, SaveState
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    StateSaved,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
)
from hoptree.store import StateDamagedError, StateMissingError
from hoptree.trainers import ModelState
from hoptree.worker.tracebacks import user_traceback


@dataclass(frozen=True)
class InProcess:
    """The settings that a user passes: ``study.run(backend=InProcess())``."""

    def open(self, job: TrainingJob) -> Backend:
        return InProcessBackend(job)


class InProcessBackend:
    """One worker, which is this process: it trains a unit while the driver waits for events."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.states: dict[str, ModelState] = {}  # by name
        self.models: dict[Any, Any] = {}  # built once and reloaded in place
        self.queue: deque[RunUnit | Evaluate] = deque()
        self.events: list[Event] = []
        self.offset = job.begun - time.monotonic()

    def start(self) -> None:
        self.events.append(WorkerJoined("here", tuple(range(self.job.dataset.partitions))))

    def submit(self, action: RunUnit | Evaluate | CancelUnit | SaveState | DropState) -> None:
        match action:
            case RunUnit() | Evaluate():
                self.queue.append(action)
            case CancelUnit():
                for waiting in [run for run in self.queue if run.run == action.run]:
                    self.queue.remove(waiting)
                    self.events.append(UnitCancelled(action.run, action.worker))
            case SaveState(node, unit, key):
                if key in self.states:
                    self.job.states.put(key, self.states[key].arrays, self.states[key].meta)
                    self.events.append(StateSaved(node, unit))
            case DropState():
                self.states.pop(action.key, None)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        if not self.events and self.queue:
            self.events += self.carry_out(self.queue.popleft())
        if not self.events and seconds:  # only other drivers have work
            time.sleep(seconds)
        events, self.events = self.events, []
        return time.monotonic() + self.offset, events

    def stop(self, *, failed: bool) -> None:
        self.queue.clear()
        self.states.clear()
        self.models.clear()

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Return whether a state of an earlier run was saved, to continue from it."""
        return key in self.job.states

    # --- one run --------------------------------------------------------------------------------------------

    def carry_out(self, action: RunUnit | Evaluate) -> list[Event]:
        try:
            return self.train(action) if isinstance(action, RunUnit) else [self.evaluate(action)]
        except MissingStateError as missing:  # the engine trains the state again
            return [missing.event, UnitFailed(action.run, action.worker, str(missing), "system")]
        except (Exception, SystemExit) as error:  # the user's code: its trial fails, and the study continues
            return [UnitFailed(action.run, action.worker, user_traceback(error), "user")]

    def train(self, action: RunUnit) -> list[Event]:
        began = time.monotonic()
        model = self.model(action, action.source_state, (action.source, action.unit))
        data = self.job.dataset.partition(action.partition)
        self.job.trainer.train(model, data, self.job.unit(action))
        state = self.job.trainer.dump(model)
        arrays = {
            name: array.copy() for name, array in state.arrays.items()
        }  # the model continues to change its own
        self.states[action.target_state] = ModelState(arrays, state.meta)
        finished = UnitFinished(action.run, action.worker, time.monotonic() - began)
        if not action.evaluate:
            return [finished]
        values = action.values.at((action.unit + 1) / self.job.dataset.partitions)
        self.events.append(finished)  # the state exists, even if evaluation raises
        return [self.metrics(action, model, values)]

    def evaluate(self, action: Evaluate) -> Event:
        model = self.model(action, action.key, (action.node, action.unit))
        return self.metrics(action, model, action.origin.values)

    def metrics(self, action: RunUnit | Evaluate, model: Any, values: Mapping[str, Any]) -> Event:
        valid = self.job.dataset.valid()
        found = {} if valid is None else self.job.trainer.evaluate(model, valid, values)
        numbers = {name: float(value) for name, value in found.items()}
        return StateEvaluated(action.run, action.worker, numbers)

    def model(self, action: RunUnit | Evaluate, state: str | None, place: tuple[int, int]) -> Any:
        """Return a model with a state loaded; without a state, the untrained model."""
        origin = action.origin
        key = origin.seed, *sorted(origin.values.items())
        if state is None or key not in self.models:
            self.models[key] = self.job.trainer.build(origin.values, origin.seed)
        if state is not None:
            self.job.trainer.load(self.models[key], self.find(state, place))
        return self.models[key]

    def find(self, state: str, place: tuple[int, int]) -> ModelState:
        if state in self.states:
            return self.states[state]
        try:
            return ModelState(*self.job.states.get(state))
        except (StateMissingError, StateDamagedError):
            raise MissingStateError(place) from None


class MissingStateError(Exception):
    def __init__(self, place: tuple[int, int]) -> None:
        super().__init__(f"the state after unit {place[1]} is not here")
        self.event = StateLost(*place)

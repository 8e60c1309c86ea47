"""What a worker does with a command, wherever it runs: restore, train, evaluate, rehearse.

How commands come and where states go is not known here: a process reads a channel and writes slots, an actor takes
calls and returns arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, final

from hoptree.identity.observation import Observations, Recorder
from hoptree.worker.messages import Failed, Judge, Judged, News, Rehearsed, Train
from hoptree.worker.models import Models, StateGoneError
from hoptree.worker.tracebacks import user_traceback

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.data import Dataset
    from hoptree.trainers.base import Columns, ModelState, Trainer
    from hoptree.worker.models import Resident


class Made(NamedTuple):
    """A unit's outcome: the model that was trained, its state, and how long it took since it began."""

    resident: Resident
    state: ModelState
    began: float

    @property
    def size(self) -> int:
        """How many bytes the arrays have."""
        return sum(array.nbytes for array in self.state.arrays.values())


@final
class Runner:
    """Trains and judges with one trainer on one dataset; one thing at a time.

    What the user's code reads meanwhile is recorded, but for what lies in ``ignored``; ``folder`` is the driver's.
    """

    def __init__(
        self,
        trainer: Trainer,
        dataset: Dataset,
        models: Models,
        ignored: Sequence[str] = (),
        folder: str | None = None,
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._models = models
        self._valid = dataset.valid()
        self._recorder = Recorder([str(dataset.path), *ignored], folder)

    def observed(self) -> list[Observations]:
        """Return what the user's code has read since this was asked last."""
        return self._recorder.fresh()

    def train(self, command: Train, during: Callable[[int], AbstractContextManager[None]]) -> Made:
        """Run a unit; ``during`` surrounds the user's code. The state is not the model's until it is handed on."""
        from hoptree.trainers.base import UnitSpec

        action, partitions = command.action, self._dataset.partitions
        unit = UnitSpec(action.values, action.unit, partitions, action.partition, action.seed, command.shuffle_seed)
        data = self._dataset.partition(action.partition)
        with self._recorder:
            resident = self._models.restore(command.origin, command.source)
            began = time.perf_counter()
            resident.key = ""
            with during(action.run):
                self._trainer.train(resident.model, data, unit)
            return Made(resident, self._trainer.dump(resident.model), began)

    def handed_on(self, made: Made, key: str) -> float:
        """Note that a unit's state is safe under its name, and return the seconds that the unit took."""
        made.resident.key = key
        made.resident.size = made.size
        return time.perf_counter() - made.began

    def evaluate(self, command: Train, resident: Resident) -> Judged:
        """Return the metrics of what was just trained."""
        action = command.action
        values = action.values.at((action.unit + 1) / self._dataset.partitions)
        return self._metrics(action.run, resident.model, values)

    def judge(self, command: Judge) -> Judged:
        """Return the metrics of a stored state."""
        with self._recorder:
            resident = self._models.restore(command.origin, command.source)
        return self._metrics(command.action.run, resident.model, command.origin.values)

    def rehearse(self, configs: Sequence[Mapping[str, Scalar]], partition: int) -> Rehearsed:
        """Try the first of some configs that can be built, trained and evaluated."""
        with self._recorder:
            return rehearse_some(self._trainer, configs, lambda: self._dataset.partition(partition), self._valid)

    def _metrics(self, run: int, model: Any, values: Mapping[str, Scalar]) -> Judged:
        from hoptree.trainers.numbers import as_number

        began = time.perf_counter()
        with self._recorder:
            metrics = {} if self._valid is None else self._trainer.evaluate(model, self._valid, values)
        seconds = time.perf_counter() - began
        return Judged(run, {name: as_number(name, value) for name, value in metrics.items()}, seconds)


def rehearse_some(
    trainer: Trainer,
    configs: Sequence[Mapping[str, Scalar]],
    partition: Callable[[], Columns],
    valid: Columns | None,
) -> Rehearsed:
    """Try configs until one can be built, trained and evaluated; else say what is wrong with each of them."""
    from hoptree.trainers.rehearsal import rehearsed

    reasons: list[str] = []
    for config in configs:
        try:
            found = rehearsed(trainer, config, partition(), valid)
        except (Exception, SystemExit) as error:
            reasons.append(user_traceback(error))
        else:
            return Rehearsed(list(found.metrics), [], found.seconds, found.unread)
    return Rehearsed([], reasons)


def failure(run: int, error: Exception | SystemExit) -> News:
    """Return the news that a run has failed; what the user's code raises carries the user's own traceback."""
    match error:
        case StateGoneError():
            return Failed(run, str(error), "system", lost=True)
        case MemoryError():
            return Failed(run, f"out of memory\n{user_traceback(error)}", "user")
        case SystemExit():
            return Failed(
                run, f"{user_traceback(error)}\n\nexit() was called; raise an exception that says why", "user"
            )
        case _:
            return Failed(run, user_traceback(error), "user")

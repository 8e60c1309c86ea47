"""What a worker does with a command, wherever it runs: restore, train, evaluate, rehearse.

How commands come and where states go is not known here: a process reads a channel and writes slots, an actor takes
calls and returns arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, final

import msgspec

from hoptree.data.errors import DataChangedError
from hoptree.identity.observation import InputRecorder, Observations
from hoptree.worker.messages import (
    EvaluateState,
    RehearsalResult,
    Rehearse,
    RunFailed,
    SetupRefused,
    StateMetrics,
    TrainUnit,
    WorkerMessage,
)
from hoptree.worker.model_cache import LostStateError, ModelCache
from hoptree.worker.tracebacks import user_traceback

if TYPE_CHECKING:
    from hoptree.core.schedules import Config, Scalar
    from hoptree.data import Dataset
    from hoptree.trainers.base import Columns, ModelState, Trainer
    from hoptree.worker.model_cache import CachedModel


_KINDS = 0.5  # seconds for configs of other kinds than the one that has passed


class TrainedUnit(NamedTuple):
    """A unit's outcome: the model that was trained, its state, and how long it took since it began."""

    resident: CachedModel
    state: ModelState
    began: float

    @property
    def size(self) -> int:
        """How many bytes the arrays have."""
        return sum(array.nbytes for array in self.state.arrays.values())


@final
class CommandRunner:
    """Trains and judges with one trainer on one dataset; one thing at a time.

    What the user's code reads meanwhile is recorded, but for what lies in ``ignored``; ``folder`` is the driver's.
    """

    def __init__(
        self,
        trainer: Trainer,
        dataset: Dataset,
        models: ModelCache,
        ignored: Sequence[str] = (),
        folder: str | None = None,
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._models = models
        self._valid = dataset.valid()
        self._recorder = InputRecorder([str(dataset.path), *ignored], folder)

    def observed(self) -> list[Observations]:
        """Return what the user's code has read since this was asked last."""
        return self._recorder.fresh()

    def platform(self) -> dict[str, str]:
        """Return what changes bits in this process besides code, data, seed and values."""
        return {str(name): str(value) for name, value in self._trainer.platform().items()}

    def train(self, command: TrainUnit, during: Callable[[int], AbstractContextManager[None]]) -> TrainedUnit:
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
            return TrainedUnit(resident, self._trainer.dump(resident.model), began)

    def handed_on(self, made: TrainedUnit, key: str) -> float:
        """Note that a unit's state is safe under its name, and return the seconds that the unit took."""
        made.resident.key = key
        made.resident.size = made.size
        return time.perf_counter() - made.began

    def evaluate(self, command: TrainUnit, resident: CachedModel) -> StateMetrics:
        """Return the metrics of what was just trained."""
        action = command.action
        values = action.values.at((action.unit + 1) / self._dataset.partitions)
        return self._metrics(action.run, resident.model, values)

    def judge(self, command: EvaluateState) -> StateMetrics:
        """Return the metrics of a stored state."""
        with self._recorder:
            resident = self._models.restore(command.origin, command.source)
        return self._metrics(command.action.run, resident.model, command.origin.values)

    def rehearse(self, command: Rehearse, partition: int) -> RehearsalResult | SetupRefused:
        """Try the first of some configs that can be built, trained and evaluated, or one of each kind.

        Probes are compared from session to session, so they count only where they are made of the same partition.
        """
        try:
            self._dataset.partition(partition)
        except DataChangedError as error:
            return SetupRefused(str(error))
        common = self._trainer, command.configs, lambda: self._dataset.partition(partition), self._valid
        with self._recorder:
            if command.all_kinds:
                found = rehearse_kinds(*common, command.later)
            else:
                found = rehearse_some(*common, command.later, command.changing)
        return found if partition == 0 else msgspec.structs.replace(found, probes=[], parts={})

    def _metrics(self, run: int, model: Any, values: Mapping[str, Scalar]) -> StateMetrics:
        from hoptree.trainers.plain_numbers import as_number

        began = time.perf_counter()
        with self._recorder:
            metrics = {} if self._valid is None else self._trainer.evaluate(model, self._valid, values)
        seconds = time.perf_counter() - began
        return StateMetrics(run, {name: as_number(name, value) for name, value in metrics.items()}, seconds)


def rehearse_some(
    trainer: Trainer,
    configs: Sequence[Mapping[str, Scalar]],
    partition: Callable[[], Columns],
    valid: Columns | None,
    later: Sequence[Mapping[str, Scalar]] = (),
    changing: Sequence[Config] = (),
) -> RehearsalResult:
    """Try configs until one can be built, trained and evaluated; else say what is wrong with each of them."""
    from hoptree.trainers.changes import refused_change
    from hoptree.trainers.errors import NotReproducibleError
    from hoptree.trainers.rehearsal import rehearsed

    reasons: list[str] = []
    for config, afterwards in zip_longest(configs, later):
        try:
            found = rehearsed(trainer, config, partition(), valid, afterwards)
        except NotReproducibleError as error:
            return RehearsalResult([], reasons, refused=str(error))
        except (Exception, SystemExit) as error:
            reasons.append(user_traceback(error))
        else:
            return RehearsalResult(
                list(found.metrics),
                [],
                found.seconds,
                found.unread,
                probes=[(dict(config), found.probe)],
                parts=dict(found.parts),
                refused_change=refused_change(trainer, changing),
            )
    return RehearsalResult([], reasons)


def rehearse_kinds(
    trainer: Trainer,
    configs: Sequence[Mapping[str, Scalar]],
    partition: Callable[[], Columns],
    valid: Columns | None,
    later: Sequence[Mapping[str, Scalar]] = (),
) -> RehearsalResult:
    """Try each config while there is time; one that fails is data, one that is not reproducible is refused."""
    from hoptree.trainers.errors import NotReproducibleError
    from hoptree.trainers.rehearsal import rehearsed

    probes: list[tuple[dict[str, Scalar], str]] = []
    began = time.perf_counter()
    for config, afterwards in zip_longest(configs, later):
        if time.perf_counter() - began > _KINDS:
            break
        try:
            found = rehearsed(trainer, config, partition(), valid, afterwards)
        except NotReproducibleError as error:
            return RehearsalResult([], [], refused=str(error), probes=probes)
        except (Exception, SystemExit):  # noqa: S112 its trial says so
            continue
        probes.append((dict(config), found.probe))
    return RehearsalResult([], [], probes=probes)


def failure(run: int, error: Exception | SystemExit) -> WorkerMessage:
    """Return the news that a run has failed; what the user's code raises carries the user's own traceback.

    Data that has changed ends the whole run: it would give other bits under the names of what was asked for.
    """
    match error:
        case DataChangedError():  # no trial's fault, and none can go on with other data
            return SetupRefused(str(error))
        case LostStateError():
            return RunFailed(run, str(error), "system", lost=True)
        case MemoryError():
            return RunFailed(run, f"out of memory\n{user_traceback(error)}", "user")
        case SystemExit():
            return RunFailed(
                run, f"{user_traceback(error)}\n\nexit() was called; raise an exception that says why", "user"
            )
        case _:
            return RunFailed(run, user_traceback(error), "user")

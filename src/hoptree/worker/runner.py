"""Carries out the commands of a worker of any kind: load, train, evaluate, rehearse.

How commands arrive and where states go is up to the caller: a process reads a channel and writes slots, an actor
takes calls and returns arrays.
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
from hoptree.trainers.errors import GangError
from hoptree.trainers.layout_options import has_parts, offloaded
from hoptree.worker.limits import asked_bytes, is_out_of_memory, memory_advice, memory_limit
from hoptree.worker.memory import free_memory
from hoptree.worker.messages import (
    BatchesMeasured,
    EvaluateState,
    MeasureBatches,
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
    from hoptree.trainers.gang import ModelPlacement
    from hoptree.trainers.rehearsal import Rehearsal
    from hoptree.worker.model_cache import CachedModel


_KINDS = 0.5  # seconds for configs of other kinds, after one has passed


class TrainedUnit(NamedTuple):
    """The result of a unit: the model, its state, and the time at which training began."""

    cached: CachedModel
    state: ModelState
    began: float

    @property
    def size(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in self.state.arrays.values())


@final
class CommandRunner:
    """Trains and evaluates with one trainer on one dataset, one command at a time.

    The inputs that the user's code reads are recorded, except those in ``ignored``; ``folder`` is the driver's.
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
        self._short = False  # whether a unit was out of memory, and may have left some to free
        self._recorder = InputRecorder([str(dataset.path), *ignored], folder)

    def observed(self) -> list[Observations]:
        """Return the inputs that the user's code has read since the last call."""
        return self._recorder.fresh()

    def platform(self) -> dict[str, str]:
        """Return what affects bits in this process besides code, data, seed and values."""
        return {str(name): str(value) for name, value in self._trainer.platform().items()}

    def open_rendezvous(self, host: str) -> str:
        """Return an address on ``host`` where other workers find this one if it leads; empty without shards."""
        return self._trainer.open_rendezvous(host) if self._trainer.shards > 1 else ""

    def leave_gang(self, name: str) -> None:
        """Let the thread that trains stop waiting for the workers of a gang."""
        self._trainer.leave_gang(name)

    def train(self, command: TrainUnit, during: Callable[[int], AbstractContextManager[None]]) -> TrainedUnit:
        """Train a unit within ``during``. The model has no valid state until ``mark_kept`` is called."""
        placement, origin = _placement(command), command.origin
        if placement is not None and self._models.has_others(origin, placement):
            self._models.drop_others(origin, placement)  # memory is short
            self._short = True
        if self._short:  # also of what a unit before this one has left
            self._short = False
            free_memory()
        try:
            return self._train(command, placement, during)
        except (Exception, SystemExit) as error:
            if not is_out_of_memory(error):
                raise
            has_others = self._models.has_others(origin, placement)
            self._models.clear()
            self._short = True
            if command.gang is not None or not has_others:
                raise
        free_memory()  # of models that are only cached; now the unit has the whole memory
        return self._train(command, placement, during)

    def _train(
        self,
        command: TrainUnit,
        placement: ModelPlacement | None,
        during: Callable[[int], AbstractContextManager[None]],
    ) -> TrainedUnit:
        from hoptree.trainers.base import UnitSpec

        action, partitions = command.action, self._dataset.partitions
        unit = UnitSpec(action.values, action.unit, partitions, action.partition, action.seed, command.shuffle_seed)
        data = self._dataset.partition(action.partition)
        with self._recorder:
            cached = self._models.restore(command.origin, command.source, placement)
            began = time.perf_counter()
            cached.key = ""
            with during(action.run):
                if command.gang is None:
                    self._trainer.train(cached.model, data, unit)
                else:
                    self._trainer.train_together(cached.model, data, unit, command.gang)
            return TrainedUnit(cached, self._trainer.dump(cached.model), began)

    def mark_kept(self, made: TrainedUnit, key: str) -> float:
        """Note that a unit's state was kept under its key, and return the seconds that the unit took."""
        made.cached.key = key
        made.cached.size = made.size
        return time.perf_counter() - made.began

    def evaluate(self, command: TrainUnit, cached: CachedModel) -> StateMetrics:
        """Return the metrics of the unit that was just trained."""
        action = command.action
        values = action.values.at((action.unit + 1) / self._dataset.partitions)
        return self._metrics(action.run, cached.model, values)

    def evaluate_state(self, command: EvaluateState) -> StateMetrics:
        """Return the metrics of a stored state; a model that does not fit is offloaded if that is possible."""
        try:
            return self._evaluate_state(command, None)
        except (Exception, SystemExit) as error:
            if not is_out_of_memory(error) or not has_parts(self._trainer):
                raise
        self._models.clear()
        free_memory()
        return self._evaluate_state(command, offloaded())

    def _evaluate_state(self, command: EvaluateState, placement: ModelPlacement | None) -> StateMetrics:
        with self._recorder:
            cached = self._models.restore(command.origin, command.source, placement)
        return self._metrics(command.action.run, cached.model, command.origin.values)

    def rehearse(self, command: Rehearse, partition: int) -> RehearsalResult | SetupRefused:
        """Try configs until one can be built, trained and evaluated, or one of each kind.

        Probes are compared between runs, so they are returned only if they were computed on the first partition.
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
                found = rehearse_until_passed(*common, command.later, command.changing)
        return found if partition == 0 else msgspec.structs.replace(found, probes=[], parts={})

    def measure(self, command: MeasureBatches) -> BatchesMeasured | SetupRefused:
        """Train some batches of a config, and return what a unit would take."""
        from hoptree.trainers.timing_run import time_batches
        from hoptree.worker.memory import peak_bytes, reset_peak

        try:
            data = self._dataset.partition(0)
        except DataChangedError as error:
            return SetupRefused(str(error))
        reset_peak()
        try:
            with self._recorder:
                found = time_batches(
                    self._trainer, data, command.values, command.examples, command.gang, command.layout
                )
        except (Exception, SystemExit) as error:
            return BatchesMeasured(error=_reason(error), too_large=is_out_of_memory(error))
        kind = self._trainer.device_kind()
        return BatchesMeasured(
            found.seconds, found.examples, peak_bytes(), found.architecture, kind, layouts=found.layouts
        )

    def _metrics(self, run: int, model: Any, values: Mapping[str, Scalar]) -> StateMetrics:
        from hoptree.trainers.plain_numbers import as_number

        began = time.perf_counter()
        with self._recorder:
            metrics = {} if self._valid is None else self._trainer.evaluate(model, self._valid, values)
        seconds = time.perf_counter() - began
        return StateMetrics(run, {name: as_number(name, value) for name, value in metrics.items()}, seconds)


def _placement(command: TrainUnit) -> ModelPlacement | None:
    """Return which part of the model this worker trains; None for the whole model in ordinary memory."""
    from hoptree.core.layouts import DATA, SINGLE, Layout
    from hoptree.trainers.gang import ModelPlacement

    layout, gang = command.action.layout, command.gang
    if layout in (SINGLE, DATA):
        return None
    parsed = Layout.parse(layout)
    if gang is None or parsed.is_whole:
        return ModelPlacement(parsed)
    return ModelPlacement(parsed, gang.rank, gang.size)


def rehearse_until_passed(
    trainer: Trainer,
    configs: Sequence[Mapping[str, Scalar]],
    partition: Callable[[], Columns],
    valid: Columns | None,
    later: Sequence[Mapping[str, Scalar]] = (),
    changing: Sequence[Config] = (),
) -> RehearsalResult:
    """Try configs until one can be built, trained and evaluated; if none can, return the error of each."""
    from hoptree.trainers.changes import change_error
    from hoptree.trainers.errors import LayoutError, NotReproducibleError

    reasons: list[str] = []
    for config, afterwards in zip_longest(configs, later):
        try:
            found = _rehearsed(trainer, config, partition, valid, afterwards)
        except NotReproducibleError as error:
            return RehearsalResult([], reasons, refused=str(error))
        except LayoutError as error:
            return RehearsalResult([], reasons, layout_error=str(error))
        except (Exception, SystemExit) as error:
            reasons.append(_reason(error))
        else:
            return RehearsalResult(
                list(found.metrics),
                [],
                found.seconds,
                found.unread,
                probes=[(dict(config), found.probe)],
                parts=dict(found.parts),
                change_error=change_error(trainer, changing),
                layouts=found.layouts,
            )
    return RehearsalResult([], reasons)


def rehearse_kinds(
    trainer: Trainer,
    configs: Sequence[Mapping[str, Scalar]],
    partition: Callable[[], Columns],
    valid: Columns | None,
    later: Sequence[Mapping[str, Scalar]] = (),
) -> RehearsalResult:
    """Try each config while time permits; ignore those that fail, and refuse one that is not reproducible."""
    from hoptree.trainers.errors import NotReproducibleError

    probes: list[tuple[dict[str, Scalar], str]] = []
    began = time.perf_counter()
    for config, afterwards in zip_longest(configs, later):
        if time.perf_counter() - began > _KINDS:
            break
        try:
            found = _rehearsed(trainer, config, partition, valid, afterwards)
        except NotReproducibleError as error:
            return RehearsalResult([], [], refused=str(error), probes=probes)
        except (Exception, SystemExit):  # noqa: S112 its trial reports it
            continue
        probes.append((dict(config), found.probe))
    return RehearsalResult([], [], probes=probes)


def _rehearsed(
    trainer: Trainer,
    config: Mapping[str, Scalar],
    partition: Callable[[], Columns],
    valid: Columns | None,
    later: Mapping[str, Scalar] | None,
) -> Rehearsal:
    """Rehearse a config; if it is out of memory, rehearse it again with offloaded models, if that is possible."""
    from hoptree.trainers.rehearsal import rehearsed

    try:
        return rehearsed(trainer, config, partition(), valid, later)
    except (Exception, SystemExit) as error:
        if not is_out_of_memory(error) or not has_parts(trainer):
            raise
    free_memory()
    return rehearsed(trainer, config, partition(), valid, later, offloaded())


def failure(run: int, error: Exception | SystemExit) -> WorkerMessage:
    """Return the message that a run has failed; an error of the user's code has the user's own traceback.

    Changed data ends the whole study: results would differ from those that their keys stand for.
    """
    match error:
        case DataChangedError():  # no trial caused it, and none can continue with other data
            return SetupRefused(str(error))
        case LostStateError():
            return RunFailed(run, str(error), "system", lost=True)
        case _ if is_out_of_memory(error):  # also if another worker of its gang was
            return RunFailed(run, _reason(error), "memory", limit=memory_limit(), asked=asked_bytes(error))
        case GangError():
            return RunFailed(run, str(error), "system")
        case SystemExit():
            return RunFailed(
                run, f"{user_traceback(error)}\n\nexit() was called; raise an exception that says why", "user"
            )
        case _:
            return RunFailed(run, _reason(error), "user")


def _reason(error: BaseException) -> str:
    """Return the user's traceback, after a line that says so if there was no memory left."""
    text = user_traceback(error)
    return f"{memory_advice(asked_bytes(error))}\n{text}" if is_out_of_memory(error) else text

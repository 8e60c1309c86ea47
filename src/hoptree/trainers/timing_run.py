"""Timing runs: train a few batches of a config to estimate the time of its units before training."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.lineage import history, segments
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged
from hoptree.trainers.gang import GangMember, ModelPlacement
from hoptree.trainers.layout_options import layout_options

if TYPE_CHECKING:
    from hoptree.data import Dataset

_BATCHES = 3
_REPETITIONS = 3
_LONG_ENOUGH = 0.03  # seconds: measure a shorter time again with more batches


class TimingRun(NamedTuple):
    """The measurements of one config."""

    unit: float  # seconds
    evaluation: float
    state: int  # bytes


def time_configs(
    trainer: Trainer, data: Dataset, configs: Sequence[Mapping[str, Scalar]], *, seconds: float
) -> dict[int, TimingRun]:
    """Time configs, by number, until some seconds have passed; leave out those that cannot be trained.

    The time of the first one does not count towards the limit, because it includes loading libraries and warming
    up.
    """
    found: dict[int, TimingRun] = {}
    began = math.inf
    for number, values in enumerate(configs):
        if time.perf_counter() - began > seconds:
            break
        try:
            found[number] = pilot(trainer, data, values)
        except (Exception, SystemExit):  # noqa: S112 errors of a config are reported when it is its turn
            continue
        began = min(began, time.perf_counter())
    return found


def pilot(trainer: Trainer, data: Dataset, values: Mapping[str, Scalar]) -> TimingRun:
    """Train and evaluate some batches of a config in this process, and extrapolate to a unit."""
    columns, valid = data.partition(0), data.valid()
    model = trainer.build(values, 0)
    spec = _unit_spec(values)
    few = _few(values)
    with suppress(Diverged):
        trainer.train(model, _first(columns, few), spec)  # warm up memory and kernels first
    rows = _rows(columns)
    while True:
        began = time.perf_counter()
        try:
            trainer.train(model, _first(columns, few), spec)
        except Diverged:
            model = trainer.build(values, 0)  # the time is valid all the same
        arrays: dict[str, Any] = trainer.dump(model).arrays
        seconds = time.perf_counter() - began
        if seconds >= _LONG_ENOUGH or few >= rows:
            break
        few *= 2
    evaluation = 0.0 if valid is None else _evaluation(trainer, model, valid, values)
    unit = seconds * max(1.0, rows / few)
    return TimingRun(unit, evaluation, sum(array.nbytes for array in arrays.values()))


class BatchTimes(NamedTuple):
    """What some batches of a config took."""

    seconds: float  # of a unit
    examples: int  # in each repetition
    architecture: dict[str, Scalar]  # the values that it depends on
    layouts: LayoutOptions  # that the model can have


def time_batches(
    trainer: Trainer,
    columns: Columns,
    values: Mapping[str, Scalar],
    examples: int = 0,
    gang: GangMember | None = None,
    layout: str = SINGLE,
) -> BatchTimes:
    """Train batches of ``examples`` in this process, alone or as one of a gang, and extrapolate to a unit.

    With 0 examples, as many are chosen as are needed to measure; all workers of a gang need the same number. The
    least of several times counts, so that other processes disturb little.
    """
    parsed = Layout.parse(layout)
    rank, size = (0, 1) if gang is None or parsed.is_whole else (gang.rank, gang.size)

    def build() -> Any:
        if layout in (SINGLE, DATA):
            return trainer.build(values, 0)
        return trainer.build_part(values, 0, ModelPlacement(parsed, rank, size))

    model = build()
    spec = _unit_spec(values)
    rows = _rows(columns)

    def train(few: int) -> float:
        nonlocal model
        began = time.perf_counter()
        try:
            if gang is None:
                trainer.train(model, _first(columns, few), spec)
            else:
                trainer.train_together(model, _first(columns, few), spec, gang)
        except Diverged:
            if gang is not None:  # which is no longer connected
                raise
            model = build()  # the time is valid all the same
        if gang is None or not gang.rank:
            trainer.dump(model)
        return time.perf_counter() - began

    few = examples or _few(values)
    train(few)  # warm up memory, kernels and connections first
    while not examples and few < rows and train(few) < _LONG_ENOUGH:
        few *= 2
    seconds = min(train(few) for _ in range(_REPETITIONS))
    options = layout_options(trainer, model, values)
    return BatchTimes(seconds * max(1.0, rows / few), few, trainer.architecture(model, values), options)


def _unit_spec(values: Mapping[str, Scalar]) -> UnitSpec:
    whole = segments(history(dict(values)), partitions=1, units=1)[0].values
    return UnitSpec(whole, unit=0, partitions=1, partition=0, seed=0, shuffle_seed=0)


def _few(values: Mapping[str, Scalar]) -> int:
    size = values.get("batch_size")
    return _BATCHES * (size if isinstance(size, int) and size > 0 else 64)


def _evaluation(trainer: Trainer, model: Any, valid: Columns, values: Mapping[str, Scalar]) -> float:
    rows, few = _rows(valid), 256
    trainer.evaluate(model, _first(valid, few), values)
    while True:
        began = time.perf_counter()
        trainer.evaluate(model, _first(valid, few), values)
        seconds = time.perf_counter() - began
        if seconds >= _LONG_ENOUGH or few >= rows:
            return seconds * rows / min(few, rows)
        few *= 2


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _first(columns: Columns, rows: int) -> Columns:
    return {name: column[:rows] for name, column in columns.items()}

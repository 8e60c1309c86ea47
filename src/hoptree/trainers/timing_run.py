"""Timing runs: train a few batches of a config to estimate the time of its units."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.lineage import history, segments
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged
from hoptree.trainers.gang import GangMember, ModelPlacement
from hoptree.trainers.layout_options import layout_options

_BATCHES = 3
_REPETITIONS = 3
_SLOW = 0.3  # seconds of a few batches, beyond which they are not trained twice
_LONG_ENOUGH = 0.03  # seconds: measure a shorter time again with more batches


class FirstLook(NamedTuple):
    """What a few batches of a config have shown, roughly."""

    row_seconds: float  # of training one example
    names: frozenset[str]  # the values that times depend on


def first_look(trainer: Trainer, columns: Columns, values: Mapping[str, Scalar]) -> FirstLook:
    """Train a few batches of a config in this process."""
    model = trainer.build(values, 0)
    spec, few = _unit_spec(values), _few(values)

    def train() -> float:
        began = time.perf_counter()
        with suppress(Diverged):  # the time is valid all the same
            trainer.train(model, _first(columns, few), spec)
        return time.perf_counter() - began

    seconds = train()
    if seconds < _SLOW:
        seconds = train()  # without what happens only once
    return FirstLook(seconds / min(few, _rows(columns)), frozenset(trainer.architecture(model, values)))


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


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _first(columns: Columns, rows: int) -> Columns:
    return {name: column[:rows] for name, column in columns.items()}

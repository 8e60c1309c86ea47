"""A rehearsal: what can fail in the user's code fails before anything is scheduled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from hoptree.core.lineage import history, segments
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged

EXAMPLES = 8  # enough for batch normalisation, few enough to take no time


def rehearse(
    trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None
) -> tuple[str, ...]:
    """Build, train and evaluate once on a few examples, and return the names of the metrics.

    Raises what the real run would raise for these values; a loss that is not a number is no such mistake, since
    it ends one trial only.
    """
    return rehearsed(trainer, values, train, valid).metrics


class Rehearsal(NamedTuple):
    """What a rehearsal showed; ``seconds`` is what a pass over all of the partition would take at that pace."""

    metrics: tuple[str, ...]
    seconds: float
    unread: list[str]


def rehearsed(trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None) -> Rehearsal:
    """Rehearse, and return all that it showed."""
    model = trainer.build(values, 0)
    trainer.load(model, trainer.dump(model))
    whole = segments(history(dict(values)), partitions=1, units=1)[0].values
    unit = UnitSpec(whole, unit=0, partitions=1, partition=0, seed=0, shuffle_seed=0)
    began = time.perf_counter()
    try:
        trainer.train(model, {name: column[:EXAMPLES] for name, column in train.items()}, unit)
    except Diverged:
        model = trainer.build(values, 0)
    rows = len(next(iter(train.values())))
    seconds = (time.perf_counter() - began) * max(1.0, rows / EXAMPLES)
    few = {name: column[:EXAMPLES] for name, column in (valid or {}).items()}
    metrics = tuple(trainer.evaluate(model, few, values)) if valid is not None else ()
    trainer.examine(model, train)
    return Rehearsal(metrics, seconds, trainer.unread(model, values))

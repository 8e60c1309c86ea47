"""A rehearsal: what can fail in the user's code fails before anything is scheduled."""

from __future__ import annotations

import time
from collections.abc import Mapping

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
    return rehearse_timed(trainer, values, train, valid)[0]


def rehearse_timed(
    trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None
) -> tuple[tuple[str, ...], float]:
    """Rehearse, and return also what a pass over all of ``train`` would take at that pace."""
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
    if valid is None:
        return (), seconds
    few = {name: column[:EXAMPLES] for name, column in valid.items()}
    return tuple(trainer.evaluate(model, few, values)), seconds

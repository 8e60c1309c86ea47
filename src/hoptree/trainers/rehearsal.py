"""A rehearsal: what can fail in the user's code fails before anything is scheduled."""

from __future__ import annotations

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
    model = trainer.build(values, 0)
    trainer.load(model, trainer.dump(model))
    whole = segments(history(dict(values)), partitions=1, units=1)[0].values
    unit = UnitSpec(whole, unit=0, partitions=1, partition=0, seed=0, shuffle_seed=0)
    try:
        trainer.train(model, {name: column[:EXAMPLES] for name, column in train.items()}, unit)
    except Diverged:
        model = trainer.build(values, 0)
    if valid is None:
        return ()
    return tuple(trainer.evaluate(model, {name: column[:EXAMPLES] for name, column in valid.items()}, values))

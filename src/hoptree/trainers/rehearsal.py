"""A rehearsal: what can fail in the user's code fails before anything is scheduled.

It is three things at once, with the same steps: a try, the hop test, and the probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, Trainer
from hoptree.trainers.hop_test import HopTest
from hoptree.trainers.probe import ProbeSteps, reference


def rehearse(
    trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None
) -> tuple[str, ...]:
    """Build, train and evaluate on a few examples, and return the names of the metrics.

    Raises what the real run would raise for these values, and ``NotReproducibleError`` for what would give other
    bits elsewhere; a loss that is not a number is no such mistake, since it ends one trial only.
    """
    return rehearsed(trainer, values, train, valid).metrics


class Rehearsal(NamedTuple):
    """What a rehearsal showed; ``seconds`` is what a pass over all of the partition would take at that pace.

    ``probe`` is a hash of what came out: the same wherever the same code is given the same data and values.
    """

    metrics: tuple[str, ...]
    seconds: float
    unread: list[str]
    probe: str
    parts: Mapping[str, str]  # of the probe, by name


def rehearsed(
    trainer: Trainer,
    values: Mapping[str, Scalar],
    train: Columns,
    valid: Columns | None,
    later: Mapping[str, Scalar] | None = None,
) -> Rehearsal:
    """Rehearse, and return all that it showed; ``later`` are the values that a schedule comes to."""
    steps = ProbeSteps(trainer, train, valid)
    found = reference(trainer, steps, values)
    rows = len(next(iter(train.values())))
    seconds = found.seconds * max(1.0, rows / steps.examples(values))
    unread = trainer.unread(found.model, values)
    HopTest(trainer, steps, values, found).run(later)
    trainer.examine(found.model, train)
    return Rehearsal(tuple(found.metrics), seconds, unread, found.probe, found.parts)

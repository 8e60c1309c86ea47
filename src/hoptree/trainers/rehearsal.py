"""The rehearsal: make mistakes in the user's code fail before anything is scheduled.

One sequence of steps serves three purposes: a trial run, the hop test, and the probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, Trainer
from hoptree.trainers.gang import ModelPlacement
from hoptree.trainers.hop_test import HopTest
from hoptree.trainers.layout_options import layout_options
from hoptree.trainers.probe import ProbeSteps, reference


def rehearse(
    trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None
) -> tuple[str, ...]:
    """Build, train and evaluate on a few examples, and return the names of the metrics.

    Raises the errors of the real run for these values, and ``NotReproducibleError`` if bits would differ elsewhere.
    A loss that is not finite is not an error here, because it ends only one trial.
    """
    return rehearsed(trainer, values, train, valid).metrics


class Rehearsal(NamedTuple):
    """The result of a rehearsal; ``seconds`` extrapolates to a pass over the whole partition.

    ``probe`` is a hash of the results: the same wherever the same code gets the same data and values.
    """

    metrics: tuple[str, ...]
    seconds: float
    unread: list[str]
    probe: str
    parts: Mapping[str, str]  # of the probe, by name
    layouts: LayoutOptions


def rehearsed(
    trainer: Trainer,
    values: Mapping[str, Scalar],
    train: Columns,
    valid: Columns | None,
    later: Mapping[str, Scalar] | None = None,
    placement: ModelPlacement | None = None,
) -> Rehearsal:
    """Rehearse, and return all results; ``later`` are the values that a schedule reaches later.

    With a ``placement`` all models are built so; their bits are the same.
    """
    steps = ProbeSteps(trainer, train, valid, placement)
    found = reference(trainer, steps, values)
    rows = len(next(iter(train.values())))
    seconds = found.seconds * max(1.0, rows / steps.examples(values))
    unread = trainer.unread(found.model, values)
    layouts = layout_options(trainer, found.model, values)
    HopTest(trainer, steps, values, found).run(later)
    trainer.examine(found.model, train)
    return Rehearsal(tuple(found.metrics), seconds, unread, found.probe, found.parts, layouts)

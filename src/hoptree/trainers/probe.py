"""The probe: a hash of a few training steps on a fixed slice of the data, with fixed seeds.

It depends only on the user's code, the data and the machine: not on the study's seed, the lineage, the time or the
number of workers. So if two probes of the same values differ, something has changed that fingerprints do not see.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from hoptree.core.lineage import history, segments
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged
from hoptree.trainers.gang import ModelPlacement
from hoptree.trainers.state_digests import Digests, combined, copy_state, digests, metric_digests

SEED = 0
OTHER_SEED = 1
_EXAMPLES = 64  # per unit, and for evaluation
_FEW = 8  # if the model or the examples are large: enough for batch normalization
_BATCHES = 3
_LARGE_STATE = 16 << 20  # bytes of an untrained model
_LARGE_SLICE = 8 << 20  # bytes of examples
_BATCH = 32  # examples, if the values do not say


@final
class ProbeSteps:
    """The units that a rehearsal trains: each a pass over a few batches, the same in every process.

    Their number of examples depends on the values and on sizes, never on the clock: otherwise the probe would
    change with the speed of the machine.
    """

    def __init__(
        self, trainer: Trainer, train: Columns, valid: Columns | None, placement: ModelPlacement | None = None
    ) -> None:
        self._placement = placement
        self._trainer = trainer
        self._train = train
        self._valid = valid
        self._most = _EXAMPLES

    def build(self, values: Mapping[str, Scalar], seed: int = SEED) -> Any:
        """Return an untrained model."""
        if self._placement is not None:
            return self._trainer.build_part(dict(values), seed, self._placement)
        return self._trainer.build(dict(values), seed)

    def copy(self, state: ModelState) -> ModelState:
        """Return a copy of a state; outside memory if the models are, too."""
        return copy_state(state, mapped=self._placement is not None)

    def fit(self, state: ModelState) -> None:
        """Use fewer examples if the model or the examples are large."""
        row = sum(column[:1].nbytes for column in self._train.values())
        if sum(array.nbytes for array in state.arrays.values()) > _LARGE_STATE:
            self._most = _FEW
        elif row * _EXAMPLES > _LARGE_SLICE:
            self._most = max(_FEW, _LARGE_SLICE // row)

    def train(self, model: Any, values: Mapping[str, Scalar], number: int, seed: int = SEED) -> bool:
        """Train a unit; return whether the loss stayed finite."""
        unit = UnitSpec(
            segments(history(dict(values)), partitions=1, units=1)[0].values,
            unit=number,
            partitions=1,
            partition=0,
            seed=1000 * seed + number,
            shuffle_seed=1000 * seed + number,
        )
        try:
            self._trainer.train(model, _first(self._train, self.examples(values)), unit)
        except Diverged:
            return False
        return True

    def evaluate(self, model: Any, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Return the metrics; empty without validation data."""
        if self._valid is None:
            return {}
        return self._trainer.evaluate(model, _first(self._valid, self._most), dict(values))

    def examples(self, values: Mapping[str, Scalar]) -> int:
        """Return the number of examples of a unit: whole batches, because a last batch of one may fail to train.

        >>> steps = ProbeSteps(None, {}, None)
        >>> [steps.examples({"batch_size": size}) for size in (1, 16, 30, 64, 500)]
        [8, 48, 60, 64, 64]
        """
        given = values.get("batch_size", _BATCH)
        size = round(given) if isinstance(given, int | float) and not isinstance(given, bool) and given >= 1 else 1
        if size >= self._most:
            return self._most
        batches = max(_BATCHES, -(-_FEW // size))
        return size * max(1, min(batches, self._most // size))


class ProbeReference(NamedTuple):
    """The results of the first run of the steps, for the hop test and the probe."""

    model: Any
    built: Digests
    state: ModelState | None  # after the first unit; None: its loss was not finite
    first: Digests
    contents: Mapping[str, str]  # digests of the model object's contents after the first unit
    second: Digests  # after the second unit; empty: its loss was not finite
    metrics: dict[str, float]
    seconds: float  # of the first unit, including everything that is loaded when code runs for the first time
    warm_seconds: float  # of the second unit
    bytes: int

    @property
    def probe(self) -> str:
        """The hash of the states, their JSON and the metrics."""
        return combined(self._steps)

    @property
    def parts(self) -> Mapping[str, str]:
        """Short digests of the parts of the probe, by name, in the order of the steps."""
        return {
            f"{name} ({step})": digest[:8] for step, part in self._steps.items() for name, digest in part.items()
        }

    @property
    def _steps(self) -> dict[str, Digests]:
        steps = {"untrained": self.built, "after a unit": self.first, "after two units": self.second}
        return steps | {"evaluated": metric_digests(self.metrics)}


def reference(trainer: Trainer, steps: ProbeSteps, values: Mapping[str, Scalar]) -> ProbeReference:
    """Build a model, train two units and evaluate; a loss that is not finite ends the steps without an error."""
    model = steps.build(values)
    untrained = trainer.dump(model)
    built, size = digests(untrained), sum(array.nbytes for array in untrained.arrays.values())
    steps.fit(untrained)
    trainer.load(model, steps.copy(untrained))
    began = time.perf_counter()
    state, contents, first, second = None, {}, {}, {}
    finite = steps.train(model, values, 0)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    if finite:
        state = steps.copy(trainer.dump(model))
        first = digests(state)
        contents = dict(trainer.hidden_state(model))
        began = time.perf_counter()
        finite = steps.train(model, values, 1)
        if finite:
            second = digests(trainer.dump(model))
    warm = time.perf_counter() - began
    if not finite:
        model = steps.build(values)
    metrics = steps.evaluate(model, values)
    return ProbeReference(model, built, state, first, contents, second, metrics, seconds, warm, size)


def probe(trainer: Trainer, values: Mapping[str, Scalar], train: Columns, valid: Columns | None) -> str:
    """Return the probe of some values."""
    return reference(trainer, ProbeSteps(trainer, train, valid), values).probe


def _first(columns: Columns, rows: int) -> Columns:
    return {name: column[:rows] for name, column in columns.items()}

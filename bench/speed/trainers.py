"""Trainers that train nothing: what is left is Hoptree's own time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np

import hoptree as ht
from hoptree.trainers.base import Columns, ModelState, UnitSpec


def stamp(path: Path) -> None:
    """Write the time into a file, unless it exists."""
    now = time.time()
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, str(now).encode())
        os.close(descriptor)


@final
class Empty(ht.Trainer):
    """A model of one small array, trained by doing nothing."""

    fingerprint = "empty"

    def __init__(self, first: Path) -> None:
        self._first: Path | None = first

    def build(self, values: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
        """Return the array."""
        return {"weights": np.zeros(256, np.float32)}

    def train(self, model: dict[str, np.ndarray], data: Columns, unit: UnitSpec) -> None:
        """Say when the first unit started, in every worker once."""
        if self._first is not None and unit.partitions > 1:  # a rehearsal has one
            stamp(self._first)
            self._first = None

    def evaluate(self, model: dict[str, np.ndarray], data: Columns, values: Mapping[str, Any]) -> dict[str, float]:
        """Return a metric, since a study has a goal."""
        return {"loss": 0.0}

    def dump(self, model: dict[str, np.ndarray]) -> ModelState:
        """Return the array itself."""
        return ModelState(dict(model), {})

    def load(self, model: dict[str, np.ndarray], state: ModelState) -> None:
        """Copy the array."""
        np.copyto(model["weights"], state.arrays["weights"])


@final
class Stamped(ht.Trainer):
    """Another trainer up to the moment when its first unit would train."""

    def __init__(self, trainer: ht.Trainer, first: Path) -> None:
        self._trainer = trainer
        self._first = first

    @property
    def fingerprint(self) -> str:
        """The other's."""
        return self._trainer.fingerprint

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        """Build as the other does."""
        return self._trainer.build(values, seed)

    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        """Say when the first unit started."""
        if unit.partitions > 1:  # a rehearsal has one
            stamp(self._first)

    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Any]) -> dict[str, float]:
        """Evaluate as the other does."""
        return self._trainer.evaluate(model, data, values)

    def dump(self, model: Any) -> ModelState:
        """Dump as the other does."""
        return self._trainer.dump(model)

    def load(self, model: Any, state: ModelState) -> None:
        """Load as the other does."""
        self._trainer.load(model, state)

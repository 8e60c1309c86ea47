"""A trainer that does little but touch all its data, with a state of any size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, final

import numpy as np

import hoptree as ht
from hoptree.trainers.base import Columns, ModelState, UnitSpec


@final
class Pass(ht.Trainer):
    """Sums each column, so that all of a partition is read; its state is so many bytes of weights."""

    fingerprint = "pass"

    def __init__(self, size: int, nap: float = 0.0) -> None:
        self._size = size
        self._nap = nap

    def build(self, values: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
        """Return weights of no meaning."""
        return {"weights": np.full(self._size // 4, seed % 1000, np.float32)}

    def train(self, model: dict[str, np.ndarray], data: Columns, unit: UnitSpec) -> None:
        """Read everything once, and take as long as a unit should."""
        time.sleep(self._nap)
        model["weights"] += np.float32(sum(float(column.sum(dtype=np.float64)) for column in data.values()))

    def evaluate(self, model: dict[str, np.ndarray], data: Columns, values: Mapping[str, Any]) -> dict[str, float]:
        """Return a metric, since a study has a goal."""
        return {"loss": float(model["weights"][0])}

    def dump(self, model: dict[str, np.ndarray]) -> ModelState:
        """Return the weights themselves."""
        return ModelState(dict(model), {})

    def load(self, model: dict[str, np.ndarray], state: ModelState) -> None:
        """Copy the weights."""
        np.copyto(model["weights"], state.arrays["weights"])

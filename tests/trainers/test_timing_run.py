"""A look at a few batches says how long a row takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged
from hoptree.trainers.timing_run import first_look


class Clockwork(Trainer):
    """Takes a fixed time for every row, on its own clock."""

    fingerprint = "clockwork"

    def __init__(self) -> None:
        self.now = 0.0

    def build(self, values: Mapping[str, Scalar], seed: int) -> Any:
        if values["row"] == "never":
            raise ValueError("cannot be built")
        return dict(values)

    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        self.now += model["row"] * len(data["x"])
        if model.get("diverges"):
            raise Diverged("nan")

    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        self.now += model["row"] * len(data["x"]) / 2
        return {"loss": 0.0}

    def dump(self, model: Any) -> ModelState:
        return ModelState({"w": np.zeros(10, np.float32)}, {})

    def load(self, model: Any, state: ModelState) -> None:
        pass


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Clockwork:
    trainer = Clockwork()
    monkeypatch.setattr(time, "perf_counter", lambda: trainer.now)
    return trainer


ROWS = {"x": np.zeros((800, 1), np.float32)}


@pytest.mark.parametrize("row", [1e-6, 1e-5, 1e-3, 1.0])
def test_a_look_at_a_few_batches_says_how_long_a_row_takes_and_what_matters(trainer: Clockwork, row: float) -> None:
    found = first_look(trainer, ROWS, {"row": row, "batch_size": 16})
    assert found.row_seconds == pytest.approx(row)
    assert found.names == {"row", "batch_size"}


def test_slow_batches_are_trained_once_and_others_again_when_they_are_warm(trainer: Clockwork) -> None:
    first_look(trainer, ROWS, {"row": 1.0, "batch_size": 16})
    assert trainer.now == pytest.approx(48.0)
    trainer.now = 0.0
    first_look(trainer, ROWS, {"row": 1e-6, "batch_size": 16})
    assert trainer.now == pytest.approx(96e-6)


def test_the_time_of_a_config_that_diverges_is_valid(trainer: Clockwork) -> None:
    assert first_look(trainer, ROWS, {"row": 1e-3, "diverges": True}).row_seconds == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="cannot be built"):
        first_look(trainer, ROWS, {"row": "never"})

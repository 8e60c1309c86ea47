"""A timing run extrapolates from some rows to all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged
from hoptree.trainers.timing_run import pilot, time_configs


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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ht.Dataset:
    folder: Path = tmp_path_factory.mktemp("pilot") / "data"
    return ht.Dataset.from_arrays(x=np.zeros((2000, 1), np.float32), partitions=2, valid=0.2, to=folder)


@pytest.mark.parametrize("row", [1e-6, 1e-5, 5e-5, 1e-4, 1e-3, 1.0])
def test_all_rows_take_what_some_take_times_how_many_more_they_are(
    trainer: Clockwork, data: ht.Dataset, row: float
) -> None:
    found = pilot(trainer, data, {"row": row, "batch_size": 16})
    assert found.unit == pytest.approx(row * 800)
    assert found.evaluation == pytest.approx(row * 200)
    assert found.state == 40


def test_diverging_configs_are_timed_and_configs_that_cannot_be_built_are_left_out(
    trainer: Clockwork, data: ht.Dataset
) -> None:
    configs: list[dict[str, Scalar]] = [{"row": "never"}, {"row": 1e-4}, {"row": 1e-3, "diverges": True}]
    found = time_configs(trainer, data, configs, seconds=60.0)
    assert {number: pytest.approx(each.unit) for number, each in found.items()} == {1: 0.08, 2: 0.8}


def test_the_first_is_always_tried_and_others_while_there_is_time(trainer: Clockwork, data: ht.Dataset) -> None:
    assert list(time_configs(trainer, data, [{"row": 1.0}] * 4, seconds=100.0)) == [0, 1]

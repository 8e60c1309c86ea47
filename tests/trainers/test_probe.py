"""A probe is equal if and only if code, data and values are equal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import hoptree as ht
from hoptree.trainers.probe import ProbeSteps, probe, reference
from tests.trainers import digits
from tests.trainers.digits import partition

VALUES = {"lr": 0.1, "batch_size": 16, "momentum": 0.9, "weight_decay": 0.01, "dropout": 0.2}
PROGRAM = "from tests.trainers.test_probe import VALUES, probed; print(probed(VALUES))"


def probed(values: Any, data: Any = None, valid: Any = None, **options: Any) -> str:
    settings = {"loss": nn.functional.cross_entropy, "optimizer": "sgd", **options}
    return probe(ht.Torch(digits.mlp, **settings), values, data or partition(0), valid or partition(-1))


@pytest.mark.slow
def test_it_is_the_same_in_other_processes() -> None:
    found = {probed(VALUES), probed(VALUES)}
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1


def test_it_does_not_depend_on_how_long_anything_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = probed(VALUES)
    now = [0.0]

    def slow() -> float:
        now[0] += 100.0
        return now[0]

    monkeypatch.setattr(time, "perf_counter", slow)
    assert probed(VALUES) == quick


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.1000001},
        {"momentum": 0.91},
        {"weight_decay": 0.011},
        {"dropout": 0.21},
        {"batch_size": 15},
        {"nesterov": True},
        {"dampening": 0.1},
    ],
)
def test_every_value_shows(change: dict[str, Any]) -> None:
    assert probed({**VALUES, **change}) != probed(VALUES)


@pytest.mark.parametrize("change", [{"clip": 0.1}, {"accumulate": 2}, {"optimizer": "rmsprop"}])
def test_settings_show(change: dict[str, Any]) -> None:
    assert probed(VALUES, **change) != probed(VALUES)


def test_the_data_shows_and_only_its_first_rows() -> None:
    data = {name: column.copy() for name, column in partition(0).items()}
    assert probed(VALUES, data) == probed(VALUES)
    data["x"][-1] += 1
    assert probed(VALUES, data) == probed(VALUES)
    data["x"][0, 5] += 1
    assert probed(VALUES, data) != probed(VALUES)


def test_a_metric_shows() -> None:
    half = probed(VALUES, metrics={"m": lambda output, target: output.mean() / 2})
    whole = probed(VALUES, metrics={"m": lambda output, target: output.mean()})
    assert half != whole


def test_a_loss_that_is_no_number_has_a_probe_too() -> None:
    wild = {**VALUES, "lr": 1e30}
    assert probed(wild) == probed(wild)


@pytest.mark.parametrize("size", [1, 3, 7, 16, 30, 33, 64, 65, 1000])
def test_units_have_whole_batches_and_some_steps(size: int) -> None:
    rows = ProbeSteps(ht.Torch(digits.mlp, loss=nn.functional.cross_entropy), {}, None).examples(
        {"batch_size": size}
    )
    assert 8 <= rows <= 64
    assert size > 64 or rows % size == 0


def test_large_models_take_few_examples() -> None:
    trainer = ht.Torch(
        lambda hp: nn.Sequential(nn.Linear(64, 40_000), nn.Linear(40_000, 60)), loss=nn.functional.cross_entropy
    )
    steps = ProbeSteps(trainer, partition(0), None)
    assert steps.examples({}) == 64
    reference(trainer, steps, {"lr": 0.1})
    assert steps.examples({}) == 8

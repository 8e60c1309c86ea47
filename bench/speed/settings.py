"""W1 in numbers, without torch: a program that does not train need not wait for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
WEIGHT_DECAYS = (0.0, 1e-4)
CONFIGS = tuple({"lr": lr, "weight_decay": decay} for lr, decay in product(LEARNING_RATES, WEIGHT_DECAYS))
BATCH = 256  # of training, and of evaluation, where Hoptree fixes it
EPOCHS = 3
PARTITIONS = 4
WORKERS = 2

COLUMNS = ("x", "y", "test_x", "test_y")
ARRAYS = "arrays"  # in the folder of data: what all but Hoptree load, a file per column
DATASET = "dataset"  # and what Hoptree opens


def load(data: Path) -> list[np.ndarray]:
    """Read all columns into memory."""
    return [np.load(data / ARRAYS / f"{column}.npy") for column in COLUMNS]


def label(config: Mapping[str, Any]) -> str:
    """Name a config in the results."""
    return f"lr={config['lr']:g} weight_decay={config['weight_decay']:g}"


def finish(out: Path, accuracies: Mapping[str, float], **more: float) -> None:
    """Leave what the harness reads: the accuracies show that the work was done."""
    (out / "result.json").write_text(json.dumps({"accuracies": dict(accuracies), **more}))

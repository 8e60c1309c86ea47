"""Fashion-MNIST made small: ``python -m bench.sharing.data FOLDER ROWS VALID``, a sample of images of 14 x 14.

The same numbers in two forms: a dataset folder for Hoptree, arrays for Ray Tune.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import hoptree as ht
from bench.sharing.spaces import PARTITIONS
from bench.speed.data import installed, read
from bench.speed.settings import ARRAYS, COLUMNS, DATASET


def prepare(folder: Path, rows: int, valid: int) -> None:
    """Write both forms; samples are the first rows of the training and of the test data."""
    columns = read(installed())
    for prefix, count in (("", rows), ("test_", valid)):
        columns[f"{prefix}x"] = _smaller(columns[f"{prefix}x"][:count])
        columns[f"{prefix}y"] = columns[f"{prefix}y"][:count]
    (folder / ARRAYS).mkdir(parents=True)
    for name in COLUMNS:
        np.save(folder / ARRAYS / f"{name}.npy", columns[name])
    test = {"x": columns["test_x"], "y": columns["test_y"]}
    ht.Dataset.from_arrays(x=columns["x"], y=columns["y"], partitions=PARTITIONS, valid=test, to=folder / DATASET)


def _smaller(images: np.ndarray) -> np.ndarray:
    """Return images of 28 x 28 with every four points made one."""
    return images.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5), dtype=np.float32)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

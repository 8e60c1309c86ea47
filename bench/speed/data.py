"""The data of W1, prepared once before the contest: ``python -m bench.speed.data arrays|dataset FOLDER``.

Both forms come from the same files of Debian's package, and both preparations are timed as programs of their own.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.speed.settings import ARRAYS, DATASET, PARTITIONS

PACKAGE = "dataset-fashion-mnist"
FORMS = (ARRAYS, DATASET)


def installed() -> Path:
    """Return the folder of Debian's files."""
    if not (found := _files()):
        sys.exit(f"Fashion-MNIST is needed and not installed: make services, or Debian's package {PACKAGE}")
    return Path(found[0]).parent


def _files() -> list[str]:
    listed = subprocess.run(["dpkg", "-L", PACKAGE], capture_output=True, text=True, check=False).stdout
    return [line for line in listed.splitlines() if line.endswith("-ubyte.gz")]


def read(folder: Path) -> dict[str, np.ndarray]:
    """Return images as float32 between 0 and 1, and labels as int64, scaled once for everybody."""

    def unpacked(name: str, header: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header)

    columns = {}
    for kind, prefix in (("train", ""), ("t10k", "test_")):
        images = unpacked(f"{kind}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        columns[f"{prefix}x"] = images.astype(np.float32) / np.float32(255)
        columns[f"{prefix}y"] = unpacked(f"{kind}-labels-idx1-ubyte.gz", 8).astype(np.int64)
    return columns


def prepare(form: str, folder: Path) -> None:
    """Write one form of the data."""
    columns = read(installed())
    if form == ARRAYS:
        (folder / ARRAYS).mkdir()
        for name, column in columns.items():
            np.save(folder / ARRAYS / f"{name}.npy", column)
        return
    import hoptree as ht

    valid = {"x": columns["test_x"], "y": columns["test_y"]}
    ht.Dataset.from_arrays(x=columns["x"], y=columns["y"], partitions=PARTITIONS, valid=valid, to=folder / DATASET)


if __name__ == "__main__":
    prepare(sys.argv[1], Path(sys.argv[2]))

"""A study of a net that is larger than the memory of a worker."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import hoptree as ht

PEAK = "HOPTREE_TEST_PEAK"  # names a folder: the memory of each process, whenever it computes a loss


def net(hp: Any) -> nn.Module:
    """Return a sequence of square layers."""
    width = hp["width"]
    layers = [layer for _ in range(hp["layers"]) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(16, width), *layers, nn.Linear(width, 2))


def loss(output: Any, target: Any) -> Any:
    """Compute the loss, and note how much private memory the process has in use."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found and PEAK in os.environ:
        with (Path(os.environ[PEAK]) / str(os.getpid())).open("a") as file:
            file.write(f"{found.group(1)}\n")
    return nn.functional.cross_entropy(output, target)


def peak(folder: Path) -> int:
    """Return the most memory in bytes of any process."""
    return max(1024 * int(line) for file in folder.iterdir() for line in file.read_text().split())


def study(
    folder: Path, layers: int, *, width: int = 1024, optimizer: str = "sgd", shards: int = 2, **options: Any
) -> ht.Study:
    rng = np.random.default_rng(0)
    x = rng.random((40, 16), dtype=np.float32)
    return ht.Study(
        "large",
        trainer=ht.Torch(net, loss=loss, optimizer=optimizer, shards=shards, **options),
        data=ht.Dataset.from_arrays(
            x=x, y=(x[:, 0] > 0.5).astype(np.int64), partitions=1, valid=0.2, to=folder / "data"
        ),
        space={"layers": layers, "width": width, "lr": 0.01, "batch_size": 16},
        search=ht.Grid(epochs=1),
        minimize="loss",
        store=folder / "store",
    )

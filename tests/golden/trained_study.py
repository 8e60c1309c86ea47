"""A study whose fingerprints are pinned: two trials, two epochs, two partitions, one thread.

All numbers are small multiples of powers of two, so that float32 holds every sum and product exactly, in any order
and with any instructions of the processor. The bits follow from our keys and from three libraries: torch's
generator on the CPU (``randint``), numpy's PCG64 (``permutation``), and pyarrow, which lays the data out in files
whose checksums are part of the data's fingerprint. The trainer's own fingerprint is fixed here, as it covers the
versions of Python and torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

import hoptree as ht


class Exact(nn.Module):
    """A linear model of whole numbers that drops half of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-4, 5, (3,)).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x * torch.randint(0, 2, x.shape) if self.training else x
        return (kept * self.weight).sum(1)


def loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((output - y) ** 2).sum() / 2


class Pinned(ht.Trainer):
    """Torch under a fingerprint that is the same with every version of Python and torch."""

    def __init__(self) -> None:
        self._torch = ht.Torch(lambda hp: Exact(), loss=loss, optimizer="sgd")

    @property
    def fingerprint(self) -> str:
        return "a trainer that is pinned"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        return self._torch.build(values, seed)

    def train(self, model: Any, data: Any, unit: Any) -> None:
        self._torch.train(model, data, unit)

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        return self._torch.evaluate(model, data, values)

    def dump(self, model: Any) -> Any:
        return self._torch.dump(model)

    def load(self, model: Any, state: Any) -> None:
        self._torch.load(model, state)

    def export(self, model: Any) -> Any:
        return self._torch.export(model)


def main() -> None:
    numbers = np.arange(8)
    x = np.stack([numbers % 3 - 1, numbers // 3 - 1, (numbers * 5) % 3 - 1], axis=1).astype(np.float32)
    y = (numbers % 4 - 2).astype(np.float32)
    study = ht.Study(
        "pinned",
        trainer=Pinned(),
        data=ht.Dataset.from_arrays(x=x, y=y, partitions=2, valid={"x": x, "y": y}),
        space={"lr": ht.choice(0.5, ht.multistep(0.5, at=[1.25], gamma=2.0)), "batch_size": 1},
        search=ht.Grid(epochs=2),
        minimize="loss",
        seed=7,
    )
    results = study.run(workers=1, quiet=True)
    print(
        json.dumps(
            {
                "versions": {name: version(name) for name in ("numpy", "pyarrow", "torch")},
                "data": study.data.fingerprint,
                "root": study.spec.root,
                "weights": [trial.load().weight.tolist() for trial in results.trials],
                "fingerprints": [trial.fingerprint for trial in results.trials],
            }
        )
    )


if __name__ == "__main__":
    main()

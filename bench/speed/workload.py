"""W1 in torch: the model, and the loop by hand that the bare bound, Ray Tune and Optuna run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bench.speed import settings

Report = Callable[[float, float], None]  # loss and accuracy on the test images


class Data(NamedTuple):
    """Images scaled to 0…1 as float32, labels as int64: the same numbers for everybody."""

    x: torch.Tensor
    y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    @classmethod
    def of(cls, arrays: list[np.ndarray]) -> Data:
        """Wrap arrays in tensors, without a copy."""
        return cls(*map(torch.from_numpy, arrays))

    @classmethod
    def load(cls, folder: Path) -> Data:
        """Read the tensors into memory."""
        return cls.of(settings.load(folder))


def net(_: Any = None) -> nn.Module:
    """Return the MLP; Hoptree passes its values, which do not matter here."""
    return nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 10))


def adam(model: nn.Module, config: Mapping[str, float]) -> torch.optim.Adam:
    """Return the optimizer: fused, as Hoptree's is, so that all do the same numeric work."""
    options = {"lr": config["lr"], "weight_decay": config["weight_decay"], "fused": True}
    return torch.optim.Adam(model.parameters(), **options)


def train(data: Data, config: Mapping[str, float], report: Report | None = None) -> float:
    """Train one config over tensors in memory, and return its last accuracy."""
    torch.manual_seed(0)
    model = net()
    optimizer = adam(model, config)
    accuracy = 0.0
    for _ in range(settings.EPOCHS):
        for chosen in torch.randperm(len(data.x)).split(settings.BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(data.x.index_select(0, chosen)), data.y.index_select(0, chosen))
            loss.backward()
            optimizer.step()
        loss, accuracy = evaluate(model, data)
        if report is not None:
            report(loss, accuracy)
    return accuracy


def evaluate(model: nn.Module, data: Data) -> tuple[float, float]:
    """Return loss and accuracy over the test images."""
    with torch.no_grad():
        output = torch.cat([model(part) for part in data.test_x.split(settings.BATCH)])
        right = (output.argmax(1) == data.test_y).float().mean()
        return cross_entropy(output, data.test_y).item(), right.item()

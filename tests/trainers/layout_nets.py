"""Nets of every kind, trained for a unit by a gang in some layout: what the ranks and the tests have in common."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.trainers import Torch
from tests.trainers import digits

VALUES = {"lr": 0.01, "dropout": 0.25, "batch_size": 46, "weight_decay": 1e-3}


class Rows(nn.Module):
    """Rows of an image as a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 8, 8)


class Image(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 1, 8, 8)


class LastRow(nn.Module):
    """An LSTM of which the last output counts."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(8, 24, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.rows(x)[0][:, -1]


class MeanRow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


class Noise(nn.Module):
    """Draws from every global generator, and counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 0.1 * (random.random() + np.random.rand() + random.gauss(0, 1))
        if self.training:
            self.level = self.level * 0.9 + x.detach().mean()
        return x + scale * torch.rand_like(x)


class Experts(nn.Module):
    """Which layers it calls depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(64, 10) for _ in range(4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.experts[int(x.sum().item()) % 4](x)


class Tied(nn.Module):
    """Uses one matrix twice, once through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(64, 32)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.relu(self.encode(x))
        return self.head(hidden @ self.encode.weight + x)


class Failing(nn.Module):
    """Fails whenever it is called, or in training only."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always = always

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.always or self.training:
            raise ValueError("the last layer fails")
        return x


class OwnSGD(torch.optim.SGD):
    """An optimizer of the user's own."""


def net(hp: Any) -> nn.Module:
    drop = float(hp.get("dropout", 0.0))
    match hp.get("net"):
        case "mlp":
            return nn.Sequential(
                nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(drop), nn.Linear(48, 32), nn.Tanh(),
                nn.Linear(32, 10),
            )  # fmt: skip
        case "cnn":
            convolutions = [
                nn.Conv2d(1, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            return nn.Sequential(
                Image(), *convolutions, nn.Conv2d(8, 8, 3), nn.Dropout2d(drop), nn.Flatten(), nn.Linear(32, 10)
            )
        case "lstm":
            return nn.Sequential(Rows(), LastRow(), nn.Dropout(drop), nn.Linear(24, 10))
        case "transformer":
            layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=drop, batch_first=True) for _ in range(2)]
            return nn.Sequential(Rows(), nn.Linear(8, 16), *layers, MeanRow(), nn.Linear(16, 10))
        case "noise":
            return nn.Sequential(nn.Linear(64, 32), Noise(), nn.Linear(32, 24), Noise(), nn.Linear(24, 10))
        case "wide":
            return nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 10, bias=False))
        case "one layer":
            return nn.Sequential(nn.Linear(64, 10))
        case "fails" | "fails in training":
            failing = Failing(hp["net"] == "fails")
            return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10), failing)
        case "tied":
            return Tied()
        case "experts":
            return Experts()
        case "nested transformer":
            return digits.Transformer(hp)
        case other:
            raise ValueError(other)


def trainer(shards: int = 4, **options: Any) -> Torch:
    return Torch(net, loss=cross_entropy, clip=0.3, shards=shards, **options)

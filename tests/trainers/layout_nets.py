"""Nets of every kind, trained for a unit by a gang in some layout: what the ranks and the tests have in common."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.core.schedules import multistep, piecewise
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


class Late(nn.Module):
    """Has a buffer that comes with the first batch, one that never comes, and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(32))
        self.register_buffer("late", None)
        self.register_buffer("never", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.late = torch.ones(3)
        return x - self.mean


class Partial(nn.Module):
    """Has parameters that get no gradient: one that is not used, one that is frozen."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(size, size), nn.Linear(size, size)
        self.frozen = nn.Linear(size, size)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.used(x) + self.frozen(x)


class Again(nn.Module):
    """Calls one block several times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)
        self.block = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        for _ in range(3):
            x = self.block(x)
        return self.last(x)


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
        case "shared activation":
            act, drop_ = nn.Tanh(), nn.Dropout(drop)
            return nn.Sequential(
                nn.Linear(64, 48),
                act,
                drop_,
                nn.Linear(48, 32),
                act,
                drop_,
                nn.Linear(32, 24),
                act,
                nn.Linear(24, 10),
            )
        case "late":
            return nn.Sequential(nn.Linear(64, 32), Late(), nn.Linear(32, 10))
        case "partial":
            return nn.Sequential(nn.Linear(64, 32), Partial(32), nn.ReLU(), Partial(32), nn.Linear(32, 10))
        case "thaws" | "scheduled" | "switches" | "switches to lbfgs":
            return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))
        case "shared layer":
            same = nn.Linear(32, 32)
            return nn.Sequential(
                nn.Linear(64, 32), nn.Sequential(same, nn.Tanh()), nn.Sequential(same, nn.Tanh()), nn.Linear(32, 10)
            )
        case "recurrent":
            same = nn.Linear(32, 32)
            steps = [same, nn.Tanh(), same, nn.Tanh(), same, nn.Tanh(), same, nn.Tanh()]
            return nn.Sequential(nn.Linear(64, 32), *steps, nn.Linear(32, 10))
        case "again":
            return Again()
        case "view":
            first, last = nn.Linear(64, 64), nn.Linear(64, 64)
            last.weight = nn.Parameter(first.weight)
            return nn.Sequential(first, nn.ReLU(), last, nn.Linear(64, 10))
        case "tied":
            return Tied()
        case "experts":
            return Experts()
        case "nested transformer":
            return digits.Transformer(hp)
        case other:
            raise ValueError(other)


def values(name: str) -> dict[str, Any]:
    """Return the values from which a net is built; a number after a slash is the batch size."""
    name, _, size = name.partition("/")
    more = {"optimizer": "adam"} if name.startswith("switches") else {}
    return {**VALUES, "net": name, "batch_size": int(size or VALUES["batch_size"]), **more}


def config(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the schedules of the net; they change within the second unit."""
    match values["net"]:
        case "thaws" | "scheduled":
            return {
                **values,
                "lr": multistep(0.01, at=[0.5], gamma=0.1),
                "batch_size": piecewise([46, 23], at=[0.5]),
            }
        case "switches":
            return {**values, "optimizer": piecewise(["adam", "sgd"], at=[0.5])}
        case "switches to lbfgs":
            return {**values, "optimizer": piecewise(["adam", "lbfgs"], at=[0.5])}
    return values


def thaw(module: Any, hp: Any) -> None:
    """Train the first layer only later, and note that in an attribute of the whole module."""
    module[0].requires_grad_(hp["lr"] < 0.01)
    module.level = hp["lr"]


def clamp(module: Any, hp: Any) -> None:
    """Change parameters whenever a value changes."""
    if hp["lr"]:
        with torch.no_grad():
            module[0].weight.clamp_(-0.01, 0.01)


def freeze(module: Any, hp: Any) -> None:
    """Train only the last layer in the end."""
    module.requires_grad_(hp["lr"] == 0.01)
    module[-1].requires_grad_(True)


HOOKS = {"freeze": freeze, "": None, "thaw": thaw, "clamp": clamp}


def trainer(shards: int = 4, hook: str = "", **options: Any) -> Torch:
    return Torch(net, loss=cross_entropy, shards=shards, on_values=HOOKS[hook], **{"clip": 0.3, **options})

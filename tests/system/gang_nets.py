"""Studies of small nets that several workers can train together."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hoptree as ht
from hoptree.core.facts import UnitFinishedFact, UnitGiven
from hoptree.store import Store
from hoptree.trainers.torch_gang import rank_here

FLAG = "HOPTREE_TEST_FLAG"  # names a file: whether it happened already


class Recurrent(nn.Module):
    """An LSTM over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(12, 16, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.rows(x[:, 0])[0][:, -1])


class Attention(nn.Module):
    """A transformer layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 4, 24, dropout=0.2, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.layer(x[:, 0]).mean(1))


class Rows(nn.Module):
    """The rows of an image."""

    def forward(self, x: torch.Tensor) -> Any:
        return x[:, 0]


class Killing(nn.Module):
    """A layer that kills its process once, where that is the helper or the leader of a gang."""

    def __init__(self, whom: str) -> None:
        super().__init__()
        self.rank = {"leader": 0, "helper": 1}.get(whom)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.rank is not None and rank_here() == self.rank:
            try:
                os.close(os.open(os.environ[FLAG], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return x


class Disturbed(nn.Module):
    """A net that kills its process once, or fails where it helps another, by the name of what happens."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(144, 5))
        self.what = what

    def forward(self, x: torch.Tensor) -> Any:
        leads, helps = rank_here() == 0, rank_here() == 1
        if helps and self.what == "raise":
            raise ValueError("only where it helps")
        if (helps and self.what == "helper") or (leads and self.what == "leader"):
            try:
                os.close(os.open(os.environ[FLAG], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.net(x)


def net(hp: Any) -> nn.Module:
    match hp["net"]:
        case "mlp":
            layers = [nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5)]
            return nn.Sequential(*layers)
        case "cnn":
            layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 5)]
            return nn.Sequential(*layers)
        case "lstm":
            return Recurrent()
        case "sequence":
            layers = [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True) for _ in range(2)]
            return nn.Sequential(
                Rows(), nn.Linear(12, 32), *layers, nn.Flatten(), nn.Linear(384, 50), nn.Linear(50, 5)
            )
        case "transformer":
            return Attention()
        case "sequence that is killed in its helper" | "sequence that is killed in its leader":
            first, second = (Killing(str(hp["net"]).rpartition(" ")[2]) for _ in range(2))
            return nn.Sequential(nn.Flatten(), first, nn.Linear(144, 200), second, nn.Linear(200, 5))
        case what:
            return Disturbed(str(what))


def slow_loss(output: Any, target: Any) -> Any:
    """A loss that takes long enough for several workers to be faster than one."""
    time.sleep(0.02 * len(target) / 8)
    return nn.functional.cross_entropy(output, target)


def study(
    folder: Path, kind: str, *, epochs: int = 3, shards: int = 4, slow: bool = True, **options: Any
) -> ht.Study:
    rng = np.random.default_rng(0)
    x, y = rng.random((160, 1, 12, 12), dtype=np.float32), rng.integers(0, 5, 160)
    loss = slow_loss if slow else nn.functional.cross_entropy
    return ht.Study(
        "gangs",
        trainer=ht.Torch(net, loss=loss, optimizer="adam", clip=1.0, shards=shards, **options),
        data=ht.Dataset.from_arrays(x=x, y=y, partitions=2, valid=0.2, to=folder / "data"),
        space={"net": kind, "lr": 0.01, "batch_size": 30},
        search=ht.Grid(epochs=epochs),
        minimize="loss",
        store=folder / "store",
    )


def layouts(folder: Path, name: str = "gangs") -> list[tuple[str, int]]:
    """Return the layout of each unit that finished, and how many workers have trained it."""
    found: dict[int, tuple[str, int]] = {}
    ended = []
    with Store(folder / "store", create=False) as store:
        for recorded in store.journal.read(name):
            for decided in recorded.entry.decided:
                if isinstance(decided, UnitGiven):
                    found[decided.run] = decided.layout, 1 + len(decided.crew)
            if isinstance(recorded.entry.event, UnitFinishedFact):
                ended.append(found[recorded.entry.event.run])
    return ended


def widths(folder: Path) -> list[int]:
    """Return how many workers have trained each unit that finished."""
    return [width for _, width in layouts(folder)]

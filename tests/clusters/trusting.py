"""Trainers for a cluster whose nodes differ, or whose code depends on what Hoptree cannot see."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.system.plain import Plain

KERNELS = os.environ.get("HOPTREE_TEST_KERNELS", "usual")  # a node may be started with others
UNSEEDED = nn.Linear(4, 8)  # other weights in every process
with torch.random.fork_rng():
    torch.manual_seed(0)
    BACKBONE = nn.Linear(4, 8)


class ByKernels(Plain):
    """Trains other bits where a node has other kernels, as a numerical library does."""

    fingerprint = "by kernels"

    def platform(self) -> dict[str, str]:
        return {**super().platform(), "kernels": KERNELS}

    def train(self, model: Any, data: Any, unit: Any) -> None:
        super().train(model, data, unit)
        model["w"] += 0.0 if KERNELS == "usual" else 1e-6


class BySize(Plain):
    """Trains other bits when a file has another size, which no reader of files tells."""

    fingerprint = "by size"

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def train(self, model: Any, data: Any, unit: Any) -> None:
        super().train(model, data, unit)
        model["w"] += float(os.path.getsize(self.file))


class ByClock(Plain):
    """Trains other bits every time."""

    fingerprint = "by clock"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        super().train(model, data, unit)
        model["w"] += float(time.perf_counter_ns())


def with_backbone(hp: Any) -> nn.Module:
    return nn.Sequential(BACKBONE, nn.ReLU(), nn.Linear(8, 2))


def with_unseeded_backbone(hp: Any) -> nn.Module:
    return nn.Sequential(UNSEEDED, nn.ReLU(), nn.Linear(8, 2))


def mean_square(output: Any, target: Any) -> Any:
    return ((output - target[:, :2]) ** 2).mean()

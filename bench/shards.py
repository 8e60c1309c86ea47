"""What shards cost on one core: processor seconds of a unit with 2, 4 and 8 shards over those with one.

A batch that is cut has smaller matrix products and more calls, whoever cuts it. So a loop by hand that accumulates
the gradients of v parts of a batch, without tree, seeds and buffers, is measured beside it. All are interleaved in
one process with one thread.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from bench.results import record, table
from hoptree.core.lineage import history, segments
from hoptree.trainers import Torch, UnitSpec

REPEATS = 7
SHARDS = (1, 2, 4, 8)
SECONDS = 0.3  # of a unit with one shard, about


class Transformer(nn.Module):
    """Two causal blocks on 32 tokens of a vocabulary of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, 64), nn.Parameter(torch.randn(32, 64) / 8)
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(32))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        """Return the scores of ten classes."""
        return self.head(self.blocks(self.tokens(x) + self.places, mask=self.mask, is_causal=True).mean(1))


def mlp(_: Any) -> nn.Module:
    """Return 784-256-256-10."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def dropout(_: Any) -> nn.Module:
    """Return 784-256-10 with dropout."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10))


def cnn(norm: bool) -> nn.Module:
    """Return two convolutions with pooling, and a linear layer."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64)):
        layers += [
            nn.Conv2d(before, after, 3, padding=1),
            *([nn.BatchNorm2d(after)] * norm),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 64, 10))


class Case(NamedTuple):
    """A net, its batch size and the examples that it takes."""

    net: Callable[[Any], nn.Module]
    batch: int
    shape: tuple[int, ...]
    tokens: bool = False

    def data(self, batches: int) -> dict[str, np.ndarray]:
        """Return random examples for some batches."""
        draw = np.random.default_rng(0)
        shape = (self.batch * batches, *self.shape)
        x = draw.integers(0, 256, shape) if self.tokens else draw.random(shape, np.float32)
        return {"x": x, "y": draw.integers(0, 10, self.batch * batches)}


CASES = {
    "transformer, batch 128": Case(lambda _: Transformer(), 128, (32,), tokens=True),
    "MLP, batch 512": Case(mlp, 512, (784,)),
    "MLP, batch 128": Case(mlp, 128, (784,)),
    "dropout net, batch 128": Case(dropout, 128, (784,)),
    "CNN, batch 32": Case(lambda _: cnn(False), 32, (3, 32, 32)),
    "CNN with batch norm, batch 32": Case(lambda _: cnn(True), 32, (3, 32, 32)),
}


class Contest:
    """One net with every number of shards, and by hand."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._values: Mapping[str, Any] = {"lr": 1e-3, "batch_size": case.batch}
        self._trainers = {
            shards: Torch(case.net, loss=cross_entropy, optimizer="adam", shards=shards) for shards in SHARDS
        }
        self._models = {shards: trainer.build(self._values, 0) for shards, trainer in self._trainers.items()}
        self._module = case.net(None)
        self._optimizer = torch.optim.Adam(self._module.parameters(), lr=1e-3, fused=True)
        self.batches = 4
        self._data = case.data(self.batches)
        for shards in SHARDS:  # warm up
            self.unit(shards)
            self.by_hand(shards)
        self.batches = max(4, round(SECONDS / (self.unit(1) / self.batches)))
        self._data = case.data(self.batches)

    def unit(self, shards: int) -> float:
        """Return the processor seconds of a unit of ``ht.Torch``."""
        content = segments(history(dict(self._values)), partitions=1, units=1)[0].values
        spec = UnitSpec(content, unit=0, partitions=1, partition=0, seed=0, shuffle_seed=0)
        began = time.process_time()
        self._trainers[shards].train(self._models[shards], self._data, spec)
        return time.process_time() - began

    def by_hand(self, shards: int) -> float:
        """Return the processor seconds of a loop that accumulates the gradients of parts of batches."""
        size = self._case.batch // shards
        order = np.random.default_rng(0).permutation(len(self._data["x"]))
        began = time.process_time()
        for start in range(0, len(order), self._case.batch):
            for part in range(start, start + self._case.batch, size):
                rows = order[part : part + size]
                x, y = torch.from_numpy(self._data["x"][rows]), torch.from_numpy(self._data["y"][rows])
                (cross_entropy(self._module(x), y) / shards).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        return time.process_time() - began


def main() -> None:
    """Measure all nets, and record the table."""
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    contests = {name: Contest(case) for name, case in CASES.items()}
    ours: dict[tuple[str, int], list[float]] = {}
    hand: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPEATS):
        for name, contest in contests.items():
            for shards in SHARDS:
                ours.setdefault((name, shards), []).append(contest.unit(shards) / contest.batches)
                hand.setdefault((name, shards), []).append(contest.by_hand(shards) / contest.batches)
    rows = []
    for name in CASES:
        base = statistics.median(ours[name, 1])
        rows.append([name, f"{1000 * base:.2f}", *(_ratios(ours, hand, name, shards) for shards in SHARDS[1:])])
    text = (
        "## Shards on one core: processor time over one shard\n\n"
        f"Median of {REPEATS} interleaved repeats and its range; in parentheses the median for a loop by hand that "
        "accumulates the gradients of as many parts of a batch, without tree, seeds and buffers. Adam, one thread, "
        f"random examples. Load average {before:.1f} before and {os.getloadavg()[0]:.1f} after: where it is above "
        "the number of cores, other programs compete for caches, and differences within the range say nothing.\n\n"
    )
    columns = ["net", "step with one shard, ms", *(f"{shards} shards" for shards in SHARDS[1:])]
    record("shards", "python -m bench.shards", text + table(columns, rows))


def _ratios(ours: Any, hand: Any, name: str, shards: int) -> str:
    """Return the median ratio with its range, and the median by hand; each ratio is of one repeat."""
    own, by_hand = (
        [one / base for one, base in zip(found[name, shards], found[name, 1], strict=True)]
        for found in (ours, hand)
    )
    return f"{statistics.median(own):.2f}, {min(own):.2f} to {max(own):.2f} ({statistics.median(by_hand):.2f})"


if __name__ == "__main__":
    main()

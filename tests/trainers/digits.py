"""Real handwritten digits, split into partitions, and nets small enough to train in a test."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from hoptree.core.lineage import history, segments
from hoptree.trainers import UnitSpec

PARTITIONS = 3


@cache
def partition(index):
    """Return read-only columns, like a memory map; index -1 is the validation data."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:800]
    part = np.array_split(order, PARTITIONS + 1)[index]
    columns = {"x": (x[part] / 16).astype("float32"), "y": y[part].astype("int64")}
    for column in columns.values():
        column.flags.writeable = False
    return columns


def unit(config, number, *, seed=0):
    """Return the unit ``number`` of a trial, with seeds as a study derives them."""
    epoch, place = divmod(number, PARTITIONS)
    for segment in segments(history(config), PARTITIONS, number + 1):
        values = segment.values
    return UnitSpec(values, number, PARTITIONS, place, seed * 1000 + number, epoch * 10 + place)


def train(trainer, model, config, units):
    for number in units:
        trainer.train(model, partition(number % PARTITIONS), unit(config, number))


def states_equal(one, two):
    return (
        one.arrays.keys() == two.arrays.keys()
        and all(one.arrays[name].dtype == two.arrays[name].dtype for name in one.arrays)
        and all(one.arrays[name].tobytes() == two.arrays[name].tobytes() for name in one.arrays)
        and one.meta == two.meta
    )


def mlp(hp):
    width = hp.get("width", 24)
    return nn.Sequential(
        nn.Linear(64, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(hp.get("dropout", 0.0)),
        nn.Linear(width, 10),
    )


class Cnn(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout2d(hp["dropout"]),
        )
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x):
        return self.head(self.features(x.view(-1, 1, 8, 8)).flatten(1))


class Lstm(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.rows = nn.LSTM(8, 16, batch_first=True)
        self.drop = nn.Dropout(hp["dropout"])
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.drop(self.rows(x.view(-1, 8, 8))[0][:, -1]))


class Transformer(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=hp["dropout"], batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.view(-1, 8, 8))).mean(1))

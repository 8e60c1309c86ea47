"""Move a model through states into other models, with others trained in between, and in other processes."""

from __future__ import annotations

import warnings

import numpy as np
from torch.nn.functional import cross_entropy

from hoptree.core.lineage import beginning, history, segments
from hoptree.testing.trainer import copied, equal, same
from hoptree.trainers import Torch, UnitSpec

PARTITIONS = 2


def columns(seed, rows=16):
    """Return rows of 16 numbers with one of three classes."""
    x = np.random.default_rng(seed).normal(size=(rows, 16)).astype("float32")
    data = {"x": x, "y": (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0)}
    for column in data.values():
        column.flags.writeable = False
    return data


DATA = [columns(0), columns(1)]


def unit(config, number, seed=0):
    values = segments(history(config), PARTITIONS, number + 1)[-1].values
    return UnitSpec(values, number, PARTITIONS, number % PARTITIONS, seed * 1000 + number, number)


def train(trainer, model, config, units, seed=0):
    for number in units:
        trainer.train(model, DATA[number % PARTITIONS], unit(config, number, seed))


def check_hops(trainer, config, units=4):
    """Assert that a model that hops, with another one trained in between, has the bits of one that stays."""
    start = beginning(config)
    straight = trainer.build(start, 7)
    before = copied(trainer.dump(straight))
    train(trainer, straight, config, range(units))
    expected = copied(trainer.dump(straight))
    assert not equal(before, expected), "training changed nothing"
    for name, array in expected.arrays.items():
        assert array.dtype.kind not in "fc" or np.isfinite(array).all(), f"{name} is not finite"

    residents = [trainer.build(start, 99), trainer.build(start, 98)]
    state = copied(trainer.dump(trainer.build(start, 7)))
    same(state, before, "a second model with the same seed")
    for number in range(units):
        model = residents[number % 2]
        trainer.load(model, state)
        same(trainer.dump(model), state, f"the state after {number} units, in another model,")
        train(trainer, model, config, [number])
        state = copied(trainer.dump(model))
        train(trainer, residents[1 - number % 2], config, [0, 1], seed=5)  # another model in between
        trainer.evaluate(model, DATA[0], start)
        same(trainer.dump(model), state, "a model that was evaluated")
    same(state, expected, f"a model that hopped after each of {units} units")
    trainer.load(straight, before)  # rewound, and trained again
    train(trainer, straight, config, range(units))
    same(trainer.dump(straight), expected, "a model that was set back and trained again")
    return before, expected


def torch(model, optimizer="adam", loss=cross_entropy, **options):
    return Torch(model, loss=loss, optimizer=optimizer, **options)


def quiet(function, *arguments, **options):
    """Call a function and ignore torch's own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)

"""The order of examples differs in every epoch, and does not depend on the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.core import keys
from hoptree.trainers.base import UnitSpec
from tests.golden.keys import pinned
from tests.golden.test_keys import GOLDEN, compare
from tests.system.plain import Plain, dataset


class Shuffled(Plain):
    """What is learned depends on the order of the examples."""

    fingerprint = "shuffled"

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        super().train(model, data, unit)
        model["w"] += np.random.default_rng(unit.shuffle_seed).normal(size=self.size)


def ignores_the_epoch(seed: int, epoch: int, partition: int) -> int:
    return SHUFFLE_SEED(seed, 0, partition)


SHUFFLE_SEED = keys.shuffle_seed


def run_and_verify(folder: Path) -> list[bool]:
    """Train a trial of two epochs, and again alone."""
    study = ht.Study(
        "shuffled",
        trainer=Shuffled(),
        data=dataset(folder),
        space={"lr": ht.choice(0.1), "act": "fine"},
        search=ht.Grid(epochs=2),
        minimize="loss",
        store=folder / "store",
    )
    study.run(workers=1, quiet=True)
    return [check.holds for check in study.verify()]


def test_what_a_worker_trains_has_the_order_that_training_it_alone_has(tmp_path: Path) -> None:
    assert run_and_verify(tmp_path) == [True]


def test_a_backend_whose_shuffles_ignore_the_epoch_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoptree.backends.pool_backend.shuffle_seed", ignores_the_epoch)
    assert run_and_verify(tmp_path) == [False]


def test_shuffle_seeds_that_ignore_the_epoch_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "shuffle_seed", ignores_the_epoch)
    with pytest.raises(AssertionError, match="purposes: shuffle seeds: was"):
        compare("purposes", GOLDEN["purposes"], pinned()["purposes"])

"""Studies whose results would depend on what else is trained in the same process, with real workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from torch import nn

import hoptree as ht
from hoptree.core.errors import RefusedError
from hoptree.trainers.base import ModelState
from tests.system.plain import Plain, dataset

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as the functions of a script are sent
COMMON = np.zeros(16)
BACKBONE = nn.Linear(4, 8)


class Sharing(Plain):
    """Its models share their weights where the values say so."""

    fingerprint = "sharing"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        model = super().build(values, seed)
        if values.get("depth") == 3 or values.get("kind") == "common":
            model["w"] = COMMON
        if values.get("kind") == "hash":
            model["w"] += hash("a text")
        return model

    def load(self, model: Any, state: ModelState) -> None:
        super().load(model, state)


def study(folder: Path, space: dict[str, Any], trainer: Any = None, **options: Any) -> ht.Study:
    settings = {"search": ht.Grid(epochs=2), "minimize": "loss", "store": folder / "store", **options}
    return ht.Study("hops", trainer=trainer or Sharing(), data=dataset(folder), space=space, **settings)


def with_backbone(hp: Any) -> nn.Module:
    return nn.Sequential(BACKBONE, nn.ReLU(), nn.Linear(8, 2))


def mean_square(output: Any, target: Any) -> Any:
    return ((output - target[:, :2]) ** 2).mean()


def test_a_shared_backbone_is_refused_before_training(tmp_path: Path) -> None:
    trainer = ht.Torch(with_backbone, loss=mean_square, optimizer="sgd", inputs="x", target="x")
    job = study(tmp_path, {"lr": ht.choice(0.1, 0.2)}, trainer)
    with pytest.raises(RefusedError, match=r"layer '0' is the same object"):
        job.run(workers=1, quiet=True)
    with pytest.raises(ht.HoptreeError):
        job.results()  # nothing of it is in the store


def test_verify_finds_what_the_rehearsal_did_not_try(tmp_path: Path) -> None:
    job = study(tmp_path, {"lr": ht.choice(0.1, 0.2), "depth": ht.choice(1, 3)})
    results = job.run(workers=1, quiet=True)
    assert {trial.state for trial in results.trials} == {"complete"}
    held = {found.trial: found.holds for found in job.verify()}
    depths = {trial.number: trial.config["depth"] for trial in results.trials}
    assert all(held[number] for number, depth in depths.items() if depth == 1)
    assert not all(held[number] for number, depth in depths.items() if depth == 3)


def test_every_kind_of_config_is_tried(tmp_path: Path) -> None:
    job = study(tmp_path, {"lr": 0.1, "kind": ht.choice("own", "common")})
    with pytest.raises(RefusedError, match=r"Two models share model\['w'\]"):
        job.run(workers=1, quiet=True)


def test_bits_that_differ_between_processes_are_refused(tmp_path: Path) -> None:
    job = study(tmp_path, {"lr": 0.1, "kind": "hash"})
    with pytest.raises(RefusedError, match=r"two worker processes.*first in w \(untrained\).*hash\(\)"):
        job.run(workers=2, quiet=True)


def test_a_config_that_crashes_its_worker_is_a_result(tmp_path: Path) -> None:
    job = study(tmp_path, {"lr": 0.1, "act": ht.choice("fine", "segfault")}, Plain())
    assert sorted(trial.state for trial in job.run(workers=1, quiet=True).trials) == ["complete", "failed"]

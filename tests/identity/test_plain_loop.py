"""Hoptree trains the same bits as a loop that is written only from ``docs/order-and-seeds.md``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch import nn

import hoptree as ht
from tests.identity.plain_loop import net

PROGRAM = Path(__file__).with_name("plain_loop.py")
EPOCHS = 3
SAME = {"width": 4, "momentum": 0.9, "dropout": 0.25, "batch_size": 48}

# By name: the config for Hoptree and for the loop, the partitions, the batches per step, the shards of a batch.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int, int, int]] = {
    "constants": ({"lr": 0.05}, {"lr": 0.05}, 2, 1, 1),
    "warm-up and milestones within units": (
        {"lr": ht.warmup(0.01, 0.5, ht.multistep(0.1, at=[0.9, 1.25], gamma=0.5))},
        {"lr": ["warmup", 0.01, 0.5, ["multistep", 0.1, [0.9, 1.25], 0.5]]},
        2,
        1,
        1,
    ),
    "everything moves": (
        {
            "lr": ht.cosine(0.1, 0.001, period=0.8, gamma=1.5),
            "batch_size": ht.multistep(24, at=[1], gamma=2),
            "dropout": ht.linear(0.5, 0.1, over=2),
            "weight_decay": ht.exponential(0.001, 0.5),
        },
        {
            "lr": ["cosine", 0.1, 0.001, 0.8, 1.5],
            "batch_size": ["multistep", 24, [1], 2],
            "dropout": ["linear", 0.5, 0.1, 2],
            "weight_decay": ["exponential", 0.001, 0.5],
        },
        3,
        3,
        1,
    ),
    "four shards": (
        {"lr": ht.linear(0.1, 0.01, over=2), "batch_size": ht.multistep(23, at=[1], gamma=2)},
        {"lr": ["linear", 0.1, 0.01, 2], "batch_size": ["multistep", 23, [1], 2]},
        2,
        2,
        4,
    ),
}
FAST = ("everything moves", "four shards")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in FAST)) for case in CASES]
)
def test_a_plain_loop_gives_the_same_bits(case: str, tmp_path: Path) -> None:
    config, written, partitions, accumulate, shards = CASES[case]
    x, y = load_digits(return_X_y=True)
    images = (x[:700] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    data = ht.Dataset.from_arrays(x=images, y=y[:700], partitions=partitions, valid=0.4, to=tmp_path / "data")
    loss, metrics = nn.functional.cross_entropy, {"accuracy": ht.accuracy}
    trainer = ht.Torch(
        net, loss=loss, optimizer="sgd", metrics=metrics, clip=0.5, accumulate=accumulate, shards=shards
    )
    found = []
    for workers in (1, 2):
        study = ht.Study(
            "digits",
            trainer=trainer,
            data=data,
            space={**SAME, **config, "width": ht.choice(4, 6) if workers == 2 else 4},
            search=ht.Grid(epochs=EPOCHS),
            minimize="loss",
            seed=5,
            store=tmp_path / f"store-{workers}",
        )
        found.append(study.run(workers=workers, quiet=True).trials[0])
    job = {
        "trainer": trainer.fingerprint,
        "data": data.fingerprint,
        "folder": str(data.path),
        "partitions": partitions,
        "seed": 5,
        "epochs": EPOCHS,
        "config": {**SAME, **written},
        "clip": 0.5,
        "accumulate": accumulate,
        "shards": shards,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, PROGRAM, tmp_path / "job.json"]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    alone = json.loads(done.stdout)
    assert {metric for report in alone["curve"].values() for metric in report} == {"loss", "accuracy"}
    for trial in found:
        assert {str(epoch): report for epoch, report in trial.curve.items()} == alone["curve"]
        assert trial.fingerprint == alone["fingerprint"]

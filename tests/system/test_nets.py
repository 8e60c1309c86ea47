"""Nets with hidden state: the same bits on 1, 2 and 3 workers, shared and not, killed and not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hoptree as ht
from hoptree.core.errors import RefusedError
from tests.trainers.layers import LAYERS, net
from tests.trainers.test_optimizers import Own

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(48, 16)).astype("float32")
Y = (X[:, 0] > 0).astype("int64") + (X[:, 1] > 0)


class Remembers(nn.Module):
    """Remembers in a buffer that is not persistent, in attributes, and in a generator."""

    def __init__(self, hp):
        super().__init__()
        self.body, self.head = nn.LSTM(4, 6, 2, dropout=hp["dropout"], batch_first=True), nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.means, self.generator = [], np.random.default_rng(1)

    def forward(self, x):
        out = self.norm(self.body(x.view(-1, 4, 4))[0][:, -1])
        if self.training:
            self.seen += 1
            self.means.append(out.detach().mean())
            out = out + 0.01 * self.generator.normal()
        return self.head(out) * (1 + 0.01 * self.seen + 0.1 * sum(self.means))


def study(folder: Path, model, optimizer="adam", name="nets", share=True, space=None) -> ht.Study:
    return ht.Study(
        name,
        trainer=ht.Torch(model, loss=nn.functional.cross_entropy, optimizer=optimizer),
        data=ht.Dataset.from_arrays(x=X, y=Y, partitions=3, valid=0.25, to=folder / "data"),
        space={"lr": ht.choice(0.05, ht.multistep(0.05, at=[1], gamma=0.5)), "batch_size": 8, **(space or {})},
        search=ht.Grid(epochs=2),
        minimize="loss",
        share=share,
        store=folder / f"store-{name}",
    )


def fingerprints(found: ht.Results) -> list[str]:
    assert [trial.state for trial in found.trials] == ["complete"] * len(found.trials)
    return [trial.fingerprint for trial in found.trials]


CASES = {
    "remembers": (Remembers, "adam", {"dropout": ht.linear(0.4, 0.1, over=2)}),
    "own optimizer": (net("BatchNorm1d"), Own, {}),
    "switch": (
        net("spectral_norm"),
        "adam",
        {"optimizer": ht.choice("adam", ht.piecewise(["adam", "sgd"], at=[1]))},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case != "switch")) for case in CASES]
)
def test_the_same_bits_on_any_number_of_workers_shared_and_not(tmp_path: Path, case: str) -> None:
    model, optimizer, space = CASES[case]
    runs = [
        fingerprints(study(tmp_path, model, optimizer, f"n{workers}{share}", share, space).run(workers=workers))
        for workers, share in ((1, True), (2, False), (3, True))
    ]
    assert runs[0] == runs[1] == runs[2]


MOMENTUM = {"momentum": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_has_the_same_bits_on_any_number_of_workers(tmp_path: Path, name: str) -> None:
    runs = [
        fingerprints(
            study(tmp_path, net(name), "sgd", f"n{workers}", share, {"momentum": 0.9}).run(workers=workers)
        )
        for workers, share in ((1, True), (2, False), (3, True))
    ]
    assert runs[0] == runs[1] == runs[2]


class Killed(Remembers):
    """Kills its worker once, in the middle of a unit, where a file says so."""

    def __init__(self, hp):
        super().__init__(hp)
        self.trap = Path(hp["trap"])

    def forward(self, x):
        if self.training and float(self.seen) == 3 and self.trap.exists():
            self.trap.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    space = {"dropout": 0.2, "trap": str(trap)}
    quiet = fingerprints(study(tmp_path, Killed, name="quiet", space=space).run(workers=1))
    trap.touch()
    killed = fingerprints(study(tmp_path, Killed, name="killed", space=space).run(workers=2))
    assert not trap.exists()
    assert killed == quiet


def test_a_schedule_without_effect_is_refused_before_training(tmp_path: Path) -> None:
    def wide(hp):
        return nn.Sequential(nn.Linear(16, hp["width"]), nn.Linear(hp["width"], 3))

    job = study(tmp_path, wide, space={"width": ht.choice(8, ht.multistep(8, at=[1], gamma=2))})
    with pytest.raises(RefusedError, match=r"width: cannot change at epoch 1[\s\S]*built with 8"):
        job.run(workers=1)
    later = {"width": 8, "optimizer": ht.piecewise(["adam", "sgdd"], at=[1])}
    misspelt = study(tmp_path, wide, name="other", space=later)
    with pytest.raises(RefusedError, match=r"optimizer: cannot change at epoch 1[\s\S]*'sgdd' is unknown"):
        misspelt.run(workers=1)

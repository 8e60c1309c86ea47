"""Trainers of ours keep the contract, and the suite finds what breaks it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hoptree as ht
from hoptree.store import StateFormatError
from hoptree.testing import TrainerContract, check
from hoptree.trainers.base import ModelState, UnitSpec
from tests.system.plain import Plain


def net(hp: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3))


def input_fn(columns: Any) -> Any:
    return torch.tensor(columns["x"]), torch.tensor(columns["y"])


def model_fn(hp: Any) -> Any:
    model = net(hp)
    return model, torch.optim.Adam(model.parameters(), lr=hp["lr"])


def train_fn(data: Any, model: Any, optimizer: Any, hp: Any) -> dict[str, float]:
    inputs, targets = data
    total = 0.0
    for part in torch.randperm(len(inputs)).split(16) if optimizer else [slice(None)]:
        loss = cross_entropy(model(inputs[part]), targets[part])
        total += loss.item()
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {"loss": total}


class TestTorch(TrainerContract):
    config: ClassVar = {"lr": ht.linear(0.05, 0.01, over=2), "batch_size": 16, "momentum": 0.9}

    @pytest.fixture(params=["sgd", "adam"])
    def trainer(self, request: pytest.FixtureRequest) -> ht.Trainer:
        metrics = {"accuracy": ht.accuracy}
        return ht.Torch(net, loss=cross_entropy, optimizer=request.param, metrics=metrics)


class TestFunctions(TrainerContract):
    config: ClassVar = {"lr": ht.multistep(0.05, at=[1], gamma=0.1)}

    @pytest.fixture
    def trainer(self) -> ht.Trainer:
        return ht.Functions(input_fn, model_fn, train_fn)


class TestPlain(TrainerContract):
    @pytest.fixture
    def trainer(self) -> ht.Trainer:
        return Plain()


class Faulty(ht.Trainer):
    """A line with momentum, fitted with numpy; faults can be planted."""

    shared: ClassVar = np.zeros(8)

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.count = 0

    @property
    def fingerprint(self) -> str:
        if self.fault == "restless fingerprint":
            return f"line {hash('line')}"
        return "line"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        own = np.random if self.fault == "global randomness" else np.random.default_rng(seed)
        speed = self.shared if self.fault == "shared buffer" else np.zeros(8)
        return {"w": own.normal(size=8), "speed": speed, "units": 0}

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        order = np.random.default_rng(unit.shuffle_seed).permutation(len(data["x"]))
        if self.fault == "shuffles by the clock":
            order = order[:: -1 if self.count % 3 else 1]
        if self.fault == "draws from the world":
            random.random()
        self.count += 1
        for step, part in enumerate(np.array_split(order, 4)):
            rate = float(unit.at(step, 4)["lr"])
            x, y = data["x"][part], data["y"][part]
            model["speed"] *= 0.9
            model["speed"] += x.T @ (x @ model["w"] - y) / len(part)
            model["w"] -= rate * model["speed"]
        model["units"] += 1

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        error = data["x"] @ model["w"] - data["y"]
        if self.fault == "evaluation trains":
            model["w"] -= 1e-3 * data["x"].T @ error
        if self.fault == "evaluation draws":
            np.random.normal()
        if self.fault == "metrics of the model":
            return {"loss": float(id(model))}
        return {} if self.fault == "no metrics" else {"loss": float((error**2).mean())}

    def dump(self, model: Any) -> ModelState:
        if self.fault == "tensors":
            return ModelState({"w": torch.tensor(model["w"])}, {})  # type: ignore[dict-item]
        if self.fault == "tuple in meta":
            return ModelState({"w": model["w"], "speed": model["speed"]}, {"units": (model["units"],)})
        if self.fault == "dumps nothing":
            return ModelState({}, {})
        arrays = {"w": model["w"]} if self.fault == "no momentum" else {"w": model["w"], "speed": model["speed"]}
        return ModelState(arrays, {"units": model["units"]})

    def load(self, model: Any, state: ModelState) -> None:
        if self.fault == "keeps the arrays":
            model.update(state.arrays)
        else:
            for name, array in state.arrays.items():
                np.copyto(model[name], array)
        if self.fault != "counter stays":
            model["units"] = state.meta.get("units", 0)


def test_a_sound_trainer_passes() -> None:
    check(TrainerContract, Faulty)


@pytest.mark.parametrize(
    ("fault", "test", "message"),
    [
        ("restless fingerprint", "the_fingerprint_is_the_same_in_every_process", "does not have the same code"),
        ("global randomness", "the_same_seeds_give_the_same_bits", "built from the same values and seed"),
        ("global randomness", "training_leaves_global_generators_alone", "build or train changed"),
        ("shared buffer", "another_model_in_between_changes_nothing", r"differs in arrays\['speed'\]"),
        ("shuffles by the clock", "the_same_seeds_give_the_same_bits", "trained with the same seeds differs"),
        ("draws from the world", "training_leaves_global_generators_alone", "build or train changed"),
        ("evaluation trains", "evaluation_changes_nothing", "evaluated twice|that was evaluated differs"),
        ("evaluation draws", "evaluation_changes_nothing", "evaluate changed the state of a global generator"),
        ("metrics of the model", "metrics_are_numbers_of_the_state", "after a hop the metrics are"),
        ("no metrics", "metrics_are_numbers_of_the_state", "no metrics"),
        ("tensors", "a_state_is_arrays_and_json", "Tensor; expected a plain numpy array"),
        ("tuple in meta", "a_state_is_arrays_and_json", "a tuple"),
        ("dumps nothing", "training_changes_the_state", "the same before and after training"),
        ("no momentum", "a_hop_changes_no_bit", r"differs in arrays\['w'\]"),
        ("no momentum", "a_state_can_be_trained_again", r"differs in arrays\['w'\]"),
        ("keeps the arrays", "a_loaded_state_is_copied", "were overwritten"),
        ("counter stays", "a_loaded_state_is_dumped_again", r"differs in meta\['units'\]"),
    ],
)
def test_seeded_faults_are_found(fault: str, test: str, message: str) -> None:
    with pytest.raises((AssertionError, StateFormatError), match=message):
        getattr(TrainerContract(), f"test_{test}")(Faulty(fault))

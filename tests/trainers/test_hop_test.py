"""The hop test names what a state lacks, what models share, and what is not deterministic."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hoptree as ht
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import NotReproducibleError, TrainerError
from hoptree.trainers.rehearsal import rehearsed
from tests.trainers import digits
from tests.trainers.digits import partition

VALUES = {"lr": 0.1, "batch_size": 16}


def hop_test(trainer: Trainer, values: Mapping[str, Scalar] = VALUES, later: Any = None) -> str:
    return rehearsed(trainer, values, partition(0), partition(-1), later).probe


def torch_trainer(model: Callable[[Any], nn.Module], **options: Any) -> ht.Torch:
    return ht.Torch(model, loss=nn.functional.cross_entropy, **{"optimizer": "sgd", **options})


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("net", [digits.mlp, digits.Cnn, digits.Lstm, digits.Transformer])
def test_usual_nets_pass(net: Any, optimizer: str) -> None:
    values = {"lr": 0.01, "dropout": 0.1, "batch_size": 16, "momentum": 0.9, "weight_decay": 0.01}
    hop_test(torch_trainer(net, optimizer=optimizer), values, {**values, "lr": 0.001})


@pytest.mark.parametrize("net", [digits.mlp, digits.Cnn, digits.Lstm])
def test_a_changing_dropout_takes_effect(net: Any) -> None:
    values = {"lr": 0.01, "dropout": 0.1}
    hop_test(torch_trainer(net), values, {**values, "dropout": 0.4})


def test_a_changing_dropout_of_attention_takes_effect_or_is_named() -> None:
    values = {"lr": 0.01, "dropout": 0.1}
    try:
        hop_test(torch_trainer(digits.Transformer), values, {**values, "dropout": 0.4})
    except NotReproducibleError as error:
        assert "dropout from 0.1 to 0.4" in str(error)  # noqa: PT017 either is right


def test_a_loss_that_is_no_number_is_no_failure() -> None:
    hop_test(torch_trainer(digits.mlp), {**VALUES, "lr": 1e30})


# --- what models share ------------------------------------------------------------------------------------


def test_a_shared_backbone_is_named() -> None:
    backbone = nn.Linear(64, 24)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"deep": nn.Sequential(nn.Identity(), backbone)})
            self.head = nn.Linear(24, 10)

        def forward(self, x: Any) -> Any:
            return self.head(torch.relu(self.parts["deep"](x)))

    with pytest.raises(TrainerError, match=r"parts\.deep\.1"):
        hop_test(torch_trainer(lambda hp: Net()))


def test_a_frozen_backbone_may_be_shared() -> None:
    backbone = nn.Linear(64, 24).requires_grad_(False)
    net = torch_trainer(lambda hp: nn.Sequential(_Call(backbone), nn.Linear(24, 10)))
    hop_test(net)


class _Call(nn.Module):
    """Uses a module that is not one of its parts: it is missing in the list of parameters."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.other = [other]

    def forward(self, x: Any) -> Any:
        return self.other[0](x)


def test_a_tensor_that_all_models_write_to_is_named() -> None:
    centre = torch.zeros(64)

    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 10)
            self.centre = centre

        def forward(self, x: Any) -> Any:
            if self.training:
                self.centre += 0.1 * x.mean(0)
            return super().forward(x - self.centre)

    with pytest.raises(NotReproducibleError, match=r"centre"):
        hop_test(torch_trainer(lambda hp: Net()))


# --- what a state lacks -----------------------------------------------------------------------------------


class Counting(nn.Linear):
    """Its forward depends on the number of calls, which is a plain attribute."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += self.training
        return super().forward(x) / self.calls


def test_an_attribute_of_a_module_is_part_of_the_state() -> None:
    hop_test(torch_trainer(lambda hp: Counting()))


class Drawing(Counting):
    """Keeps its count where no state can find it."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = itertools.count(1)

    def forward(self, x: Any) -> Any:
        return nn.Linear.forward(self, x) / (next(self.counter) if self.training else 1)


def test_an_attribute_that_no_state_can_have_is_named() -> None:
    with pytest.raises(TrainerError, match="counter"):
        hop_test(torch_trainer(lambda hp: Drawing()))


class Ramp(torch.optim.SGD):
    """Its step grows with an attribute that is missing in the state dict."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr=lr)
        self.taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad *= self.taken
        return super().step(closure)


def test_an_attribute_of_an_optimizer_is_carried_or_named() -> None:
    try:
        hop_test(torch_trainer(digits.mlp, optimizer=Ramp))
    except NotReproducibleError as error:
        assert "attribute taken of the optimizer (Ramp)" in str(error)  # noqa: PT017 either is right
    except TrainerError as error:
        assert "taken" in str(error)  # noqa: PT017 refused by name


class Own(Trainer):
    """A user-defined trainer, whose mistakes are given as a set of names."""

    fingerprint = "own"

    def __init__(self, *mistakes: str) -> None:
        self.mistakes = mistakes
        self.common = np.zeros(4)
        self.trained = 0

    def build(self, values: Mapping[str, Scalar], seed: int) -> Any:
        weights = self.common if "shared" in self.mistakes else np.random.default_rng(seed).normal(size=4)
        return {"w": weights, "units": 0, "momentum": np.zeros(4), "lr": values["lr"]}

    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        self.trained += 1
        rate = model["lr"] if "ignores" in self.mistakes else unit.at(0, 1)["lr"]
        noise = np.random.default_rng(None if "unseeded" in self.mistakes else unit.seed).normal(size=4)
        if "clock" in self.mistakes:
            noise += time.perf_counter_ns()
        if "entropy" in self.mistakes:
            noise += os.urandom(1)[0]
        if "global" in self.mistakes:
            noise += self.trained
        model["momentum"] = 0.9 * model["momentum"] + noise
        model["w"] += float(rate) * model["momentum"]
        model["units"] += 1

    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        if "evaluation" in self.mistakes:
            model["w"] *= 0.5
        return {"loss": float(model["w"].sum())}

    def dump(self, model: Any) -> ModelState:
        momentum = {} if "forgets" in self.mistakes else {"momentum": model["momentum"]}
        return ModelState({"w": model["w"], **momentum}, {"units": model["units"]})

    def load(self, model: Any, state: ModelState) -> None:
        np.copyto(model["w"], state.arrays["w"])
        if "forgets" not in self.mistakes:
            model["momentum"] = state.arrays["momentum"].copy()
        model["units"] = state.meta["units"]


def test_a_user_defined_trainer_passes() -> None:
    hop_test(Own(), {"lr": 0.1}, {"lr": 0.01})


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("shared", r"Two models share model\['w'\]"),
        ("unseeded", r"first in w, momentum.*an unseeded generator"),
        ("clock", r"first in w, momentum.*the clock"),
        ("entropy", r"first in w, momentum"),
        ("global", r"first in w, momentum.*a global variable"),
        ("forgets", r"when a state hops to another model.*first in w.*Not part of the state: model\['momentum'\]"),
        ("evaluation", r"first in w"),
    ],
)
def test_mistakes_of_a_trainer_are_named(mistake: str, said: str) -> None:
    with pytest.raises(NotReproducibleError, match=said):
        hop_test(Own(mistake), {"lr": 0.1})


def test_a_schedule_that_is_ignored_is_named() -> None:
    hop_test(Own("ignores"), {"lr": 0.1})
    with pytest.raises(NotReproducibleError, match=r"lr: .*lr from 0.1 to 0.01 .*in w"):
        hop_test(Own("ignores"), {"lr": 0.1}, {"lr": 0.01})


def test_values_that_fail_later_do_not_fail_the_hop_test() -> None:
    hop_test(Own(), {"lr": 0.1}, {"lr": "fast"})


def test_slow_models_are_tested_with_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))  # a unit takes a second
    slow = Own()
    hop_test(slow, {"lr": 0.1})
    assert slow.trained == 4  # two, one of the other model, and the one after the hop
    for mistake in ("shared", "forgets", "unseeded"):
        with pytest.raises(NotReproducibleError):
            hop_test(Own(mistake), {"lr": 0.1})


def test_an_optimizer_schedule_takes_effect() -> None:
    trainer = ht.Torch(lambda hp: nn.Linear(64, 10), loss=nn.functional.cross_entropy)
    values = {"lr": 0.1, "batch_size": 16, "optimizer": "adam"}
    hop_test(trainer, values, {**values, "optimizer": "sgd"})

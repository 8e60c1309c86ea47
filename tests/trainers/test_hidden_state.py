"""Anything that a model remembers outside its parameters is part of its state, or raises an error by name."""

from __future__ import annotations

import copy
from collections import deque

import numpy as np
import pytest
import torch as t
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.trainers import Functions, TrainerError
from tests.trainers.hops import DATA, check_hops, torch, train

CONFIG = {"lr": 0.05, "batch_size": 8}


class Base(nn.Module):
    """A net whose output depends on what it remembers."""

    def __init__(self, hp=None):
        super().__init__()
        self.head = nn.Linear(16, 3)
        self.set_up()

    def set_up(self):
        pass

    def remembered(self, x):
        return 0.0

    def forward(self, x):
        return self.head(x) * (1 + 0.1 * self.remembered(x))


class NotPersistent(Base):
    def set_up(self):
        self.register_buffer("seen", t.zeros(()), persistent=False)
        self.register_buffer("average", t.zeros(16))

    def remembered(self, x):
        if self.training:
            self.seen += 1
            self.average = 0.5 * self.average + x.detach().mean(0)
        return self.seen + self.average.sum()


class MadeByTheFirstBatch(Base):
    def set_up(self):
        self.register_buffer("cache", None, persistent=False)
        self.register_buffer("kept", None)

    def remembered(self, x):
        if self.training:
            self.cache = x.detach()[:1].clone() if self.cache is None else t.cat([self.cache, x.detach()[:1]])
            self.kept = self.cache.mean(0)
        return 0.0 if self.kept is None else self.kept.mean()


class Counter(Base):
    def set_up(self):
        self.count, self.total = 0, 0.0

    def remembered(self, x):
        self.count += self.training
        self.total += float(x.detach().sum()) * self.training
        return self.count / 10 + self.total / 1000


class Lists(Base):
    def set_up(self):
        self.recent, self.window = [], deque(maxlen=3)
        self.table = {"means": [], 1: (0.0, None)}
        self.names = {"a"}

    def remembered(self, x):
        if self.training:
            mean = x.detach().mean()
            self.recent.append(float(mean))
            self.window.append(mean)
            self.table["means"].append(mean)
            self.table[1] = (float(mean), "text")
            self.names.add(f"n{len(self.recent)}")
        last = self.window[-1] if self.window else 0.0
        return sum(self.recent) + last + len(self.names) + self.table[1][0]


class PlainTensor(Base):
    def set_up(self):
        self.average = t.zeros(16)
        self.array = np.zeros(3)
        self.half = t.zeros(2, dtype=t.bfloat16)

    def remembered(self, x):
        if self.training:
            self.average.mul_(0.5).add_(x.detach().mean(0))
            self.array += 1
            self.half += 0.25
        return self.average.sum() + self.array.sum() + self.half.float().sum()


class Generators(Base):
    def set_up(self):
        self.numpy, self.torch = np.random.default_rng(1), t.Generator().manual_seed(2)

    def remembered(self, x):
        if not self.training:
            return 0.0
        return self.numpy.normal() + t.rand((), generator=self.torch)


class Stats:
    def __init__(self):
        self.count = 0
        self.means = []


class Objects(Base):
    def set_up(self):
        self.stats = Stats()

    def remembered(self, x):
        if self.training:
            self.stats.count += 1
            self.stats.means.append(x.detach().mean())
        return self.stats.count + sum(self.stats.means)


class NewAttribute(Base):
    def remembered(self, x):
        if self.training:
            self.later = getattr(self, "later", 0) + 1
        return getattr(self, "later", 0)


class Unfreezes(Base):
    def set_up(self):
        self.count = 0
        self.head.bias.requires_grad_(False)

    def remembered(self, x):
        self.count += self.training
        if self.count == 4:
            self.head.bias.requires_grad_(True)
        return 0.0


@pytest.mark.parametrize(
    "model",
    [NotPersistent, MadeByTheFirstBatch, Counter, Lists, PlainTensor, Generators, Objects, NewAttribute, Unfreezes],
)
@pytest.mark.parametrize("trainer", ["torch", "functions"])
def test_what_a_module_remembers_hops(model, trainer):
    if trainer == "torch":
        check_hops(torch(model, "sgd"), CONFIG)
    else:
        check_hops(functions(model), CONFIG)


def functions(model, optimizer=lambda params: t.optim.SGD(params, lr=0.05)):
    def model_fn(hp):
        module = model(hp)
        return module, optimizer(list(module.parameters()))

    def train_fn(data, module, optimizer, hp):
        loss = cross_entropy(module(t.tensor(data["x"])), t.tensor(data["y"]))
        if optimizer is not None:
            loss.backward()
            optimizer.step()
        return {"loss": loss}

    return Functions(lambda columns: {name: column.copy() for name, column in columns.items()}, model_fn, train_fn)


def test_a_model_without_hidden_state_has_nothing_more_in_its_state():
    trainer = torch(lambda hp: nn.Sequential(nn.LSTM(16, 4), Last(), nn.Dropout(0.1), nn.Linear(4, 3)))
    model = trainer.build({"lr": 0.1, "dropout": 0.1}, 1)
    train(trainer, model, {"lr": 0.1, "dropout": 0.3, "batch_size": 8}, [0])
    assert set(trainer.dump(model).meta) == {"dtypes", "plain", "groups"}


class Last(nn.Module):
    def forward(self, x):
        return x[0]


def test_an_attribute_of_a_module_that_a_state_cannot_hold_is_named():
    class Holder(Base):
        def set_up(self):
            self.inner = nn.Identity()

        def remembered(self, x):
            self.inner.callback = lambda: x
            return 0.0

    trainer = torch(Holder)
    model = trainer.build(CONFIG, 1)
    train(trainer, model, CONFIG, [0])
    expected = (
        r"model: training changes the attribute 'callback' of layer 'inner'.* function.* register it as a buffer"
    )
    with pytest.raises(TrainerError, match=expected):
        trainer.dump(model)


def test_a_list_under_two_names_is_refused():
    class Twice(Base):
        def set_up(self):
            self.one = self.two = []

        def remembered(self, x):
            self.one.append(1)
            return len(self.two)

    trainer = torch(Twice)
    model = trainer.build(CONFIG, 1)
    train(trainer, model, CONFIG, [0])
    with pytest.raises(TrainerError, match=r"the attributes 'one' and 'two' are the same list"):
        trainer.dump(model)


def test_a_hook_that_training_adds_is_refused():
    class Hooked(Base):
        def remembered(self, x):
            if self.training:
                self.head.register_forward_hook(lambda *_: None)
            return 0.0

    trainer = torch(Hooked)
    model = trainer.build(CONFIG, 1)
    train(trainer, model, CONFIG, [0])
    with pytest.raises(TrainerError, match="model: training added or removed a hook"):
        trainer.dump(model)


def test_a_parameter_that_evaluation_changes_is_refused():
    class Restless(Base):
        def remembered(self, x):
            with t.no_grad():
                self.head.bias += 0 if self.training else 1
            return 0.0

    trainer = torch(Restless)
    with pytest.raises(TrainerError, match=r"model: evaluation changes 'head.bias'"):
        trainer.evaluate(trainer.build(CONFIG, 1), DATA[0], CONFIG)


# --- gradients that are left over -------------------------------------------------------------------------


def head_only(params, hp):
    return t.optim.SGD(params[-2:], lr=hp["lr"])


def test_gradients_of_parameters_that_the_optimizer_does_not_hold_are_cleared():
    def net(hp):
        return nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))

    trainer = torch(net, head_only, clip=0.1)
    check_hops(trainer, CONFIG)
    model = trainer.build(CONFIG, 1)
    train(trainer, model, CONFIG, [0])
    assert all(parameter.grad is None for parameter in model.module.parameters())

    def clipping(data, module, optimizer, hp):
        loss = cross_entropy(module(t.tensor(data["x"])), t.tensor(data["y"]))
        if optimizer is not None:
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            optimizer.step()
        return {"loss": loss}

    def model_fn(hp):
        module = net(hp)
        return module, head_only(list(module.parameters()), hp)

    check_hops(Functions(lambda columns: dict(columns), model_fn, clipping), CONFIG)


# --- what two models share --------------------------------------------------------------------------------

BACKBONE = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
FROZEN = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).requires_grad_(False)
CONSTANT = nn.Linear(16, 16).requires_grad_(False)
WEIGHT = t.randn(16, 16)
LAYERS = [nn.Linear(16, 16)]
TEACHER = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).requires_grad_(False).eval()
ACTIVATION = nn.Tanh()
TABLE = t.arange(16.0)


class Shares(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.wrapped = nn.ModuleDict({"backbone": shared})
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.wrapped["backbone"](x))


class Captured(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(WEIGHT)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(x @ self.weight)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            lambda hp: Shares(BACKBONE),
            r"model: layer 'wrapped' is the same|layer 'wrapped.backbone' is the same object",
        ),
        (lambda hp: Shares(LAYERS[0]), r"layer 'wrapped.backbone' is the same object in every model; .*deepcopy"),
        (lambda hp: Captured(), r"model: 'weight' has the same memory in every model; .*deepcopy"),
    ],
)
def test_a_shared_trainable_parameter_is_refused_when_the_second_model_is_built(model, expected):
    trainer = torch(model)
    first = trainer.build(CONFIG, 1)
    with pytest.raises(TrainerError, match=expected):
        trainer.build(CONFIG, 2)
    assert first is not None


def test_a_shared_tensor_that_training_changes_is_refused():
    trainer = torch(lambda hp: Shares(FROZEN))
    trainer.build(CONFIG, 1)
    model = trainer.build(CONFIG, 2)
    train(trainer, model, CONFIG, [0])
    with pytest.raises(TrainerError, match=r"'wrapped.backbone.1.running_mean' is the same tensor in every model"):
        trainer.dump(model)


class Tabled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", TABLE)
        self.act, self.head = ACTIVATION, nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.act(x + self.table / 16))


@pytest.mark.parametrize(
    "model",
    [lambda hp: Shares(CONSTANT), lambda hp: Shares(copy.deepcopy(BACKBONE)), lambda hp: Tabled()],
)
def test_constants_and_copies_may_be_shared(model):
    check_hops(torch(model), CONFIG)


class Calls(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.head = nn.Linear(16, 3)
        self.other = [other] if isinstance(other, nn.Module) else other

    def forward(self, x):
        return self.head(self.other[0](x) if isinstance(self.other, list) else x @ self.other)


def test_a_module_that_is_no_part_of_the_model_is_refused():
    trainer = torch(lambda hp: Calls(copy.deepcopy(BACKBONE)))
    with pytest.raises(TrainerError, match="model: it calls a Sequential that is not one of its parts"):
        train(trainer, trainer.build(CONFIG, 1), CONFIG, [0])
    check_hops(torch(lambda hp: Calls(TEACHER)), CONFIG)


def test_a_tensor_with_a_gradient_that_is_no_parameter_is_refused():
    stray = t.randn(16, 16, requires_grad=True)
    trainer = torch(lambda hp: Calls(stray))
    with pytest.raises(TrainerError, match=r"a tensor of shape \(16, 16\) with a gradient that is not a parameter"):
        train(trainer, trainer.build(CONFIG, 1), CONFIG, [0])


def test_a_loss_with_parameters_of_its_own_is_refused():
    scale = nn.Parameter(t.ones(3))
    trainer = torch(Base, loss=lambda output, target: cross_entropy(output * scale, target))
    with pytest.raises(TrainerError, match=r"model or loss: .* shape \(3,\)"):
        train(trainer, trainer.build(CONFIG, 1), CONFIG, [0])

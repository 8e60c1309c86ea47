"""Every optimizer in torch.optim, and a user's own: a hop, another model in between, a reload change no bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch as t
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.core.schedules import linear, multistep, piecewise
from hoptree.trainers import Functions, Torch, TrainerError
from hoptree.trainers.torch_optimizers import OPTIMIZERS
from tests.trainers.hops import DATA, PARTITIONS, check_hops, torch, train, unit
from tests.trainers.layers import SPARSE, net

CONFIG = {"lr": linear(0.02, 0.01, over=2), "batch_size": 8}


def mlp(hp):
    return nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def matrices(hp):
    return nn.Sequential(nn.Linear(16, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))


def test_every_optimizer_of_torch_is_known_by_name():
    kinds = [
        kind for kind in vars(t.optim).values() if isinstance(kind, type) and issubclass(kind, t.optim.Optimizer)
    ]
    assert {kind.__name__ for kind in kinds} - {"Optimizer"} == set(OPTIMIZERS.values())


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "sparseadam"])
def test_an_optimizer_hops(name):
    check_hops(torch(matrices if name == "muon" else mlp, name), {**CONFIG, "max_iter": 4})


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("layer", SPARSE)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_sparse_gradients_hop(layer, optimizer):
    check_hops(torch(net(layer), optimizer), CONFIG)


def test_sparse_adam_hops():
    def sparse_only(params, hp):
        return t.optim.SparseAdam([each for each in params if each.shape == (10, 3)], lr=hp["lr"])

    check_hops(torch(net("Embedding sparse"), sparse_only), CONFIG)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (t.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (t.optim.AdamW, {"lr": t.tensor(0.01)}),
        (t.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (t.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (t.optim.LBFGS, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 4}),
        (t.optim.Rprop, {"etas": (0.4, 1.3)}),
        (t.optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ],
)
def test_options_of_an_optimizer_hop(kind, options):
    config = {"batch_size": 8, "lr": 0.02}
    check_hops(torch(mlp, lambda params, hp: kind(params, **{"lr": 0.01, **options})), config)


def test_lbfgs_learns_as_a_user_defined_loop_does():
    data, config = DATA[0], {"lr": 0.5, "max_iter": 3, "batch_size": 16}
    trainer = torch(matrices, "lbfgs")
    model, plain = trainer.build(config, 3), trainer.build(config, 3).module
    train(trainer, model, config, [0])
    optimizer = t.optim.LBFGS(plain.parameters(), lr=0.5, max_iter=3)
    order = np.random.Generator(np.random.PCG64(0)).permutation(16)
    x, y = t.tensor(data["x"][order]), t.tensor(data["y"][order])

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(plain(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert t.equal(model.module[0].weight, plain[0].weight)


class Own(t.optim.Optimizer):
    """A user's own optimizer, which keeps all kinds of objects in all kinds of places."""

    def __init__(self, params, lr=0.1, pull=0.0):
        super().__init__(params, {"lr": lr, "history": [], "seen": {"steps": 0}})
        self.count = 0
        self.rng = np.random.default_rng(3)
        self.generator = t.Generator().manual_seed(4)
        self.dice = random.Random(5)
        self.recent = []
        self.average = t.zeros(2)
        self.table = {"last": None, 3: (1, 2)}
        self.pull = pull

    @t.no_grad()
    def step(self, closure=None):
        self.count += 1
        noise = self.rng.normal() + t.rand(1, generator=self.generator).item() + self.dice.random()
        self.average += noise
        self.recent = [*self.recent[-2:], noise]
        self.table["last"] = float("inf") if self.count == 1 else self.recent[-1]
        self.state["common"] = {"total": sum(self.recent), "tensor": self.average * 2}
        for group in self.param_groups:
            group["history"].append(self.count)
            group["seen"]["steps"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    size = group["lr"] / (1 + self.count) + 1e-4 * noise + 1e-3 * self.state["common"]["total"]
                    parameter -= (size + 1e-5 * len(group["history"])) * parameter.grad + self.pull * parameter
                    self.state[parameter]["norms"] = (float(parameter.norm()), [parameter.norm()])


def test_what_a_users_optimizer_remembers_is_part_of_the_state():
    config = {"lr": 0.1, "pull": linear(0.1, 0.0, over=2), "batch_size": 8}
    before, after = check_hops(torch(mlp, Own), config)
    assert "packed" not in before.meta or not any(name.startswith("attribute") for name in before.meta["packed"])
    assert {"attribute/optimizer:count", "attribute/optimizer:rng", "optimizer/common"} <= set(after.meta["packed"])


def test_an_attribute_of_an_optimizer_that_a_state_cannot_hold_is_named():
    class Holder(Own):
        def step(self, closure=None):
            super().step()
            self.callback = lambda: 3

    trainer = torch(mlp, Holder)
    model = trainer.build({"lr": 0.1}, 1)
    train(trainer, model, {"lr": 0.1}, [0])
    with pytest.raises(TrainerError, match="optimizer: training changes its attribute 'callback'.* function"):
        trainer.dump(model)


def test_a_changing_option_outside_the_optimizers_groups_is_refused():
    class Doubled(Own):
        def __init__(self, params, lr=0.1, factor=1.0):
            super().__init__(params, lr)
            self.twice = 2 * factor

    trainer = torch(mlp, Doubled)
    model = trainer.build({"lr": 0.1, "factor": 1.0}, 1)
    train(trainer, model, {"lr": 0.1, "factor": 1.0}, [0])
    with pytest.raises(TrainerError, match=r"factor: 2.0, but the optimizer Doubled was created with 1.0"):
        train(trainer, model, {"lr": 0.1, "factor": 2.0}, [0])

    by_function = torch(mlp, lambda params, hp: Doubled(params, hp["lr"], hp["factor"]))
    model = by_function.build({"lr": 0.1, "factor": 1.0}, 1)
    with pytest.raises(TrainerError, match=r"the attribute 'twice' of Doubled would differ"):
        train(by_function, model, {"lr": 0.1, "factor": 2.0}, [0])


# --- another optimizer by schedule ------------------------------------------------------------------------

SWITCH = piecewise(["adam", "sgd"], at=[1])


def by_function(params, hp):
    if hp["optimizer"] == "adam":
        return t.optim.Adam(params, lr=hp["lr"])
    return t.optim.SGD(params, lr=hp["lr"], momentum=0.9)


def model_fn(hp):
    module = mlp(hp)
    return module, by_function(module.parameters(), hp)


def train_fn(data, model, optimizer, hp):
    total = 0.0
    for number, (x, y) in enumerate(zip(data[0].split(8), data[1].split(8), strict=True)):
        hp.advance(number / 2)
        loss = cross_entropy(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return {"loss": total}


def input_fn(columns):
    return t.tensor(columns["x"]), t.tensor(columns["y"])


TRAINERS = {
    "by name": lambda: torch(mlp),
    "by function": lambda: torch(mlp, by_function),
    "functions": lambda: Functions(input_fn, model_fn, train_fn),
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_optimizer_by_schedule_hops(trainer):
    config = {"optimizer": piecewise(["adam", "sgd", "adam"], at=[1, 2]), "lr": linear(0.02, 0.01, over=3)}
    check_hops(TRAINERS[trainer](), {**config, "batch_size": 8}, units=6)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_optimizer_by_schedule_begins_with_an_empty_state_and_follows_its_options(trainer):
    config = {"optimizer": SWITCH, "lr": multistep(0.02, at=[1], gamma=0.5), "momentum": 0.9, "batch_size": 8}
    maker = TRAINERS[trainer]()
    model = maker.build({"optimizer": "adam", "lr": 0.02, "momentum": 0.9}, 1)
    train(maker, model, config, range(PARTITIONS))
    assert type(model.tuned.optimizer) is t.optim.Adam
    weights = maker.dump(model).arrays["model.0.weight"].copy()
    train(maker, model, config, [PARTITIONS])
    assert type(model.tuned.optimizer) is t.optim.SGD
    assert model.tuned.optimizer.param_groups[0]["lr"] == 0.01
    assert model.tuned.optimizer.param_groups[0]["momentum"] == 0.9
    assert set(model.tuned.optimizer.state[model.module[0].weight]) == {"momentum_buffer"}
    # The same as SGD from the start, on weights that adam has trained.
    other = maker.build({"optimizer": "sgd", "lr": 0.01, "momentum": 0.9}, 2)
    early = maker.dump(other)
    sgd = {**config, "optimizer": "sgd", "lr": 0.01}
    moved = {name: array.copy() for name, array in early.arrays.items()}
    twin = maker.build({"optimizer": "adam", "lr": 0.02, "momentum": 0.9}, 1)
    train(maker, twin, config, range(PARTITIONS))
    moved |= {name: value for name, value in maker.dump(twin).arrays.items() if name.startswith("model.")}
    maker.load(other, type(early)(moved, early.meta))
    maker.train(other, DATA[0], unit(sgd, PARTITIONS))
    assert t.equal(other.module[0].weight, model.module[0].weight)
    assert not np.array_equal(weights, model.module[0].weight.detach().numpy())


def test_an_unknown_optimizer_in_a_config_is_named():
    with pytest.raises(TrainerError, match="optimizer: 'sgdd' is unknown; expected one of"):
        torch(mlp).build({"optimizer": "sgdd"}, 1)
    with pytest.raises(TrainerError, match=r"optimizer: 3 in the config; expected the name"):
        torch(mlp).build({"optimizer": 3}, 1)
    with pytest.raises(TrainerError, match="optimizer: Muon rejected .*2D"):
        torch(mlp, "muon").build({"lr": 0.1}, 1)


def test_the_config_decides_before_the_trainers_name():
    trainer = torch(mlp, "sgd")
    model = trainer.build({"optimizer": "adagrad", "lr": 0.1, "momentum": 0.5}, 1)
    assert type(model.tuned.optimizer) is t.optim.Adagrad
    assert trainer.unread(model, {"optimizer": "adagrad", "lr": 0.1, "momentum": 0.5, "typo": 1}) == ["typo"]


def test_functions_may_not_switch_within_a_unit():
    trainer = TRAINERS["functions"]()
    config = {"optimizer": piecewise(["adam", "sgd"], at=[1 / 4]), "lr": 0.1}
    model = trainer.build({"optimizer": "adam", "lr": 0.1}, 1)
    with pytest.raises(TrainerError, match="optimizer: Adam would become SGD within a unit"):
        train(trainer, model, config, [0])


def test_an_optimizer_may_hold_only_the_models_parameters():
    stray = nn.Parameter(t.zeros(5))
    trainer = Torch(mlp, loss=cross_entropy, optimizer=lambda params, hp: t.optim.SGD([*params, stray], lr=0.1))
    with pytest.raises(TrainerError, match=r"optimizer: it holds a parameter of shape \(5,\) that does not belong"):
        trainer.build({}, 1)

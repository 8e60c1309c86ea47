"""Values reach the optimizer, the batches, the dropout and the model function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.core.schedules import linear, multistep
from hoptree.trainers import Functions, Torch
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_loop import steps
from tests.trainers import digits
from tests.trainers.digits import PARTITIONS, partition, train, unit


def watched(optimizer, config, units=(0,), names=("lr",)):
    """Train and return the group options at every step."""
    seen = []

    def make(hp):
        return digits.mlp(hp)

    trainer = Torch(make, loss=cross_entropy, optimizer=optimizer)
    model = trainer.build(unit(config, 0).at(0, 1), 1)
    model.tuned.optimizer.register_step_pre_hook(
        lambda opt, *_: seen.append([tuple(group[name] for name in names) for group in opt.param_groups])
    )
    train(trainer, model, config, units)
    return seen


@pytest.mark.parametrize("later", [16, None, multistep(8, at=[1 / 3], gamma=2)])
def test_what_a_model_is_built_from_stays(later):
    trainer = Torch(lambda hp: nn.Linear(64, hp.get("width", 10)), loss=cross_entropy, optimizer="sgd")
    config = {"lr": 0.1, "width": 10}
    model = trainer.build(unit(config, 0).at(0, 1), 1)
    train(trainer, model, {"lr": 0.2, "width": 10, "unread": 7}, units=(0,))
    changed = {"lr": 0.1} if later is None else {"lr": 0.1, "width": later}
    with pytest.raises(TrainerError, match=r"^width: .*, but the model was built with 10, .* keep width constant"):
        train(trainer, model, changed, units=(0,))


def test_a_model_function_that_would_make_another_model_is_refused():
    def model_fn(hp):
        module = nn.Linear(64, hp["width"])
        return module, torch.optim.SGD(module.parameters(), lr=hp["lr"])

    trainer = Functions(lambda columns: columns, model_fn, lambda data, model, optimizer, hp: {"loss": 0.0})
    model = trainer.build({"lr": 0.1, "width": 10}, 1)
    model.apply({"lr": 0.2, "width": 10})
    assert model.tuned.optimizer.param_groups[0]["lr"] == 0.2
    with pytest.raises(
        TrainerError, match=r"model_fn: weight would have the shape \(16, 64\) .* keep the values that its shape"
    ):
        model.apply({"lr": 0.2, "width": 16})


def test_a_schedule_moves_the_rate_at_every_step():
    schedule = linear(0.1, 0.0, over=1)
    seen = watched("sgd", {"lr": schedule, "batch_size": 50})
    assert [step[0][0] for step in seen] == [schedule(start / 200 / PARTITIONS) for start in (0, 50, 100, 150)]


def test_all_group_options_by_name():
    config = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.2, "nesterov": True, "dampening": 0}
    assert watched("SGD", config, names=list(config))[0] == [tuple(config.values())]
    config = {"lr": 0.1, "beta1": 0.5, "beta2": multistep(0.9, at=[1 / 3], gamma=1.1), "eps": 1e-3}
    seen = watched("adam", config, units=(0, 1), names=("betas", "eps"))
    assert seen[0] == [((0.5, 0.9), 1e-3)]
    assert seen[-1] == [((0.5, 0.9 * 1.1), 1e-3)]
    assert watched("adam", {"lr": 0.1, "beta1": 0.5}, names=("betas",))[0] == [((0.5, 0.999),)]
    assert watched(torch.optim.RMSprop, {"lr": 0.1, "alpha": 0.5}, names=("alpha",))[0] == [(0.5,)]


def test_groups_of_a_function_keep_their_own_values():
    def two_rates(params, hp):
        return torch.optim.SGD([{"params": params[:1], "lr": hp["lr"] / 10}, {"params": params[1:]}], lr=hp["lr"])

    config = {"lr": multistep(1.0, at=[1 / 3], gamma=0.5), "weight_decay": 0.25}
    seen = watched(two_rates, config, units=(0, 1), names=("lr", "weight_decay"))
    assert seen[0] == [(0.1, 0.25), (1.0, 0.25)]
    assert seen[-1] == [(0.05, 0.25), (0.5, 0.25)]


def test_dropout_follows_its_value_where_the_model_used_it():
    def net(hp):
        return nn.Sequential(nn.Dropout(hp["dropout"]), nn.Linear(64, 10), nn.Dropout1d(0.5))

    config = {"lr": 0.1, "dropout": multistep(0.25, at=[1 / 3], gamma=2)}
    trainer = Torch(net, loss=cross_entropy)
    model = trainer.build(unit(config, 0).at(0, 1), 1)
    config["dropout"] = multistep(0.25, at=[1 / 3], gamma=3)
    train(trainer, model, config, [0])
    assert (model.module[0].p, model.module[2].p) == (0.25, 0.5)
    train(trainer, model, config, [1])
    assert (model.module[0].p, model.module[2].p) == (0.75, 0.5)


@given(
    examples=st.integers(0, 300),
    accumulate=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 64), st.integers(1, 64)),
    number=st.integers(0, 5),
)
@settings(max_examples=100, deadline=None)
def test_steps_cover_every_example_once_in_order(examples, accumulate, sizes, number):
    config = {"batch_size": linear(*map(float, sizes), over=1)}
    plan = list(steps(unit(config, number), examples, accumulate))
    spans = [span for step in plan for span in step.batches]
    assert [index for start, stop in spans for index in range(start, stop)] == list(range(examples))
    assert all(len(step.batches) == accumulate for step in plan[:-1])
    assert all(stop - start <= max(sizes) for start, stop in spans)


def test_the_size_of_batches_may_change_within_a_unit():
    plan = list(steps(unit({"batch_size": multistep(20, at=[1 / 6], gamma=3)}, 0), 200, 1))
    assert [stop - start for step in plan for start, stop in step.batches] == [20] * 5 + [60, 40]


def test_columns_of_any_number_type_and_layout_train():
    columns = partition(0)
    variants = [
        {"x": columns["x"].astype("float64"), "y": columns["y"].astype("int32")},
        {"x": columns["x"].astype(">f4"), "y": columns["y"].astype("uint8")},
        {"x": np.asfortranarray(columns["x"]), "y": np.repeat(columns["y"], 2)[::2]},
    ]
    trainer = Torch(digits.mlp, loss=cross_entropy)
    states = []
    for data in (columns, *variants):
        model = trainer.build({"lr": 0.1}, 1)
        trainer.train(model, data, unit({"lr": 0.1}, 0))
        states.append(trainer.dump(model))
    for state in states[1:]:
        assert digits.states_equal(states[0], state)


def test_several_inputs_in_the_order_named():
    class Sum(nn.Module):
        def __init__(self, hp):
            super().__init__()
            self.left, self.right = nn.Linear(32, 10), nn.Linear(32, 10)

        def forward(self, left, right):
            return self.left(left) + self.right(right), left

    def loss(output, target):
        return cross_entropy(output[0], target)

    x = partition(0)["x"]
    data = {"b": x[:, 32:], "label": partition(0)["y"], "a": x[:, :32]}
    trainer = Torch(Sum, loss=loss, inputs=["a", "b"], target="label", metrics={"n": lambda o, t: len(o[1])})
    model = trainer.build({}, 0)
    trainer.train(model, data, unit({"lr": 0.1}, 0))
    assert trainer.evaluate(model, data, {})["n"] == len(x)


def test_names_that_nothing_reads_are_known():
    def net(hp):
        return nn.Sequential(nn.Linear(64, hp["width"]), nn.Dropout(), nn.Linear(hp["width"], 10))

    config = {
        "lr": 0.1,
        "beta1": 0.8,
        "width": 8,
        "batch_size": 16,
        "dropout": 0.1,
        "learning_rate": 0.2,
        "wide": 4,
    }
    by_name = Torch(net, loss=cross_entropy, optimizer="adam")
    assert by_name.unread(by_name.build(config, 1), config) == ["learning_rate", "wide"]
    by_function = Torch(
        net, loss=cross_entropy, optimizer=lambda params, hp: torch.optim.SGD(params, lr=hp["learning_rate"])
    )
    assert by_function.unread(by_function.build(config, 1), config) == ["wide"]
    everything = Torch(lambda hp: net(dict(hp)), loss=cross_entropy, optimizer="sgd")
    assert everything.unread(everything.build(config, 1), config) == []
    still = Torch(lambda hp: nn.Linear(64, 10), loss=cross_entropy, optimizer="sgd")
    assert still.unread(still.build({"dropout": 0.1}, 1), {"dropout": 0.1}) == ["dropout"]


def test_names_that_a_user_defined_loop_reads_are_known():
    def model_fn(hp):
        module = nn.Linear(64, 10)
        return module, torch.optim.SGD(module.parameters(), lr=hp["lr"])

    trainer = Functions(lambda columns: columns, model_fn, lambda data, model, opt, hp: {"loss": hp["smooth"]})
    config = {"lr": 0.1, "smooth": 0.5, "batch_size": 16}
    model = trainer.build(config, 1)
    train(trainer, model, config, units=(0,))
    assert trainer.unread(model, config) == ["batch_size"]

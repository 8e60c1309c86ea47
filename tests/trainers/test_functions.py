"""The three functions of the Cerebro paper, with a user-defined loop."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from hoptree.core.schedules import multistep
from hoptree.trainers import Diverged, Functions, ModelState, TrainerError, accuracy, rehearse
from tests.trainers import digits
from tests.trainers.digits import partition, states_equal, train

CONFIG = {"lr": 0.01, "dropout": 0.25}


def input_fn(columns):
    return torch.tensor(columns["x"]), torch.tensor(columns["y"])


def model_fn(config):
    model = digits.mlp(config)
    return model, torch.optim.Adam(model.parameters(), lr=config["lr"])


def train_fn(data, model, optimizer, config):
    x, y = data
    order = torch.randperm(len(x)) if optimizer else torch.arange(len(x))
    total, right = 0.0, 0.0
    for batch in order.split(64):
        output = model(x[batch])
        loss = cross_entropy(output, y[batch])
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(batch)
        right += accuracy(output, y[batch]) * len(batch)
    return {"loss": total / len(x), "accuracy": right / len(x)}


def copied(state):
    return ModelState({name: array.copy() for name, array in state.arrays.items()}, state.meta)


def test_it_learns_digits_and_evaluation_changes_nothing():
    trainer = Functions(input_fn, model_fn, train_fn)
    model = trainer.build(CONFIG, 0)
    train(trainer, model, CONFIG, range(18))
    before = copied(trainer.dump(model))
    generator = torch.get_rng_state()
    metrics = trainer.evaluate(model, partition(-1), CONFIG)
    assert metrics["accuracy"] > 0.85
    assert trainer.evaluate(model, partition(-1), CONFIG) == metrics
    assert states_equal(trainer.dump(model), before)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(parameter.requires_grad for parameter in model.module.parameters())
    assert model.module.training


def test_evaluation_is_frozen_even_for_a_loop_that_ignores_it():
    def stubborn(data, model, optimizer, config):
        model.train()
        assert not any(parameter.requires_grad for parameter in model.parameters())
        return {"loss": model(data[0]).mean()}

    trainer = Functions(input_fn, model_fn, stubborn)
    model = trainer.build(CONFIG, 0)
    before = copied(trainer.dump(model))
    trainer.evaluate(model, partition(-1), CONFIG)
    assert states_equal(trainer.dump(model), before)


def test_hopping_changes_no_bit_and_schedules_reach_the_optimizer():
    config = {**CONFIG, "lr": multistep(0.01, at=[1], gamma=0.1)}
    trainer = Functions(input_fn, model_fn, train_fn)
    straight = trainer.build(CONFIG, 1)
    train(trainer, straight, config, range(5))
    hopping = trainer.build(CONFIG, 1)
    for number in range(5):
        train(trainer, hopping, config, [number])
        state = copied(trainer.dump(hopping))
        hopping = trainer.build(CONFIG, 2)
        trainer.load(hopping, state)
    assert states_equal(trainer.dump(straight), trainer.dump(hopping))
    assert straight.tuned.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)


def test_data_is_prepared_once_per_partition():
    calls = []

    def counting(columns):
        calls.append(1)
        return input_fn(columns)

    for cache, expected in ((True, 3), (False, 6)):
        calls.clear()
        trainer = Functions(counting, model_fn, train_fn, cache=cache)
        train(trainer, trainer.build(CONFIG, 0), CONFIG, range(6))
        assert len(calls) == expected


def raising(*arguments):
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (
            (raising, model_fn, train_fn),
            r"RuntimeError: mine\n[\s\S]*input_fn: it raised this for the columns x \(64, 64\)",
        ),
        ((input_fn, raising, train_fn), r"RuntimeError: mine\n[\s\S]*model_fn: the function that builds"),
        (
            (input_fn, model_fn, raising),
            r"RuntimeError: mine\n[\s\S]*train_fn: it raised this when called to train",
        ),
        ((input_fn, digits.mlp, train_fn), r"model_fn: it returned Sequential; expected \(model, optimizer\)"),
        ((input_fn, model_fn, lambda d, m, o, c: None), "train_fn: it returned NoneType"),
        ((input_fn, model_fn, lambda d, m, o, c: {"loss": "low"}), "metric 'loss': it returned low"),
    ],
)
def test_failures_are_reported_by_name(functions, expected):
    with pytest.raises(TrainerError, match=expected):
        rehearse(Functions(*functions), CONFIG, partition(0), partition(-1))


def test_divergence_and_arguments():
    trainer = Functions(input_fn, model_fn, lambda d, m, o, c: {"loss": float("nan")})
    with pytest.raises(Diverged, match="train_fn: it returned the loss nan for unit 0"):
        train(trainer, trainer.build(CONFIG, 0), CONFIG, [0])
    with pytest.raises(TrainerError, match="train_fn: 3; expected a function"):
        Functions(input_fn, model_fn, 3)


def test_fingerprints_follow_the_functions():
    def other(data, model, optimizer, config):
        return {}

    prints = [Functions(input_fn, model_fn, function).fingerprint for function in (train_fn, train_fn, other)]
    assert prints[0] == prints[1] != prints[2]

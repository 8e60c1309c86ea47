"""A unit is a pure function: same state, data, values and seed in, same bits out."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.core.schedules import linear, multistep
from hoptree.trainers import Diverged, ModelState, Torch, TrainerError, accuracy
from tests.trainers import digits
from tests.trainers.digits import partition, states_equal, train, unit

CONFIG = {"lr": 0.01, "dropout": 0.25, "batch_size": 48, "weight_decay": 1e-3}


def copied(state):
    """Return a state as a file or another process would give it: other memory, read-only."""
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    return ModelState(arrays, state.meta)


def two_groups(params, hp):
    return torch.optim.SGD([{"params": params[:2], "lr": hp["lr"] / 10}, {"params": params[2:]}], lr=hp["lr"])


@pytest.mark.parametrize("model", [digits.mlp, digits.Cnn, digits.Lstm, digits.Transformer])
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
def test_hopping_through_a_state_changes_no_bit(model, optimizer):
    trainer = Torch(model, loss=cross_entropy, optimizer=optimizer)
    config = {**CONFIG, "momentum": 0.9, "lr": linear(0.01, 0.001, over=2), "dropout": linear(0.4, 0.1, over=2)}
    start = {name: 0.4 if name == "dropout" else 0.01 if name == "lr" else value for name, value in config.items()}
    straight = trainer.build(start, seed=7)
    train(trainer, straight, config, range(4))

    hopping = trainer.build(start, seed=7)
    for number in range(4):
        train(trainer, hopping, config, [number])
        state = copied(trainer.dump(hopping))
        hopping = trainer.build(start, seed=99)
        trainer.load(hopping, state)
    assert states_equal(trainer.dump(straight), trainer.dump(hopping))


@pytest.mark.parametrize(
    "optimizer",
    ["adamw", "nadam", "radam", "adagrad", "adadelta", "adamax", "asgd", "rprop", "adafactor", two_groups],
)
def test_every_optimizer_hops(optimizer):
    trainer = Torch(digits.mlp, loss=cross_entropy, optimizer=optimizer)
    config = {"lr": multistep(0.01, at=[2 / 3], gamma=0.1), "batch_size": 64}
    straight, fresh = (trainer.build({"lr": 0.01}, seed) for seed in (1, 2))
    train(trainer, straight, config, range(2))
    trainer.load(fresh, copied(trainer.dump(straight)))
    train(trainer, straight, config, [2])
    train(trainer, fresh, config, [2])
    assert states_equal(trainer.dump(straight), trainer.dump(fresh))


def test_a_cached_model_keeps_nothing_of_its_earlier_state():
    trainer = Torch(digits.mlp, loss=cross_entropy)
    model = trainer.build(CONFIG, 1)
    untrained = copied(trainer.dump(model))
    train(trainer, model, CONFIG, [0, 1])
    once = copied(trainer.dump(model))
    trainer.load(model, untrained)
    assert states_equal(trainer.dump(model), untrained)
    train(trainer, model, CONFIG, [0, 1])
    assert states_equal(trainer.dump(model), once)


def test_an_optimizer_function_that_draws_numbers_changes_no_bit():
    def drawing(params, hp):
        torch.rand(3)
        return torch.optim.Adam(params, lr=hp["lr"])

    def after_load(reload):
        trainer = Torch(digits.mlp, loss=cross_entropy, optimizer=drawing)
        model = trainer.build(CONFIG, 1)
        train(trainer, model, CONFIG, [0])
        if reload:
            trainer.load(model, copied(trainer.dump(model)))
        train(trainer, model, CONFIG, [1])
        return copied(trainer.dump(model))

    assert states_equal(after_load(True), after_load(False))


def test_dump_is_a_view_and_load_is_in_place():
    trainer = Torch(digits.mlp, loss=cross_entropy)
    model = trainer.build(CONFIG, 1)
    weight = trainer.export(model)[0].weight
    assert np.shares_memory(trainer.dump(model).arrays["model.0.weight"], weight.detach().numpy())
    other = trainer.build(CONFIG, 2)
    trainer.load(model, trainer.dump(other))
    assert trainer.export(model)[0].weight is weight
    assert torch.equal(weight, other.module[0].weight)


def test_types_that_numpy_lacks_are_kept_bit_by_bit():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(64, 10).to(torch.bfloat16)

        def forward(self, x):
            return self.inner(x.to(torch.bfloat16)).float()

    trainer = Torch(lambda hp: Half(), loss=cross_entropy)
    model, other = trainer.build(CONFIG, 1), trainer.build(CONFIG, 2)
    train(trainer, model, CONFIG, [0])
    state = copied(trainer.dump(model))
    assert state.arrays["model.inner.weight"].dtype == np.uint16
    assert state.meta["dtypes"]["model.inner.weight"] == "bfloat16"
    trainer.load(other, state)
    assert torch.equal(other.module.inner.weight, model.module.inner.weight)
    assert states_equal(trainer.dump(other), state)


@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
def test_it_learns_digits(precision):
    trainer = Torch(digits.mlp, loss=cross_entropy, metrics={"accuracy": accuracy}, precision=precision)
    model = trainer.build(CONFIG, 0)
    before = trainer.evaluate(model, partition(-1), CONFIG)
    train(trainer, model, CONFIG, range(18))
    after = trainer.evaluate(model, partition(-1), CONFIG)
    assert set(after) == {"loss", "accuracy"}
    assert after["accuracy"] > 0.85 > before["accuracy"]
    assert trainer.evaluate(model, partition(-1), CONFIG) == after


def surroundings():
    return (
        random.getstate(),
        str(np.random.get_state()),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def test_the_callers_generators_and_settings_are_as_before():
    def failing(output, target):
        raise ValueError("no")

    good = Torch(digits.mlp, loss=cross_entropy, precision="float64", threads=2)
    bad = Torch(digits.mlp, loss=failing)
    before = surroundings()
    model = good.build(CONFIG, 1)
    with torch.no_grad():
        train(good, model, CONFIG, [0])
    good.evaluate(model, partition(-1), CONFIG)
    with pytest.raises(TrainerError):
        train(bad, bad.build(CONFIG, 1), CONFIG, [0])
    assert surroundings() == before


def test_evaluation_leaves_modes_and_state_alone():
    trainer = Torch(digits.mlp, loss=cross_entropy)
    model = trainer.build(CONFIG, 1)
    train(trainer, model, CONFIG, [0])
    model.module[1].eval()
    before = copied(trainer.dump(model))
    trainer.evaluate(model, partition(-1), CONFIG)
    assert [part.training for part in model.module] == [True, False, True, True, True]
    assert states_equal(trainer.dump(model), before)


def test_accumulated_batches_are_one_large_batch():
    def linear_net(hp):
        return nn.Linear(64, 10)

    whole = Torch(linear_net, loss=cross_entropy, optimizer="sgd")
    parts = Torch(linear_net, loss=cross_entropy, optimizer="sgd", accumulate=4)
    one, two = whole.build({"lr": 0.1}, 1), parts.build({"lr": 0.1}, 1)
    train(whole, one, {"lr": 0.1, "batch_size": 64}, range(3))
    train(parts, two, {"lr": 0.1, "batch_size": 16}, range(3))
    torch.testing.assert_close(one.module.weight, two.module.weight)


def test_clipping_bounds_a_step():
    trainer = Torch(lambda hp: nn.Linear(64, 10), loss=cross_entropy, optimizer="sgd", clip=1e-3)
    model = trainer.build({"lr": 1.0}, 1)
    before = {name: array.copy() for name, array in trainer.dump(model).arrays.items()}
    train(trainer, model, {"lr": 1.0, "batch_size": 10_000}, [0])
    moved = sum(((array - before[name]) ** 2).sum() for name, array in trainer.dump(model).arrays.items())
    assert 0 < moved**0.5 <= 1.001e-3


def test_nan_is_divergence_with_step_and_values():
    trainer = Torch(lambda hp: nn.Linear(64, 10), loss=lambda o, t: o.square().sum(), optimizer="sgd")
    model = trainer.build({"lr": 1e30}, 1)
    with pytest.raises(Diverged, match=r"loss: (inf|nan) at step \d+ .*lr=1e\+30.*smaller learning rate"):
        train(trainer, model, {"lr": 1e30}, range(3))
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_examples_are_permuted_by_the_shuffle_seed_alone():
    seen = []

    def spy(output, target):
        seen.append(target.clone())
        return cross_entropy(output, target)

    trainer = Torch(digits.mlp, loss=spy)
    orders = []
    for seed in (0, 5):
        seen.clear()
        trainer.train(trainer.build(CONFIG, 0), partition(1), unit(CONFIG, 1, seed=seed))
        orders.append(torch.cat(seen))
    assert [len(batch) for batch in seen] == [48, 48, 48, 48, 8]
    expected = np.random.Generator(np.random.PCG64(1)).permutation(200)
    assert np.array_equal(orders[0], partition(1)["y"][expected])
    assert torch.equal(*orders)

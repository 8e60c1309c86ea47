"""A batch in shards: the documented rules give the bits, and hops change none."""

from __future__ import annotations

import random
from importlib.metadata import version

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.identity.fingerprints import fingerprint
from hoptree.trainers import Torch, rehearse
from hoptree.trainers.torch_session import session
from hoptree.trainers.torch_shards import cut
from tests.trainers import digits, hops, plain_shards
from tests.trainers.digits import partition, states_equal, unit

NETS = {"mlp": digits.mlp, "cnn": digits.Cnn, "transformer": digits.Transformer, "lstm": digits.Lstm}


def trained(trainer, values, units=2):
    model = trainer.build(values, 7)
    digits.train(trainer, model, values, range(units))
    return trainer.dump(model)


def plainly_trained(trainer, values, units=2, **rules):
    """Build a model, and train it by a loop that knows the rules only."""
    model = trainer.build(values, 7)
    for number in range(units):
        spec = unit(values, number)
        with session(spec.seed, threads=1, dtype=torch.float32, device=torch.device("cpu")):
            plain_shards.train(
                model.module,
                model.tuned.optimizer,
                partition(number % digits.PARTITIONS),
                spec,
                size=values["batch_size"],
                loss=cross_entropy,
                **rules,
            )
    return trainer.dump(model)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(
    ("size", "accumulate", "clip"),
    [(48, 1, None), (46, 1, 0.3), (39, 1, 0.3), (30, 4, 0.1)],
    ids=["equal shards", "shards of 12 and 11", "a last batch of 5", "four batches per step"],
)
def test_the_documented_rules_give_the_bits(net, size, accumulate, clip):
    values = {"lr": 0.01, "dropout": 0.25, "batch_size": size, "weight_decay": 1e-3}
    trainer = Torch(NETS[net], loss=cross_entropy, shards=4, accumulate=accumulate, clip=clip)
    expected = plainly_trained(trainer, values, shards=4, accumulate=accumulate, clip=clip)
    assert states_equal(trained(trainer, values), expected)


@pytest.mark.parametrize("shards", [2, 8, 16])
def test_any_number_of_shards(shards):
    values = {"lr": 0.01, "dropout": 0.25, "batch_size": 33}
    trainer = Torch(digits.Cnn, loss=cross_entropy, shards=shards)
    assert states_equal(trained(trainer, values), plainly_trained(trainer, values, shards=shards))


def test_generators_of_every_kind_are_set_for_every_shard():
    def noise(x, y, hp):
        scale = random.random() + np.random.rand()
        return x + scale * torch.rand_like(x), y

    values = {"lr": 0.01, "batch_size": 46}
    trainer = Torch(digits.mlp, loss=cross_entropy, transform=noise, shards=4)
    assert states_equal(trained(trainer, values), plainly_trained(trainer, values, shards=4, transform=noise))


class Langevin(torch.optim.SGD):
    """An optimizer that draws numbers."""

    def step(self, closure=None):
        super().step()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(torch.randn_like(parameter), alpha=0.01)


def test_an_optimizer_that_draws_numbers_does_not_depend_on_shards_before_it():
    values = {"lr": 0.01, "batch_size": 39}
    trainer = Torch(digits.mlp, loss=cross_entropy, optimizer=Langevin, shards=4)
    assert states_equal(trained(trainer, values), plainly_trained(trainer, values, shards=4))


class Experts(nn.Module):
    """Each shard uses some of the experts only; one is never used."""

    def __init__(self, hp):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(64, 10) for _ in range(4))
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        chosen = int(x.sum().item()) % 4
        return self.experts[chosen](x) + 0.1 * self.experts[0](x)


def test_a_parameter_without_a_gradient_in_some_shards():
    values = {"lr": 0.01, "batch_size": 46}
    trainer = Torch(Experts, loss=cross_entropy, shards=4, clip=0.5)
    found = trained(trainer, values)
    assert states_equal(found, plainly_trained(trainer, values, shards=4, clip=0.5))
    assert not any(name.startswith(("optimizer.8", "optimizer.9")) for name in found.arrays)
    assert any(name.startswith("optimizer.2") for name in found.arrays)


class Counting(nn.Module):
    """Keeps a constant, a counter of floats, one of whole numbers, a running mean, and a buffer that comes late."""

    def __init__(self, hp):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("mask", torch.full((10,), 0.1))
        self.register_buffer("hidden", torch.tensor([-torch.inf, 0.0]), persistent=False)
        self.register_buffer("steps", torch.tensor(0.1))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("late", None)

    def forward(self, x):
        if self.training:
            self.steps = self.steps + 0.1
            self.calls += 1
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.late = torch.ones(3)
        return self.linear(x - self.mean) + self.mask


def test_buffers_that_agree_are_kept_and_others_are_averaged():
    values = {"lr": 0.01, "batch_size": 39}
    trainer = Torch(Counting, loss=cross_entropy, shards=4)
    found = trained(trainer, values, units=1).arrays
    assert (found["model.mask"] == np.float32(0.1)).all()
    assert found["buffer.hidden"].tolist() == [-np.inf, 0.0]
    assert found["model.calls"] == 6  # once per batch, not per shard
    steps = np.float32(0.1)
    for _ in range(6):
        steps += np.float32(0.1)
    assert found["model.steps"] == steps
    assert 0.01 < np.abs(found["model.mean"]).max() < 1
    assert found["model.late"].tolist() == [1.0] * 3


def test_buffers_hop():
    def net(hp):
        counting = Counting(hp)
        counting.hidden.fill_(0.3)
        return nn.Sequential(nn.Linear(16, 64), counting)

    hops.check_hops(hops.torch(net, shards=2), {"lr": 0.1, "batch_size": 8})


@pytest.mark.parametrize(
    ("net", "precision"),
    [(net, precision) for net in NETS for precision in ("float32", "float64", "bfloat16")][:-1],
)  # torch has no LSTM in bfloat16 on every processor
def test_hops_change_no_bit(net, precision):
    trainer = Torch(NETS[net], loss=cross_entropy, shards=4, clip=0.5, accumulate=2, precision=precision)
    values = {"lr": 0.01, "dropout": 0.3, "batch_size": 16}
    assert rehearse(trainer, values, partition(0), partition(-1)) == ("loss",)


@pytest.mark.parametrize("optimizer", ["lbfgs", "sgd", "adamw", "muon"])
def test_optimizers(optimizer):
    def net(hp):
        return nn.Sequential(nn.Linear(16, 8, bias=False), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3, bias=False))

    hops.quiet(hops.check_hops, hops.torch(net, optimizer, shards=4), {"lr": 0.05, "batch_size": 7})


def test_shards_train_almost_what_whole_batches_train():
    values = {"lr": 0.05, "batch_size": 46, "dropout": 0.0}
    states = [
        trained(Torch(digits.Lstm, loss=cross_entropy, optimizer="sgd", shards=shards), values)
        for shards in (1, 2, 8)
    ]
    for name, array in states[0].arrays.items():
        for other in states[1:]:
            np.testing.assert_allclose(other.arrays[name], array, rtol=1e-3, atol=1e-5)


def test_the_number_of_shards_is_part_of_the_fingerprint_unless_it_is_one():
    found = [
        Torch(digits.mlp, loss=cross_entropy, **given)
        for given in ({}, {"shards": 1}, {"shards": 2}, {"shards": 4})
    ]
    names = [trainer.fingerprint for trainer in found]
    parts = [trainer.fingerprint_parts["code"] for trainer in found]
    assert names[0] == names[1]
    assert parts[0] == parts[1]
    assert len({*names}) == len({*parts}) == 3


def test_the_fingerprint_of_one_shard_is_that_of_stored_states():
    """States were stored under it before there were shards: its parts are written out here."""
    code = {
        "model": digits.mlp,
        "loss": cross_entropy,
        "optimizer": "adam",
        "metrics": {},
        "data": (None, "y"),
        "settings": (None, 1, "float32", "cpu", 1),
        "torch": version("torch"),
    }
    assert Torch(digits.mlp, loss=cross_entropy, shards=1).fingerprint == fingerprint(code)


@given(st.integers(0, 6), st.integers(1, 200), st.data())
def test_shards_cover_the_batch_in_order(power, size, data):
    shards = 2**power
    size = max(size, shards)
    rows = data.draw(st.integers(1, size))
    start = data.draw(st.integers(0, 1000))
    parts = cut((start, start + rows), shards, size)
    assert [parts[0][0], *(stop for _, stop in parts)] == [*(begin for begin, _ in parts), start + rows]
    sizes = [stop - begin for begin, stop in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    assert sizes[-1] >= 1
    whole = [stop - begin for begin, stop in cut((0, size), shards, size)]
    assert len(whole) == shards
    assert sizes[-1] >= min(2, whole[-1], rows)
    assert sizes[0] <= max(whole[0], 3)

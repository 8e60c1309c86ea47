"""Every family of layers in torch.nn: a hop, another model in between, and a reload in place change no bit."""

from __future__ import annotations

import pytest
from torch import nn

from hoptree.trainers import TrainerError
from tests.trainers.hops import check_hops, torch, train
from tests.trainers.layers import IMAGE, LAYERS, net

CONFIG = {"lr": 0.02, "batch_size": 8}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_hops(name):
    check_hops(torch(net(name), "sgd"), {**CONFIG, "momentum": 0.9})


def test_a_layer_without_a_deterministic_implementation_is_named():
    class Unpool(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool, self.back = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

        def forward(self, x):
            return self.back(*self.pool(x))

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Unpool(), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.inner(x.view(-1, *IMAGE)).flatten(1))

    trainer = torch(lambda hp: Small())
    model = trainer.build(CONFIG, 1)
    with pytest.raises(TrainerError, match=r"layer 'inner.back' \(MaxUnpool2d\), which has no deterministic"):
        train(trainer, model, CONFIG, [0])


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_layer_is_named():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU(), nn.LazyLinear(3))

    with pytest.raises(TrainerError, match=r"lazy modules \(LazyLinear 'inner.1'\).*call the module once"):
        torch(lambda hp: Small()).build(CONFIG, 1)

"""A value that a schedule changes later gives different bits, or raises an error: it is never ignored."""

from __future__ import annotations

import pytest
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.core.lineage import beginning
from hoptree.core.schedules import linear, multistep, piecewise
from hoptree.testing.trainer import copied, equal
from hoptree.trainers import Torch, TrainerError
from tests.trainers.hops import train
from tests.trainers.test_changing_values import FunctionalDropout, Live, Scaled, functions, set_alpha, wide
from tests.trainers.test_optimizers import Own, by_function


def plain(hp):
    return nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 3))


def keyed(hp):
    return nn.Sequential(nn.Linear(16, 3), nn.LeakyReLU(hp["slope"]))


def noisy(x, y, hp):
    return x * hp["scale"], y


def make(model=plain, optimizer="adam", **options):
    return Torch(model, loss=cross_entropy, optimizer=optimizer, **options)


CASES = {
    "lr": (make(), {"lr": multistep(0.1, at=[1], gamma=0.5)}),
    "momentum": (make(optimizer="sgd"), {"momentum": multistep(0.8, at=[1], gamma=0.5)}),
    "beta1": (make(), {"beta1": multistep(0.8, at=[1], gamma=0.5)}),
    "optimizer by name": (make(), {"optimizer": piecewise(["adam", "sgd"], at=[1])}),
    "optimizer by function": (make(optimizer=by_function), {"optimizer": piecewise(["adam", "sgd"], at=[1])}),
    "option kept as an attribute": (make(optimizer=Own), {"pull": multistep(0.1, at=[1], gamma=2)}),
    "batch_size": (make(), {"batch_size": multistep(4, at=[1], gamma=2)}),
    "dropout": (make(), {"dropout": linear(0.5, 0.1, over=2)}),
    "dropout as an attribute": (make(FunctionalDropout), {"dropout": linear(0.5, 0.1, over=2)}),
    "width": (make(wide), {"width": multistep(8, at=[1], gamma=2)}),
    "slope": (make(keyed), {"slope": multistep(0.1, at=[1], gamma=2)}),
    "attribute": (make(Scaled), {"alpha": multistep(1.0, at=[1], gamma=2)}),
    "attribute with a hook": (make(Scaled, on_values=set_alpha), {"alpha": multistep(1.0, at=[1], gamma=2)}),
    "kept values": (make(Live), {"alpha": multistep(1.0, at=[1], gamma=2)}),
    "transform": (make(transform=noisy), {"scale": multistep(1.0, at=[1], gamma=2)}),
    "functions, lr": (functions(plain), {"lr": multistep(0.1, at=[1], gamma=0.5)}),
    "functions, attribute": (functions(Scaled), {"alpha": multistep(1.0, at=[1], gamma=2)}),
    "functions, hook": (functions(Scaled, set_alpha), {"alpha": multistep(1.0, at=[1], gamma=2)}),
    "functions, slope": (functions(keyed), {"slope": multistep(0.1, at=[1], gamma=2)}),
}
REFUSED = {"width", "slope", "attribute", "functions, attribute", "functions, slope"}


@pytest.mark.parametrize("case", CASES)
def test_a_change_takes_effect_or_is_refused(case):
    trainer, changed = CASES[case]
    config = {"lr": 0.1, **changed}
    still = beginning(config)
    states = []
    for values in (still, config):
        model = trainer.build(still, 1)
        train(trainer, model, values, range(2))
        if values is config and case in REFUSED:
            with pytest.raises(TrainerError, match="is built only once"):
                train(trainer, model, values, [2])
            return
        train(trainer, model, values, [2])
        states.append(copied(trainer.dump(model)))
    assert not equal(*states), "the change made no difference"

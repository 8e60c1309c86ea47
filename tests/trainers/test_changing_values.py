"""A value that changes after the model was built takes effect, or raises an error by name before training."""

from __future__ import annotations

import pytest
import torch as t
from torch import nn
from torch.nn.functional import cross_entropy, dropout, interpolate

from hoptree.core.schedules import constant, linear, multistep, piecewise
from hoptree.trainers import Functions, TrainerError
from hoptree.trainers.changes import change_error, changing
from tests.trainers.hops import check_hops, torch, train

STEP = multistep(8, at=[1], gamma=2)


def plain(hp):
    return nn.Linear(16, 3)


class Scaled(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.head, self.alpha = nn.Linear(16, 3), hp["alpha"]

    def forward(self, x):
        return self.head(x) * self.alpha


class Live(nn.Module):
    """Keeps the values and reads them at every step."""

    def __init__(self, hp):
        super().__init__()
        self.head, self.hp = nn.Linear(16, 3), hp

    def forward(self, x):
        return self.head(x) * self.hp["alpha"]


def set_alpha(module, hp):
    module.alpha = hp["alpha"]


ALPHA = {"lr": 0.05, "batch_size": 8, "alpha": linear(1.0, 2.0, over=2)}


def seen(trainer, config, units=(0, 1, 2, 3)):
    """Return the outputs' scale of every batch."""
    found = []
    model = trainer.build({name: v if not callable(v) else v(0) for name, v in config.items()}, 1)
    model.module.register_forward_hook(lambda module, *_: found.append(getattr(module, "alpha", None)))
    train(trainer, model, config, units)
    return found


def test_a_hook_sees_the_values_at_every_step():
    trainer = torch(Scaled, on_values=set_alpha)
    assert seen(trainer, ALPHA) == [ALPHA["alpha"](step / 4) for step in range(8)]
    check_hops(trainer, ALPHA)


def test_a_module_that_keeps_the_values_has_those_of_the_moment():
    live, hooked = torch(Live), torch(Scaled, on_values=set_alpha)
    check_hops(live, ALPHA)
    weights = []
    for trainer in (live, hooked):
        model = trainer.build({"lr": 0.05, "alpha": 1.0}, 1)
        train(trainer, model, ALPHA, range(4))
        weights.append(model.module.head.weight)
    assert t.equal(*weights)


def test_a_transform_sees_the_values_at_every_step():
    sizes = []

    def crop(x, y, hp):
        sizes.append(hp["length"])
        return x[:, : hp["length"]], y

    class Pooled(nn.Module):
        def __init__(self, hp):
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(interpolate(x[:, None], 8)[:, 0])

    trainer = torch(Pooled, transform=crop)
    check_hops(trainer, {"lr": 0.1, "batch_size": 8, "length": multistep(8, at=[1], gamma=2)})
    assert sizes[:8] == [8] * 4 + [16] * 4
    model = trainer.build({"length": 8, "lr": 0.1}, 1)
    train(trainer, model, {"length": 8, "lr": 0.1}, [0])
    assert trainer.unread(model, {"length": 8, "other": 1}) == ["other"]
    wrong = torch(Pooled, transform=lambda x, y, hp: x)
    model = wrong.build({"lr": 0.1}, 1)
    with pytest.raises(TrainerError, match=r"transform: it returned \(16, 16\) float32; expected the 1 inputs"):
        train(wrong, model, {"lr": 0.1}, [0])


class FunctionalDropout(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.head, self.dropout = nn.Linear(16, 3), hp["dropout"]

    def forward(self, x):
        return self.head(dropout(x, self.dropout, self.training))


class Half(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.head = nn.Sequential(nn.Dropout(hp["dropout"] / 2), nn.Linear(16, 3))

    def forward(self, x):
        return self.head(x)


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda p: nn.Dropout(p), ["p"]),
        (lambda p: nn.AlphaDropout(p), ["p"]),
        (lambda p: nn.LSTM(4, 4, 2, dropout=p), ["dropout"]),
        (lambda p: nn.GRU(4, 4, 2, dropout=p), ["dropout"]),
        (lambda p: nn.MultiheadAttention(4, 2, dropout=p), ["dropout"]),
        (
            lambda p: nn.TransformerEncoderLayer(4, 2, 8, dropout=p),
            ["self_attn.dropout", "dropout.p", "dropout1.p", "dropout2.p"],
        ),
    ],
)
def test_dropout_of_any_module_follows_its_value(make, places):
    trainer = torch(lambda hp: nn.Sequential(make(hp["dropout"]), nn.Linear(4, 4)))
    model = trainer.build({"dropout": 0.25}, 1)
    model.apply({"dropout": 0.5})
    for place in places:
        *path, name = place.split(".")
        assert getattr(model.module[0].get_submodule(".".join(path)), name) == 0.5


def test_dropout_that_is_an_attribute_follows_and_one_that_is_computed_cannot():
    check_hops(torch(FunctionalDropout), {"lr": 0.1, "dropout": linear(0.5, 0.1, over=2)})
    model = torch(FunctionalDropout).build({"dropout": 0.25}, 1)
    model.apply({"dropout": 0.5})
    assert model.module.dropout == 0.5
    half = torch(Half).build({"dropout": 0.5}, 1)
    half.apply({"dropout": 0.5})
    assert half.module.head[0].p == 0.25
    with pytest.raises(TrainerError, match=r"^dropout: 0.4, but the model was built with 0.5"):
        half.apply({"dropout": 0.4})


# --- before anything is trained ---------------------------------------------------------------------------


def functions(model, on_values=None):
    def model_fn(hp):
        module = model(hp)
        return module, t.optim.SGD(module.parameters(), lr=hp["lr"], momentum=hp.get("momentum", 0.0))

    def train_fn(data, module, optimizer, hp):
        loss = cross_entropy(module(t.tensor(data["x"])), t.tensor(data["y"]))
        if optimizer is not None:
            loss.backward()
            optimizer.step()
        return {"loss": loss}

    return Functions(
        lambda columns: {n: c.copy() for n, c in columns.items()}, model_fn, train_fn, on_values=on_values
    )


def wide(hp):
    return nn.Sequential(nn.Linear(16, hp["width"]), nn.Linear(hp["width"], 3))


def activated(hp):
    return nn.Sequential(nn.Linear(16, 8), {"relu": nn.ReLU, "tanh": nn.Tanh}[hp["act"]](), nn.Linear(8, 3))


def initialised(hp):
    module = nn.Linear(16, 3)
    nn.init.normal_(module.weight, std=hp["std"])
    return module


def gated(hp):
    return nn.Sequential(nn.Linear(16, 3), nn.LeakyReLU(hp["slope"]))


REFUSED = [
    (wide, {"width": STEP}, "width"),
    (activated, {"act": piecewise(["relu", "tanh"], at=[1])}, "act"),
    (initialised, {"std": linear(0.1, 0.2, over=1)}, "std"),
    (gated, {"slope": multistep(0.1, at=[2], gamma=2)}, "slope"),
    (Scaled, {"alpha": linear(1.0, 2.0, over=1)}, "alpha"),
    (Half, {"dropout": linear(0.5, 0.1, over=1)}, "dropout"),
    (lambda hp: wide({"width": hp.get("width", 8)}), {"width": piecewise([8, 4], at=[3])}, "width"),
]


@pytest.mark.parametrize("kind", [torch, functions])
@pytest.mark.parametrize(("model", "values", "name"), REFUSED)
def test_a_value_that_is_read_only_when_the_model_is_built_is_refused_before_training(kind, model, values, name):
    config = {"lr": 0.1, **values}
    reason = change_error(kind(model), changing([config]))
    assert reason.startswith(f"{name}: cannot change at epoch ")
    assert "a model is built only once" in reason.replace("\n", " ")
    assert "on_values" in reason or "shape" in reason


@pytest.mark.parametrize("kind", [torch, functions])
@pytest.mark.parametrize(
    ("model", "values"),
    [
        (plain, {"lr": linear(0.1, 0.0, over=3)}),
        (plain, {"momentum": multistep(0.5, at=[2], gamma=0.5), "unread": STEP}),
        (
            lambda hp: nn.Sequential(nn.Dropout(hp["dropout"]), nn.Linear(16, 3)),
            {"dropout": linear(0.5, 0.1, over=1)},
        ),
        (wide, {"width": 8, "lr": STEP}),
        (wide, {"width": constant(8)}),
    ],
)
def test_a_changing_value_that_takes_effect_is_not_refused(kind, model, values):
    assert change_error(kind(model), changing([{"lr": 0.1, **values}])) == ""


@pytest.mark.parametrize("kind", [torch, functions])
def test_a_value_that_the_hook_reads_may_change(kind):
    config = {"lr": 0.1, "alpha": linear(1.0, 2.0, over=2), "batch_size": 8}
    assert change_error(kind(Scaled, on_values=set_alpha), changing([config])) == ""
    check_hops(kind(Scaled, on_values=set_alpha), config)


def test_an_optimizer_that_a_schedule_misspells_is_refused_before_training():
    config = {"lr": 0.1, "optimizer": piecewise(["adam", "sgdd"], at=[4])}
    assert "optimizer: cannot change at epoch 4" in change_error(torch(plain), changing([config]))
    assert change_error(torch(plain), changing([{**config, "optimizer": piecewise(["adam", "sgd"], at=[4])}])) == ""


def test_configs_that_cannot_be_built_are_left_to_the_rehearsal():
    assert change_error(torch(wide), changing([{"lr": STEP}])) == ""


def test_a_user_defined_loop_sees_the_values_within_a_unit():
    rates = []

    def train_fn(data, module, optimizer, hp):
        for step in range(4):
            rate = hp.advance(step / 4)["lr"]
            if optimizer is not None:
                rates.append((rate, optimizer.param_groups[0]["lr"]))
        return {"loss": 0.0}

    def model_fn(hp):
        module = nn.Linear(16, 3)
        return module, t.optim.SGD(module.parameters(), lr=hp["lr"])

    trainer = Functions(lambda columns: columns, model_fn, train_fn)
    schedule = linear(1.0, 0.0, over=1)
    model = trainer.build({"lr": 1.0}, 1)
    train(trainer, model, {"lr": schedule}, [0, 1])
    assert rates == [(schedule(step / 8), schedule(step / 8)) for step in range(8)]
    with pytest.raises(TrainerError, match=r"hp.advance: 2; expected a fraction"):
        model.hp.advance(2)


def test_the_error_of_a_failing_hook_shows_the_values():
    trainer = torch(plain, on_values=lambda module, hp: hp["missing"])
    with pytest.raises(TrainerError, match=r"missing: on_values reads it[\s\S]*on_values: it raised this for"):
        trainer.build({"lr": 0.1}, 1)
    with pytest.raises(TrainerError, match="on_values: 3; expected a function"):
        torch(plain, on_values=3)

"""Bad input raises an error by name, with the user's own traceback first and the fix last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hoptree.trainers import ModelState, Torch, TrainerError, accuracy, rehearse
from tests.trainers import digits
from tests.trainers.digits import partition, train, unit


def message(trainer, values=None, data=None):
    values = {"lr": 0.1} if values is None else values
    with pytest.raises(TrainerError) as caught:
        rehearse(trainer, values, data or partition(0), partition(-1))
    return str(caught.value)


def test_a_rehearsal_names_the_metrics():
    trainer = Torch(digits.mlp, loss=cross_entropy, metrics={"accuracy": accuracy})
    assert rehearse(trainer, {"lr": 0.1}, partition(0), partition(-1)) == ("loss", "accuracy")


def test_missing_value_names_what_there_is():
    def needy(hp):
        return nn.Linear(64, hp["width"])

    text = message(Torch(needy, loss=cross_entropy), {"lr": 0.1, "depth": 2})
    assert text.startswith("Traceback (most recent call last):\n")
    first, *_ = [line for line in text.splitlines() if line.startswith("  File")]
    assert __file__ in first
    assert "needy" in first
    assert "torch_trainer.py" not in text
    assert "width: the model function reads it, but the config has only depth, lr; add 'width'" in text


def test_shapes_that_do_not_match():
    def picky(output, target):
        return cross_entropy(output, target)

    data = {"x": partition(0)["x"], "y": np.zeros((200, 3), dtype="int64")}
    text = message(Torch(digits.mlp, loss=picky), data=data)
    assert text.startswith("Traceback")
    assert text.index("in picky") < text.index("model output")
    assert "torch_loop.py" not in text
    assert "loss: it raised this for model output (32, 10) float32 and target (32, 3) int64" in text


def test_inputs_that_do_not_fit_the_model():
    text = message(Torch(lambda hp: nn.Linear(63, 10), loss=cross_entropy))
    assert "mat1 and mat2 shapes cannot be multiplied" in text
    assert "_call_impl" not in text
    assert text.endswith("model: it raised this for a batch of x: (batch, 64) float32")


@pytest.mark.parametrize("value", ["high", None, torch.zeros(3), np.zeros(2), [1.0]])
def test_metric_that_is_not_a_number(value):
    text = message(Torch(digits.mlp, loss=cross_entropy, metrics={"score": lambda o, t: value}))
    assert "metric 'score': it returned" in text
    assert "expected one number" in text


@pytest.mark.parametrize("value", [1, True, np.float32(1), torch.tensor(1), torch.tensor([1.0]), np.ones(1)])
def test_numbers_of_all_kinds_are_numbers(value):
    trainer = Torch(digits.mlp, loss=cross_entropy, metrics={"score": lambda o, t: value})
    assert trainer.evaluate(trainer.build({}, 0), partition(-1), {})["score"] == 1.0


def test_metric_that_raises():
    text = message(Torch(digits.mlp, loss=cross_entropy, metrics={"bad": lambda o, t: o.nothing}))
    assert text.startswith("Traceback")
    assert "metric 'bad': it raised this for model output (64, 10) float32 and target (64,) int64" in text


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda o, t: cross_entropy(o, t, reduction="none"), r"loss: it returned shape \(32,\) float32"),
        (lambda o, t: 0.5, "loss: it returned a float"),
        (lambda o, t: torch.tensor(1.0), "depends on no parameter"),
    ],
)
def test_losses_that_cannot_be_followed(loss, expected):
    with pytest.raises(TrainerError, match=expected):
        rehearse(Torch(digits.mlp, loss=loss), {"lr": 0.1}, partition(0), partition(-1))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"optimizer": "adamm"}, "optimizer: 'adamm' is unknown; expected one of .*adam, adamax, adamw.*rmsprop"),
        ({"optimizer": 3}, "optimizer: int; expected a name"),
        ({"model": nn.Linear(1, 1)}, "model: a module; expected a function that creates a new one"),
        ({"loss": nn.CrossEntropyLoss}, r"loss: the class CrossEntropyLoss; expected a function, so write .*\(\)"),
        ({"loss": "mse"}, "loss: 'mse'; expected a function"),
        ({"metrics": [accuracy]}, "metrics: list; expected names and functions"),
        ({"metrics": {"loss": accuracy}}, "give the metric another name"),
        ({"precision": "half"}, "precision: 'half'; expected one of float32"),
        ({"device": "gpu"}, "device: 'gpu'; expected 'cpu'"),
        ({"clip": 0}, "clip: 0; expected a number above 0"),
        ({"accumulate": 0}, "accumulate: 0; expected a whole number"),
        ({"threads": 1.5}, "threads: 1.5; expected a whole number"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments, expected):
    with pytest.raises(TrainerError, match=expected):
        Torch(**{"model": digits.mlp, "loss": cross_entropy, **arguments})


SHARED = nn.Linear(64, 10)


@pytest.mark.parametrize(
    ("model", "values", "expected"),
    [
        (lambda hp: 3, {}, "model: it returned int; expected a torch.nn.Module"),
        (lambda hp: nn.ReLU(), {}, "model: it has no parameters"),
        (lambda hp: nn.LazyLinear(10), {}, "model: it has lazy modules"),
        (digits.mlp, {"lr": -1.0}, "optimizer: Adam rejected lr=-1.0: Invalid learning rate"),
        (digits.mlp, {"batch_size": 0}, "batch_size: 0; expected a whole number"),
        (digits.mlp, {"batch_size": "big"}, "batch_size: 'big'; expected"),
        (digits.mlp, {"dropout": 1.5}, "dropout probability has to be between 0 and 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_impossible_models_and_values_are_refused(model, values, expected):
    text = message(Torch(model, loss=cross_entropy), {"lr": 0.1, **values})
    assert expected in text


def test_a_module_may_not_be_returned_twice():
    trainer = Torch(lambda hp: SHARED, loss=cross_entropy)
    trainer.build({}, 0)
    with pytest.raises(TrainerError, match="the same module twice; expected a new module at every call"):
        trainer.build({}, 0)


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        ({"x": np.zeros((4, 64), "f4")}, {}, "column 'y': the data has only x"),
        ({"a": np.zeros(4), "b": np.zeros(4), "y": np.zeros(4)}, {}, "inputs: the data has the columns a, b, y"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, {}, "column 'x': 3 examples, but 'y' has 4"),
        ({"x": np.array(["a", "b"]), "y": np.zeros(2)}, {}, "column 'x': type <U1; expected numbers"),
    ],
)
def test_columns_that_do_not_fit(data, arguments, expected):
    trainer = Torch(digits.mlp, loss=cross_entropy, **arguments)
    with pytest.raises(TrainerError, match=expected):
        trainer.train(trainer.build({}, 0), data, unit({"lr": 0.1}, 0))


def test_a_state_of_another_model():
    trainer = Torch(digits.mlp, loss=cross_entropy)
    small, large = trainer.build({"width": 8}, 0), trainer.build({"width": 16}, 0)
    with pytest.raises(TrainerError, match=r"state: model.0.weight is float32 of shape \(8, 64\), but the model's"):
        trainer.load(large, trainer.dump(small))
    state = trainer.dump(small)
    with pytest.raises(TrainerError, match=r"it lacks model.0.weight of the model and has nothing beyond it"):
        trainer.load(
            small, ModelState({k: v for k, v in state.arrays.items() if k != "model.0.weight"}, state.meta)
        )


def test_empty_data():
    trainer = Torch(digits.mlp, loss=cross_entropy)
    model = trainer.build({}, 0)
    nothing = {name: column[:0] for name, column in partition(0).items()}
    trainer.train(model, nothing, unit({"lr": 0.1}, 0))
    with pytest.raises(TrainerError, match="evaluation: the data has no examples"):
        trainer.evaluate(model, nothing, {})


def test_accuracy():
    scores = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert accuracy(scores, torch.tensor([1, 1])) == 0.5
    assert accuracy(scores.numpy(), np.array([1, 0])) == 1.0
    assert accuracy(torch.tensor([-1.0, 1.0]), torch.tensor([0.0, 0.0])) == 0.5
    assert accuracy(torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])) == 1.0
    assert accuracy(torch.zeros(2, 5, 3), torch.zeros(2, 3, dtype=torch.int64)) == 1.0
    assert accuracy(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64)) == 1.0
    with pytest.raises(TrainerError, match=r"accuracy: output \(2, 2\), target \(3,\)"):
        accuracy(scores, torch.zeros(3))


def test_an_optimizer_function_that_fails():
    text = message(Torch(digits.mlp, loss=cross_entropy, optimizer=lambda params, hp: hp["rate"]))
    assert text.startswith("Traceback")
    assert "rate: the optimizer function reads it" in text
    text = message(Torch(digits.mlp, loss=cross_entropy, optimizer=lambda params, hp: None))
    assert "optimizer: the function returned NoneType" in text


def test_values_that_the_optimizer_does_not_know_are_for_the_model():
    trainer = Torch(digits.mlp, loss=cross_entropy, optimizer="adagrad")
    model = trainer.build({"width": 8, "momentum": 0.9}, 0)
    train(trainer, model, {"width": 8, "momentum": 0.9, "lr": 0.1}, [0])
    assert "momentum" not in model.tuned.optimizer.param_groups[0]

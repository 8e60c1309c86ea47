"""What shards cannot do is refused before training, by name and with the fix."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from hoptree.core.schedules import multistep
from hoptree.trainers import Torch, TrainerError, rehearse
from hoptree.trainers.changes import change_error
from tests.trainers import digits
from tests.trainers.digits import partition


def message(model=digits.mlp, loss=cross_entropy, values=None, **options):
    trainer = Torch(model, loss=loss, **{"shards": 2, **options})
    with pytest.raises(TrainerError) as caught:
        rehearse(trainer, {"lr": 0.01, **(values or {})}, partition(0), partition(-1))
    return str(caught.value)


@pytest.mark.parametrize("shards", [0, -2, 3, 12, True, 2.0, "2", None])
def test_a_number_that_is_no_power_of_two(shards):
    with pytest.raises(TrainerError, match="shards: .* expected a power of two"):
        Torch(digits.mlp, loss=cross_entropy, shards=shards)


def test_the_nearest_powers_are_named():
    with pytest.raises(TrainerError, match=r"^shards: 12; .*, for example 8 or 16$"):
        Torch(digits.mlp, loss=cross_entropy, shards=12)


def test_a_batch_with_fewer_examples_than_shards():
    text = message(shards=8, values={"batch_size": 6})
    assert text.endswith("use batch_size=8 or more, or shards=4")
    assert "batch_size is 32" in message(shards=64)


def test_a_schedule_that_reaches_such_a_batch():
    trainer = Torch(digits.mlp, loss=cross_entropy, shards=8)
    config = {"lr": 0.01, "batch_size": multistep(16, at=[2], gamma=0.25)}
    text = change_error(trainer, [config])
    assert text.startswith("batch_size: cannot change at epoch 2")
    assert "shards: 8, but batch_size is 4" in text


def rmse(output, target):
    return mse_loss(output, nn.functional.one_hot(target, 10).float()).sqrt()


def total(output, target):
    return cross_entropy(output, target, reduction="sum")


def weighted(output, target):
    return cross_entropy(output, target, weight=torch.arange(1.0, 11.0))


def ignoring(output, target):
    return cross_entropy(output, target, ignore_index=3)


def contrastive(output, target):
    return cross_entropy(output @ output.T, torch.arange(len(output)))


@pytest.mark.parametrize("loss", [rmse, total, weighted, ignoring, contrastive])
def test_a_loss_that_is_no_mean_over_examples(loss):
    text = message(loss=loss)
    assert text.startswith("loss: ")
    assert "expected a mean over examples" in text
    rehearse(Torch(digits.mlp, loss=loss), {"lr": 0.01}, partition(0), partition(-1))


class InsideOut(nn.Module):
    """Returns sequence first, so that outputs have no row for every example."""

    def __init__(self, hp):
        super().__init__()
        self.linear = nn.Linear(8, 10)

    def forward(self, x):
        return self.linear(x.view(-1, 8, 8)).transpose(0, 1)


def test_a_loss_of_outputs_that_are_not_rows():
    def mean(output, target):
        return cross_entropy(output.mean(0), target)

    def summed(output, target):
        return cross_entropy(output.mean(0), target, reduction="sum")

    rehearse(Torch(InsideOut, loss=mean, shards=4), {"lr": 0.01}, partition(0), partition(-1))
    assert "expected a mean" in message(InsideOut, summed)


class Noisy(nn.Module):
    """Draws numbers in evaluation, too."""

    def __init__(self, hp):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return {"logits": self.linear(x + torch.randn_like(x)), "kind": "noisy"}


def test_a_random_model_is_not_taken_for_a_loss_without_a_mean():
    def loss(output, target):
        return cross_entropy(output["logits"], target)

    trainer = Torch(Noisy, loss=loss, shards=2)
    values = {"lr": 0.01}
    trainer.examine(trainer.build(values, 0), partition(0))


def test_a_random_loss_is_not_taken_for_one_without_a_mean():
    def smoothed(output, target):
        return cross_entropy(output, target) * (1 + 0.1 * torch.rand(()))

    trainer = Torch(digits.mlp, loss=smoothed, shards=2)
    trainer.examine(trainer.build({"lr": 0.01}, 0), partition(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mean_in_16_bits_is_a_mean(dtype):
    def narrow(output, target):
        return cross_entropy(output.to(dtype), target)

    trainer = Torch(digits.mlp, loss=narrow, shards=2)
    trainer.examine(trainer.build({"lr": 0.01}, 0), partition(0))


class Tokens(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.tokens = nn.Embedding(17, 8, **options)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.tokens((x * 16).long()).mean(1))


def test_an_embedding_that_changes_its_weight_in_forward():
    text = message(lambda hp: Tokens(max_norm=0.1), optimizer="sgd")
    assert "changes its parameter 'tokens.weight'" in text


def test_sparse_gradients():
    text = message(lambda hp: Tokens(sparse=True), optimizer="sgd")
    assert "the gradient of 'tokens.weight' is sparse" in text
    assert "without sparse=True" in text


class Renormed(nn.Module):
    """Changes its weight without a trace in the version of the tensor."""

    def __init__(self, hp):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        self.linear.weight.data = torch.renorm(self.linear.weight.data, 2, 0, 0.1)
        return self.linear(x)


def test_a_parameter_that_changes_behind_its_version():
    assert "changes its parameter 'linear.weight'" in message(Renormed)


class Remembering(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.kind, self.calls, self.mean = kind, 0, None
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training and self.kind == "counter":
            self.calls += 1
        if self.training and self.kind == "tensor":
            self.mean = x.detach().mean()
        if self.training and self.kind == "buffer":
            self.seen += (x.sum() * 10).long()
        if self.training and self.kind == "same":
            self.mean = self.linear.weight.detach() * 2
        return self.linear(x)


@pytest.mark.parametrize(("kind", "name"), [("counter", "calls"), ("tensor", "mean")])
def test_an_attribute_that_every_shard_changes(kind, name):
    text = message(lambda hp: Remembering(kind))
    assert f"the attribute {name!r} of the module differs from shard to shard" in text
    assert "make it a buffer" in text


def test_an_attribute_that_is_the_same_after_every_shard():
    trainer = Torch(lambda hp: Remembering("same"), loss=cross_entropy, shards=2)
    rehearse(trainer, {"lr": 0.01}, partition(0), partition(-1))


def test_a_whole_number_that_has_no_average():
    text = message(lambda hp: Remembering("buffer"))
    assert "the buffer 'seen' cannot be averaged" in text
    assert "int64" in text


def test_a_buffer_of_another_shape():
    class Last(nn.Linear):
        def __init__(self):
            super().__init__(64, 10)
            self.register_buffer("last", torch.zeros(0))

        def forward(self, x):
            self.last = x.detach().sum(1)
            return super().forward(x)

    assert "the buffer 'last' cannot be averaged" in message(lambda hp: Last(), values={"batch_size": 31})


def test_an_error_in_a_shard_has_the_users_traceback():
    def half(output, target):
        if len(output) < 20:
            raise ValueError("too few rows")
        return cross_entropy(output, target)

    text = message(loss=half)
    assert "too few rows" in text
    assert "loss: it raised this for model output (16, 10) float32" in text

"""A loss that broadcasts (n, 1) against (n,) raises an error in rehearsal, and no other loss does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hoptree as ht
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.loss_shapes import check_pairing
from hoptree.trainers.rehearsal import rehearse

ROWS = 16
FLOATS = torch.linspace(0.05, 0.95, ROWS)
CLASSES = torch.arange(ROWS) % 3


def squared(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).mean()


def summed(output: Any, target: Any) -> Any:
    return (output - target).abs().sum()


def pinball(output: Any, target: Any) -> Any:
    error = target - output
    return torch.maximum(0.9 * error, -0.1 * error).mean()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [squared, summed, pinball, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss])
@pytest.mark.parametrize(
    ("output", "target"), [((ROWS, 1), (ROWS,)), ((ROWS,), (ROWS, 1)), ((ROWS, 1, 1), (ROWS, 1))]
)
def test_every_output_against_every_target_is_refused(
    loss: Callable[[Any, Any], Any], output: tuple[int, ...], target: tuple[int, ...]
) -> None:
    with pytest.raises(TrainerError) as refused:
        check_pairing(loss, torch.zeros(output), FLOATS.reshape(target))
    assert f"output {output} and target {target}" in str(refused.value)


def ranking(output: Any, target: Any) -> Any:
    """Compare all pairs of outputs, on purpose."""
    wanted = torch.sign(target[:, None] - target[None, :])
    return F.softplus(-wanted * (output - output.T)).mean()


def own_squeeze(output: Any, target: Any) -> Any:
    return F.mse_loss(output.squeeze(1), target)


def flattened(output: Any, target: Any) -> Any:
    return F.mse_loss(output.flatten(), target)


def correlation(output: Any, target: Any) -> Any:
    return -torch.corrcoef(torch.stack([output.reshape(-1), target.reshape(-1)]))[0, 1]


def without_targets(output: Any, target: Any) -> Any:
    return (output**2).mean()


def contrastive(output: Any, target: Any) -> Any:
    alike = target[:, None] == target[None, :]
    return F.binary_cross_entropy_with_logits(output @ output.T, alike.float())


@pytest.mark.parametrize(
    ("loss", "output", "target"),
    [
        (squared, (ROWS, 1), FLOATS[:, None]),
        (squared, (ROWS,), FLOATS),
        (squared, (ROWS, 3), torch.rand(ROWS, 3)),
        (ranking, (ROWS, 1), FLOATS),
        (own_squeeze, (ROWS, 1), FLOATS),
        (flattened, (ROWS, 1), FLOATS),
        (correlation, (ROWS, 1), FLOATS),
        (without_targets, (ROWS, 1), FLOATS),
        (F.cross_entropy, (ROWS, 3), CLASSES),
        (F.cross_entropy, (ROWS, 1), torch.zeros(ROWS, dtype=torch.int64)),
        (F.nll_loss, (ROWS, 3), CLASSES),
        (F.cross_entropy, (ROWS, 3, 5), torch.arange(ROWS * 5).reshape(ROWS, 5) % 3),
        (F.multi_margin_loss, (ROWS, 3), CLASSES),
        (F.binary_cross_entropy_with_logits, (ROWS,), (FLOATS > 0.5).float()),
        (contrastive, (ROWS, 4), CLASSES),
        (contrastive, (ROWS, 1), CLASSES),
        (squared, (ROWS, 1), torch.ones(ROWS)),  # equal targets cannot show it
    ],
)
def test_no_false_alarm(loss: Callable[[Any, Any], Any], output: tuple[int, ...], target: Any) -> None:
    check_pairing(loss, torch.zeros(output), target)


def test_outputs_that_are_no_tensor_are_left_alone() -> None:
    check_pairing(lambda output, target: squared(output[0], target), (torch.zeros(ROWS, 1),), FLOATS)


def linear(hp: Any) -> nn.Module:
    return nn.Linear(3, 1)


def squeezed(hp: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))


def test_rehearsal_refuses_it_with_both_shapes() -> None:
    data = {"x": np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32"), "y": FLOATS.numpy()}
    rehearse(ht.Torch(squeezed, loss=squared), {"lr": 0.1}, data, data)
    with pytest.raises(TrainerError, match=r"output \(16, 1\) and target \(16,\) broadcast to \(16, 16\)"):
        rehearse(ht.Torch(linear, loss=squared), {"lr": 0.1}, data, data)

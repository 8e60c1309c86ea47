"""The gradients of a step, however many workers compute them: what the layouts have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from hoptree.core.keys import shard_seed
from hoptree.trainers import torch_shards
from hoptree.trainers.torch_batches import Batches
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_model import TorchModel
from hoptree.trainers.torch_session import seed_generators
from hoptree.trainers.torch_shards import Bounds
from hoptree.trainers.torch_tree import Tensors


class StepExamples(Protocol):
    """The examples of one step, as the layouts use them."""

    def backward(self, start: int, stop: int) -> float:
        """Add the gradients of some examples, and return their part of the step's loss."""

    def load(self, start: int, stop: int) -> tuple[list[torch.Tensor], Any]:
        """Return the inputs and the target of some examples, transformed."""

    def call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Return the output of the module, or of a part of it."""

    def loss(self, output: Any, target: Any, start: int, stop: int) -> tuple[torch.Tensor, float]:
        """Return the part of the step's loss to compute gradients of, and its value."""


class GradientPass(ABC):
    """Computes the gradients of the steps of a unit."""

    @abstractmethod
    def gradients(self, batches: Sequence[Bounds], size: int, first: int, examples: StepExamples) -> float:
        """Set the gradients of a step, and return its loss; ``first`` is the number of its first batch."""

    @abstractmethod
    def clip(self, most: float) -> None:
        """Clip the gradients of a step."""

    def finish(self) -> None:  # noqa: B027 most layouts have nothing to do
        """Complete the model of the worker that leads, after the last step of a unit."""


class UnitContext(NamedTuple):
    """A unit that is cut into shards, and the ``gang`` that computes them; ``explain`` returns a user's error."""

    model: TorchModel
    batches: Batches
    shards: int
    seed: int
    gang: Gang | None
    explain: Callable[[Exception], Exception]

    def seed_shard(self, batch: int, shard: int) -> None:
        """Set the generators for a shard of a batch; the number of shards stands for what follows them."""
        seed_generators(shard_seed(self.seed, batch, shard), self.batches.device)

    def is_outermost(self, batch: Bounds) -> bool:
        """Return whether a batch is the first or the last one of the unit."""
        return batch[0] == 0 or batch[1] == self.batches.length

    def same_attributes(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """Compare plain attributes with those after another shard; only on outermost batches, as it takes time."""
        now = self.model.changed_attributes()
        if before is not None:
            torch_shards.check_attributes(before, now)
        return now


def set_gradients(
    parameters: Sequence[torch.Tensor],
    batches: Iterable[tuple[Sequence[float], Tensors]],
    add: Callable[[Tensors, Tensors], Tensors],
) -> float:
    """Set the gradients of a step to the sum over its batches, in order; return the sum of the losses."""
    for parameter in parameters:
        parameter.grad = None
    whole, total = 0.0, None
    for losses, found in batches:
        total = found if total is None else add(total, found)
        for loss in losses:
            whole += loss
    assert total is not None
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    return whole

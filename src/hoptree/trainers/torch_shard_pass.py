"""The gradients of a step whose batches are cut into shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from hoptree.core.keys import shard_seed
from hoptree.trainers import torch_shards
from hoptree.trainers.torch_batches import Batches
from hoptree.trainers.torch_exchange import exchange_gradients, exchange_losses
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_model import TorchModel
from hoptree.trainers.torch_session import seed_generators
from hoptree.trainers.torch_shard_buffers import ShardBuffers, buffer_slots
from hoptree.trainers.torch_shards import Bounds, ConstantParameters
from hoptree.trainers.torch_tree import Tensors, TreeSum, add_gradients

Backward = Callable[[int, int], float]  # adds the gradients of some examples, and returns their part of the loss

Shards = list[tuple[int, Bounds]]  # numbers of shards, with their examples


@final
class ShardPass:
    """Computes the gradients of the steps of a unit, shard by shard."""

    def __init__(
        self,
        model: TorchModel,
        batches: Batches,
        shards: int,
        seed: int,
        gang: Gang | None,
        explain: Callable[[Exception], Exception],
    ) -> None:
        """Divide the shards of a batch among a ``gang``, if there is one; ``explain`` returns a user's error."""
        self._model, self._shards, self._seed = model, shards, seed
        self._gang, self._explain = gang, explain
        self._examples, self._device = batches.length, batches.device
        named = list(model.module.named_parameters())
        self._names, self._parameters = [name for name, _ in named], [each for _, each in named]
        self._slots = buffer_slots(model.module)

    def gradients(self, batches: Sequence[Bounds], size: int, first: int, backward: Backward) -> float:
        """Set the gradients of a step, and return its loss; ``first`` is the number of its first batch.

        The shards of a batch are added by the tree, and batches one after the other.
        """
        torch_shards.check_batch_size(size, self._shards)
        for parameter in self._parameters:
            parameter.grad = None
        whole, total = 0.0, None
        for number, batch in enumerate(batches, first):
            losses, found = self._batch(number, batch, size, backward)
            total = found if total is None else add_gradients(total, found)
            for loss in losses:
                whole += loss
        assert total is not None
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return whole

    def clip(self, most: float) -> None:
        """Clip the gradients of a step."""
        torch_shards.clip([parameter.grad for parameter in self._parameters], most)

    def _batch(self, number: int, batch: Bounds, size: int, backward: Backward) -> tuple[list[float], Tensors]:
        """Return the losses of the shards of a batch, and the sum of their gradients; update the buffers."""
        buffers = ShardBuffers(self._slots)
        shards = list(enumerate(torch_shards.cut(batch, self._shards, size)))
        if self._gang is None:
            losses, total = self._compute(number, batch, shards, backward, buffers)
            assert total is not None
            buffers.finish()
        else:
            losses, total = self._compute_together(self._gang, number, batch, shards, backward, buffers)
        self._set_generators(number, self._shards)  # for the optimizer and the hook of the values
        return losses, total

    def _compute(
        self, number: int, batch: Bounds, shards: Shards, backward: Backward, buffers: ShardBuffers
    ) -> tuple[list[float], Tensors | None]:
        """Compute some shards of a batch, in order; there are no gradients if there are no shards."""
        constant = ConstantParameters(self._names, self._parameters, thorough=not self._model.inspected)
        gradients, losses, attributes = TreeSum(add_gradients), [], None
        start, stop = batch
        for place, (shard, (begin, end)) in enumerate(shards):
            if place:
                buffers.restore()
            self._set_generators(number, shard)
            losses.append(backward(begin, end))
            gradients.push(torch_shards.take_gradients(self._names, self._parameters))
            buffers.collect((end - begin) / (stop - start))
            if start == 0 or stop == self._examples:
                attributes = self._same_attributes(attributes)
        constant.check()
        return losses, gradients.total()

    def _compute_together(
        self, gang: Gang, number: int, batch: Bounds, shards: Shards, backward: Backward, buffers: ShardBuffers
    ) -> tuple[list[float], Tensors]:
        """Compute this rank's shards of a batch, and exchange the results with the other ranks."""
        each = self._shards // gang.size
        own = shards[gang.rank * each : (gang.rank + 1) * each]
        losses: list[float] = []
        total, failed = None, None
        try:
            losses, total = self._compute(number, batch, own, backward, buffers)
        except Exception as error:  # the other ranks have to know it
            failed = self._explain(error)
        losses = exchange_losses(gang, losses, each, failed)
        sums = exchange_gradients(gang, total, self._parameters)
        buffers.finish(gang)
        return losses, sums

    def _set_generators(self, batch: int, shard: int) -> None:
        seed_generators(shard_seed(self._seed, batch, shard), self._device)

    def _same_attributes(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """Compare plain attributes, on the first and the last batch of a unit, because it takes time."""
        now = self._model.changed_attributes()
        if before is not None:
            torch_shards.check_attributes(before, now)
        return now

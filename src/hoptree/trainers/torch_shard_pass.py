"""The gradients of a step whose batches are cut into shards: every worker has all parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hoptree.trainers import torch_shards
from hoptree.trainers.torch_exchange import exchange_gradients, exchange_report
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_gradients import GradientPass, StepExamples, UnitContext, set_gradients
from hoptree.trainers.torch_mapped import mapped
from hoptree.trainers.torch_offload import add_apart
from hoptree.trainers.torch_shard_buffers import ShardBuffers, buffer_slots
from hoptree.trainers.torch_shards import Bounds, ConstantParameters
from hoptree.trainers.torch_tree import Tensors, TreeSum, add_gradients

Shards = list[tuple[int, Bounds]]  # numbers of shards, with their examples


@final
class ShardPass(GradientPass):
    """Computes the gradients of the steps of a unit, shard by shard; a gang divides the shards of a batch."""

    def __init__(self, unit: UnitContext) -> None:
        self._unit = unit
        named = list(unit.model.module.named_parameters())
        self._names, self._parameters = [name for name, _ in named], [each for _, each in named]
        self._slots = buffer_slots(unit.model.module)
        self._offload = unit.model.part is not None and unit.model.part.layout.offload
        self._add = add_apart if self._offload else add_gradients

    def gradients(self, batches: Sequence[Bounds], size: int, first: int, examples: StepExamples) -> float:
        """Set the gradients of a step; shards are added by the tree, and batches one after the other."""
        torch_shards.check_batch_size(size, self._unit.shards)
        found = (self._batch(number, batch, size, examples) for number, batch in enumerate(batches, first))
        return set_gradients(self._parameters, found, self._add)

    def clip(self, most: float) -> None:
        """Clip the gradients of a step."""
        torch_shards.clip([parameter.grad for parameter in self._parameters], most)

    def _batch(self, number: int, batch: Bounds, size: int, examples: StepExamples) -> tuple[list[float], Tensors]:
        """Return the losses of the shards of a batch, and the sum of their gradients; update the buffers."""
        unit = self._unit
        buffers = ShardBuffers(self._slots)
        shards = list(enumerate(torch_shards.cut(batch, unit.shards, size)))
        if unit.gang is None:
            losses, total = self._compute(number, batch, shards, examples, buffers)
            assert total is not None
            buffers.finish()
        else:
            losses, total = self._compute_together(unit.gang, number, batch, shards, examples, buffers)
        unit.seed_shard(number, unit.shards)  # for the optimizer and the hook of the values
        return losses, total

    def _compute(
        self, number: int, batch: Bounds, shards: Shards, examples: StepExamples, buffers: ShardBuffers
    ) -> tuple[list[float], Tensors | None]:
        """Compute some shards of a batch, in order; there are no gradients if there are no shards."""
        unit = self._unit
        thorough = not unit.model.inspected and unit.model.part is None
        constant = ConstantParameters(self._names, self._parameters, thorough)
        gradients, losses, attributes = TreeSum(self._add), [], None
        start, stop = batch
        for place, (shard, (begin, end)) in enumerate(shards):
            if place:
                buffers.restore()
            unit.seed_shard(number, shard)
            losses.append(examples.backward(begin, end))
            gradients.push(torch_shards.take_gradients(self._names, self._parameters))
            buffers.collect((end - begin) / (stop - start))
            if unit.is_outermost(batch):
                attributes = unit.same_attributes(attributes)
        constant.check()
        return losses, gradients.total()

    def _compute_together(
        self,
        gang: Gang,
        number: int,
        batch: Bounds,
        shards: Shards,
        examples: StepExamples,
        buffers: ShardBuffers,
    ) -> tuple[list[float], Tensors]:
        """Compute this rank's shards of a batch, and exchange the results with the other ranks."""
        unit = self._unit
        each = unit.shards // gang.size
        own = shards[gang.rank * each : (gang.rank + 1) * each]
        losses: list[float] = []
        total, failed = None, None
        try:
            losses, total = self._compute(number, batch, own, examples, buffers)
        except Exception as error:  # the other ranks have to know it
            failed = unit.explain(error)
        gradients = [None] * len(self._parameters) if total is None else total
        report = exchange_report(gang, losses, each, failed, gradients, buffers.have_changed)
        keep = mapped if self._offload else None
        sums = exchange_gradients(gang, gradients, self._parameters, report.present, keep)
        if report.changed:
            buffers.finish(gang)
        else:
            buffers.restore()
        return report.losses, sums

"""The layout "pipeline": consecutive layers on consecutive workers, which have several shards under way (1F1B).

A shard carries the states of the random generators along, so that a layer draws what it would draw in one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch

from hoptree.trainers import torch_shards, torch_stages
from hoptree.trainers.errors import GangError, TrainerError
from hoptree.trainers.torch_exchange import clip_together, exchange_report
from hoptree.trainers.torch_gradients import GradientPass, StepExamples, UnitContext, set_gradients
from hoptree.trainers.torch_offload import add_apart
from hoptree.trainers.torch_part import ModelPart
from hoptree.trainers.torch_pipeline_messages import (
    receive_rest,
    receive_tensor,
    send_error,
    send_rest,
    send_tensor,
)
from hoptree.trainers.torch_recompute import in_segments
from hoptree.trainers.torch_shard_buffers import ShardBuffers, buffer_slots
from hoptree.trainers.torch_shards import Bounds
from hoptree.trainers.torch_tree import Tensors, TreeSum, add_gradients


class UnderWay(NamedTuple):
    """A shard whose backward pass has not been computed: what came in, and what went out or its loss."""

    received: torch.Tensor | None
    output: torch.Tensor
    loss: float


@final
class PipelinePass(GradientPass):
    """Computes the gradients of one stage."""

    def __init__(self, unit: UnitContext, part: ModelPart, starts: Sequence[int]) -> None:
        assert unit.gang is not None
        self._unit, self._part, self._gang = unit, part, unit.gang
        found = torch_stages.stages(torch_stages.layers(unit.model.module), starts)[unit.gang.rank]
        self._call = in_segments(found) if part.layout.checkpoint else torch_stages.chained(found)
        self._is_first, self._is_last = self._gang.rank == 0, self._gang.rank == self._gang.size - 1
        own = [number for number in range(len(part.parameters)) if part.owns(number)]
        self._names = [part.names[number] for number in own]
        self._parameters = [part.parameters[number] for number in own]
        self._layers = {id(module) for layer in found for module in layer.modules()}
        self._later = self._of_later_stages(starts)
        self._slots = [slot for slot in buffer_slots(unit.model.module) if id(slot.owner) in self._layers]
        self._add = add_apart if part.layout.offload else add_gradients
        self._sending: deque[Callable[[], None]] = deque()

    def gradients(self, batches: Sequence[Bounds], size: int, first: int, examples: StepExamples) -> float:
        """Set the gradients of the stage's parameters."""
        torch_shards.check_batch_size(size, self._unit.shards)
        found = (self._batch(number, batch, size, examples) for number, batch in enumerate(batches, first))
        return set_gradients(self._parameters, found, self._add)

    def clip(self, most: float) -> None:
        """Clip the gradients by a norm over all stages, in the order of the parameters."""
        clip_together(self._gang, self._part, most)

    def finish(self) -> None:
        """Give the worker that leads the whole model, with the buffers and attributes of all stages."""
        model, gang = self._unit.model, self._gang
        self._part.collect(model.tuned.optimizer, gang)
        changed = model.changed_attributes()
        if gang.rank:
            own = {slot.name: slot.get() for slot in self._slots}
            send_rest(
                gang, own, {name: each for name, each in changed.items() if self._belongs(name, self._layers)}
            )
            return
        attributes = {name: each for name, each in changed.items() if not self._belongs(name, self._later)}
        for rank in range(1, gang.size):
            buffers, found = receive_rest(gang, rank)
            attributes |= found
            for slot in buffer_slots(model.module):
                if slot.name in buffers:
                    slot.set(buffers[slot.name])
        model.set_attributes(attributes)

    def _of_later_stages(self, starts: Sequence[int]) -> set[int]:
        of_stages = torch_stages.stages(torch_stages.layers(self._unit.model.module), starts)
        return {id(part) for own in of_stages[self._gang.rank + 1 :] for layer in own for part in layer.modules()}

    def _belongs(self, name: str, modules: set[int]) -> bool:
        """Return whether a changed attribute is one of some modules; all else is the same on all workers."""
        path = name.removeprefix("attribute.").partition(":")[0]
        named = self._unit.model.module.named_modules()
        return name.startswith("attribute.") and any(id(module) in modules for at, module in named if at == path)

    def _batch(self, number: int, batch: Bounds, size: int, examples: StepExamples) -> tuple[list[float], Tensors]:
        """Compute all shards of a batch, with one forward and one backward pass in turn."""
        unit, gang = self._unit, self._gang
        shards = torch_shards.cut(batch, unit.shards, size)
        buffers = ShardBuffers(self._slots)
        gradients: TreeSum[Tensors] = TreeSum(self._add)
        under_way: deque[UnderWay] = deque()
        losses: list[float] = []
        attributes: dict[str, Any] | None = None
        ahead = min(len(shards), gang.size - 1 - gang.rank)
        failed: Exception | None = None
        try:
            for step in range(len(shards) + ahead):
                if step < len(shards):
                    begin, end = shards[step]
                    buffers.renew()
                    under_way.append(self._forward(number, step, (begin, end), examples))
                    buffers.collect((end - begin) / (batch[1] - batch[0]))
                    if unit.is_outermost(batch):
                        attributes = unit.same_attributes(attributes)
                if step >= ahead:
                    losses.append(self._backward(under_way.popleft()))
                    gradients.push(torch_shards.take_gradients(self._names, self._parameters))
        except GangError:
            raise
        except Exception as error:
            failed = unit.explain(error)
            self._report(failed)
            raise failed from None
        while self._sending:
            self._sending.popleft()()
        losses = exchange_report(gang, losses if self._is_last else [], unit.shards, None).losses
        buffers.finish()
        unit.seed_shard(number, unit.shards)  # for the optimizer and the hook of the values
        total = gradients.total()
        assert total is not None
        return losses, total

    # --- one shard ----------------------------------------------------------------------------------------

    def _forward(self, batch: int, shard: int, bounds: Bounds, examples: StepExamples) -> UnderWay:
        """Call the stage's layers for a shard, and pass on their output."""
        start, stop = bounds
        self._unit.seed_shard(batch, shard)
        received, target = None, None
        if self._is_first or self._is_last:
            inputs, target = examples.load(start, stop)
        if self._is_first:
            value: Any = inputs[0] if len(inputs) == 1 else tuple(inputs)
        else:
            message = receive_tensor(self._gang, self._gang.rank - 1, with_generators=True)
            value = received = self._checked(message).requires_grad_()
        output = examples.call(self._call, [value])
        if not self._is_last:
            self._send_later(output.detach(), self._gang.rank + 1, with_generators=True)
            return UnderWay(received, output, 0.0)
        part, value = examples.loss(output, target, start, stop)
        return UnderWay(received, part, value)

    def _backward(self, shard: UnderWay) -> float:
        """Compute the gradients of a shard, and pass on that of what came in."""
        found: list[torch.Tensor] = []
        if shard.received is not None:  # a hook sees the gradient as it is, before it is copied into .grad
            shard.received.register_hook(found.append)  # type: ignore[no-untyped-call]
        if self._is_last:
            torch.autograd.backward(shard.output)
        else:
            gradient = self._checked(receive_tensor(self._gang, self._gang.rank + 1, with_generators=False))
            if shard.output.requires_grad:  # else all layers so far are frozen
                torch.autograd.backward(shard.output, gradient)
        if not self._is_first:
            self._send_later(found[0], self._gang.rank - 1, with_generators=False)
        return shard.loss

    def _send_later(self, tensor: torch.Tensor, rank: int, *, with_generators: bool) -> None:
        self._sending.append(send_tensor(self._gang, rank, tensor, with_generators=with_generators))
        while len(self._sending) > 2 * self._gang.size:
            self._sending.popleft()()

    def _checked(self, message: torch.Tensor | str) -> torch.Tensor:
        if isinstance(message, str):
            raise TrainerError(message)
        return message

    def _report(self, error: Exception) -> None:
        """Let the worker that leads know the error of the user's code; the stages before it pass it on."""
        if not self._is_first:
            send_error(self._gang, self._gang.rank - 1, str(error) or type(error).__name__)

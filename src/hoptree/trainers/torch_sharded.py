"""The layout "sharded": large parameters and their optimizer state are divided among the workers of a gang.

The workers compute consecutive shards of a batch at the same time: with r workers, worker k has the shards k,
k + r, k + 2r … So what they have computed at a time is a subtree of the sum over all shards, and the owner of a
parameter adds it at once: it keeps at most log2(shards) + 1 of its gradients, and the others keep none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn

from hoptree.trainers import torch_shards
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_exchange import clip_together
from hoptree.trainers.torch_gradients import GradientPass, StepExamples, UnitContext
from hoptree.trainers.torch_mapped import mapped
from hoptree.trainers.torch_model import TorchModel
from hoptree.trainers.torch_offload import separable
from hoptree.trainers.torch_on_demand import BATCH, GRADIENT, Lockstep, ParametersOnDemand
from hoptree.trainers.torch_part import EVERY, ModelPart, balanced_owners, dense, shared_memory
from hoptree.trainers.torch_recompute import Uses, recomputed
from hoptree.trainers.torch_shard_buffers import ShardBuffers, buffer_slots
from hoptree.trainers.torch_shards import Bounds
from hoptree.trainers.torch_tree import TreeSum

Sums = dict[int, torch.Tensor]  # gradients by the number of the parameter


@final
class ShardedPass(GradientPass):
    """Computes the gradients of the parameters that this worker owns."""

    def __init__(self, unit: UnitContext, part: ModelPart) -> None:
        assert unit.gang is not None
        assert part.owners is not None
        self._unit, self._part, self._gang, self._owners = unit, part, unit.gang, part.owners
        self._lockstep = Lockstep(unit.gang, [*part.names, "the last shard"])
        self._on_demand = ParametersOnDemand(part, self._lockstep)
        self._slots = buffer_slots(unit.model.module)
        self._divided = [number for number, owner in enumerate(part.owners) if owner != EVERY]
        self._trees: dict[int, TreeSum[torch.Tensor]] = {}
        self._counts = True  # whether what is computed is a shard of its own
        self._pushed: set[int] = set()  # parameters that have got a gradient from the shards computed last
        self._sent: set[int] = set()  # those whose gradient this worker has sent
        self._uses: Uses | None = None  # with blocks that are computed again

    def gradients(self, batches: Sequence[Bounds], size: int, first: int, examples: StepExamples) -> float:
        """Set the gradients of a step on their owners."""
        torch_shards.check_batch_size(size, self._unit.shards)
        for parameter in self._part.parameters:
            parameter.grad = None
        whole = 0.0
        total: Sums = {}
        for number, batch in enumerate(batches, first):
            for loss in self._batch(number, batch, size, examples):
                whole += loss
            for place, tree in self._trees.items():
                found = tree.total()
                if found is not None:
                    total[place] = total[place].add_(found) if place in total else found
        for place, gradient in total.items():
            parameter = self._part.parameters[place]
            parameter.grad = gradient.as_strided(parameter.size(), parameter.stride())
        return whole

    def clip(self, most: float) -> None:
        """Clip the gradients by a norm over all owners, in the order of the parameters."""
        clip_together(self._gang, self._part, most)

    def finish(self) -> None:
        """Give the worker that leads the whole model."""
        self._part.collect(self._unit.model.tuned.optimizer, self._gang)

    def _batch(self, number: int, batch: Bounds, size: int, examples: StepExamples) -> list[float]:
        """Add the gradients of a batch to the trees, update the buffers, and return the losses of its shards."""
        unit, gang = self._unit, self._gang
        self._trees = {}
        shards = torch_shards.cut(batch, unit.shards, size)
        buffers = ShardBuffers(self._slots)
        losses: list[float] = []
        attributes: dict[str, Any] | None = None
        for start in range(0, len(shards), gang.size):
            present = shards[start : start + gang.size]
            self._counts = gang.rank < len(present)
            begin, end = present[gang.rank] if self._counts else present[0]
            if start:
                buffers.restore()
            self._pushed, self._sent = set(), set()
            with self._lockstep.reported(unit.explain):
                unit.seed_shard(number, start + (gang.rank if self._counts else 0))
                loss = self._compute(examples, begin, end)
                if unit.is_outermost(batch) and self._counts:
                    attributes = unit.same_attributes(attributes)
                self._lockstep.meet(BATCH, len(self._part.names))
            own_loss = torch.tensor([loss], dtype=torch.float64)
            losses += [float(each) for each in gang.gather(own_loss)[: len(present)]]
            self._add_small()
            for place in range(len(self._owners)):
                if self._part.owns(place) and place not in self._pushed:
                    self._push(place, [])
            self._collect_buffers(buffers, [(b - a) / (batch[1] - batch[0]) for a, b in present])
        buffers.finish()
        unit.seed_shard(number, unit.shards)  # for the optimizer and the hook of the values
        return losses

    def _compute(self, examples: StepExamples, begin: int, end: int) -> float:
        checkpoint = self._part.layout.checkpoint
        with self._gradients_to_owners(), self._on_demand.saving():
            if not checkpoint:
                return examples.backward(begin, end)
            with recomputed(self._unit.model.module, self._on_demand.saving) as self._uses:
                loss = examples.backward(begin, end)
        self._uses = None
        for number in self._divided:
            if self._part.parameters[number].grad is not None:  # several blocks have added to it
                self._sender(number)(self._part.parameters[number])
        return loss

    @contextmanager
    def _gradients_to_owners(self) -> Iterator[None]:
        """Send each gradient of a divided parameter to its owner as soon as it is complete."""
        handles = []
        parameters: list[Any] = [*self._part.parameters]  # torch declares no type for hooks
        for number in self._divided:
            parameter = parameters[number]
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(self._sender(number)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _sender(self, number: int) -> Any:
        def send(parameter: Any) -> None:
            if self._uses is not None and self._uses(parameter) > 1:
                return  # it is not complete yet
            gradient = self._dense_gradient(number)
            parameter.grad = None
            if number in self._sent:
                raise TrainerError(
                    f"checkpoint: the parameter {self._part.names[number]!r} is used by several parts of the model "
                    "that are computed again, which layout='sharded' cannot tell apart; use checkpoint=False"
                )
            self._sent.add(number)
            found = self._gang.room_for(gradient, self._owners[number])  # before they meet, as it may fail
            present = self._lockstep.meet(GRADIENT, number, self._counts)
            self._gang.gather_at(gradient, self._owners[number], found)
            if found:
                self._push(number, [each for each, there in zip(found, present, strict=True) if there])

        return send

    def _push(self, number: int, found: Sequence[torch.Tensor]) -> None:
        """Add what the ranks have computed at a time, a subtree of the sum; nothing keeps its place there, too."""
        self._pushed.add(number)
        subtree: TreeSum[torch.Tensor] = TreeSum(torch.Tensor.add_)
        for gradient in found:
            subtree.push(gradient)
        total = subtree.total()
        if total is not None and self._part.layout.offload:
            total = mapped(total)
        self._trees.setdefault(number, TreeSum(torch.Tensor.add_)).push(total)

    def _add_small(self) -> None:
        """Add the gradients of parameters that every worker has."""
        small = [number for number, owner in enumerate(self._owners) if owner == EVERY]
        parameters = [self._part.parameters[number] for number in small]
        given = [
            self._dense_gradient(number) if parameter.grad is not None and self._counts else None
            for number, parameter in zip(small, parameters, strict=True)
        ]
        flags = self._gang.gather(torch.tensor([each is not None for each in given], dtype=torch.uint8))
        for dtype in dict.fromkeys(parameter.dtype for parameter in parameters):
            places = [place for place, parameter in enumerate(parameters) if parameter.dtype == dtype]
            own = [_or_zeros(given[place], parameters[place]) for place in places]
            rows = [torch.split(row, [each.numel() for each in own]) for row in self._gang.gather(torch.cat(own))]
            for column, place in enumerate(places):
                there = [row[column] for row, flag in zip(rows, flags, strict=True) if flag[place]]
                if there:
                    self._push(small[place], there)
        for parameter in parameters:
            parameter.grad = None

    def _dense_gradient(self, number: int) -> torch.Tensor:
        parameter, gradient = self._part.parameters[number], self._part.parameters[number].grad
        assert gradient is not None
        if gradient.layout is not torch.strided:
            torch_shards.take_gradients([self._part.names[number]], [parameter])  # raises the error
        if gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter, device=gradient.device).copy_(gradient)
        return dense(gradient)

    def _collect_buffers(self, buffers: ShardBuffers, weights: Sequence[float]) -> None:
        """Take the buffers of all ranks in order, as if this one had computed all shards."""
        buffers.agree_on_late(self._gang)
        contents = [self._gathered(index, slot.get(), buffers) for index, slot in enumerate(self._slots)]
        for rank, weight in enumerate(weights):
            for slot, content in zip(self._slots, contents, strict=True):
                slot.set(None if content is None else content[rank])
            buffers.collect(weight)

    def _gathered(self, index: int, now: torch.Tensor | None, buffers: ShardBuffers) -> list[torch.Tensor] | None:
        if now is None:
            return None
        start = buffers.start(index)
        if start is None or (start.shape, start.dtype) != (now.shape, now.dtype):
            raise TrainerError(
                f"shards: the buffer {self._slots[index].name!r} changes its shape or type while the model is "
                "called, so several workers cannot train it together; keep its shape and type, or use shards=1"
            )
        return self._gang.gather(now)


def refusal(model: TorchModel, shards: int) -> str:
    """Return "" if a model can be trained with this layout, else why not."""
    if shards < 2:
        return "it needs shards=2 or more, so that several workers can train a unit"
    if model.tuned.needs_closure:
        return f"the optimizer {type(model.tuned.optimizer).__name__} calls the model in its step"
    if any(parameter.layout is not torch.strided for parameter in model.module.parameters()):
        return "it has sparse parameters; expected dense ones"
    if any(getattr(part, "max_norm", None) is not None for part in model.module.modules()):
        return "an embedding with max_norm changes its weights when it is called"
    return separable(model.tuned.optimizer) or shared_memory(model.module)


def owners(parameters: Sequence[nn.Parameter], ranks: int) -> list[int]:
    """Return the owner of each parameter."""
    return balanced_owners([parameter.nbytes for parameter in parameters], ranks)


def _or_zeros(gradient: torch.Tensor | None, parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros(parameter.numel(), dtype=parameter.dtype) if gradient is None else gradient

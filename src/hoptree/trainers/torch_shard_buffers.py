"""The buffers of a module while the shards of a batch are computed: all start alike, and become one at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import torch
from torch import nn

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_exchange import BufferPart, exchange_buffers
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_tree import TreeSum


class BufferSlot(NamedTuple):
    """Where a module keeps a buffer, which may be None."""

    name: str
    owner: nn.Module
    short: str

    def get(self) -> torch.Tensor | None:
        """Return the buffer as it is now."""
        return self.owner._buffers[self.short]

    def set(self, tensor: torch.Tensor | None) -> None:
        """Replace the buffer."""
        self.owner._buffers[self.short] = tensor


class _Buffer:
    """One buffer: its content when the batch began and after the first shard, and the average if shards differ."""

    def __init__(self, slot: BufferSlot) -> None:
        self.slot = slot
        self.tensor = slot.get()
        self.start = None if self.tensor is None else self.tensor.clone()
        self.first: torch.Tensor | None = None
        self.average: TreeSum[torch.Tensor] | None = None

    def restore(self) -> None:
        if self.tensor is not None:
            assert self.start is not None
            self.tensor.copy_(self.start)
        self.slot.set(self.tensor)

    def collect(self, weights: list[float]) -> None:
        """Take the content after a shard; ``weights`` are those of all shards so far."""
        now = self.slot.get()
        if len(weights) == 1:
            self.first = None if now is None else now.detach().clone()
            return
        if self.average is None and _equal(self.first, now):
            return
        self._check(now)
        assert self.first is not None
        assert now is not None
        if self.average is None:
            self.average = TreeSum(torch.Tensor.add_)
            for weight in weights[:-1]:
                self.average.push(self.first * weight)
        self.average.push(now.detach() * weights[-1])

    def finish(self, result: torch.Tensor | None) -> None:
        if self.tensor is not None and result is not None and self.tensor.shape == result.shape:
            self.tensor.copy_(result)
            result = self.tensor
        self.slot.set(result)

    def result(self) -> torch.Tensor | None:
        """Return the content after all shards of a batch."""
        return self.first if self.average is None else self.average.total()

    def kind(self) -> tuple[str, list[int], str] | None:
        """Return the type, shape and kind of device that it has now."""
        now = self.slot.get()
        return None if now is None else (str(now.dtype)[6:], list(now.shape), now.device.type)

    def shape_error(self) -> TrainerError:
        return TrainerError(
            f"shards: the buffer {self.slot.name!r} changes its shape or type while the model is called, so "
            "several workers cannot train it together; keep its shape and type, or use shards=1"
        )

    @property
    def has_changed(self) -> bool:
        """Whether it differs from its content at the beginning after some shard."""
        now = self.slot.get()
        if self.average is not None or (now is None) != (self.start is None):
            return True
        return self.first is not None and not (_equal(self.start, self.first) and _equal(self.start, now))

    def part(self, weights: list[float]) -> BufferPart | None:
        """Return what other ranks have to know of it; None for a buffer that is absent."""
        if self.start is None:
            return None
        for content in (self.first, self.slot.get() if weights else None):
            if content is not None and (content.shape, content.dtype) != (self.start.shape, self.start.dtype):
                raise self.shape_error()
        return BufferPart(self.start, self.first, self.average is not None, lambda: self._weighted(weights))

    def _weighted(self, weights: list[float]) -> torch.Tensor | None:
        if self.average is None and weights:
            assert self.first is not None
            self._check(self.first)
            self.average = TreeSum(torch.Tensor.add_)
            for weight in weights:
                self.average.push(self.first * weight)
        return None if self.average is None else self.average.total()

    def _check(self, now: torch.Tensor | None) -> None:
        first, problem = self.first, ""
        if first is None or now is None or first.shape != now.shape or first.dtype != now.dtype:
            problem = "its shape or type differs"
        elif not first.is_floating_point() and not first.is_complex():
            problem = (
                f"it is {str(first.dtype).removeprefix('torch.')}, which has no average, and its content differs"
            )
        if problem:
            raise TrainerError(
                f"shards: the buffer {self.slot.name!r} cannot be averaged over the shards of a batch: {problem}; "
                "expected floating-point numbers of one shape, or the same content after every shard; otherwise "
                "use shards=1"
            )


@final
class ShardBuffers:
    """All buffers of a module, for the shards of one batch, in order.

    A buffer that is equal after every shard keeps this value: constants and counters. Others are averaged by the
    tree that adds gradients, each shard weighted by its part of the batch.
    """

    def __init__(self, slots: Sequence[BufferSlot]) -> None:
        self._weights: list[float] = []
        with torch.no_grad():
            self._buffers = [_Buffer(slot) for slot in slots]

    def agree_on_late(self, gang: Gang) -> None:
        """Let buffers that come with this batch start from zeros, of the shape that all ranks have given them."""
        late = [buffer for buffer in self._buffers if buffer.start is None]
        if not late:
            return
        own = [buffer.kind() for buffer in late]
        rows: list[list[Any]] = [json.loads(text) for text in gang.texts(json.dumps(own))]
        for buffer, kinds in zip(late, zip(*rows, strict=True), strict=True):
            known = [kind for kind in kinds if kind is not None]
            if any(kind != known[0] for kind in known):
                raise buffer.shape_error()
            if known:
                dtype, shape, device = known[0]
                buffer.start = torch.zeros(shape, dtype=getattr(torch, dtype), device=device)

    def start(self, number: int) -> torch.Tensor | None:
        """Return the content of a buffer at the beginning of the batch."""
        return self._buffers[number].start

    def renew(self) -> None:
        """Set all buffers to copies of their content at the beginning of the batch.

        For shards under way at the same time: autograd refuses tensors that have changed since they were used.
        """
        with torch.no_grad():
            for buffer in self._buffers:
                buffer.slot.set(None if buffer.start is None else buffer.start.clone())

    def restore(self) -> None:
        """Set all buffers to their content at the beginning of the batch."""
        with torch.no_grad():
            for buffer in self._buffers:
                buffer.restore()

    def collect(self, weight: float) -> None:
        """Take the content of all buffers after a shard."""
        self._weights.append(weight)
        with torch.no_grad():
            for buffer in self._buffers:
                buffer.collect(self._weights)

    @property
    def have_changed(self) -> bool:
        """Whether the shards so far have changed a buffer."""
        return any(buffer.has_changed for buffer in self._buffers)

    def finish(self, gang: Gang | None = None) -> None:
        """Set all buffers to the result of the batch, of which the ranks of a gang have computed parts."""
        with torch.no_grad():
            if gang is None:
                results = {buffer.slot.name: buffer.result() for buffer in self._buffers}
            else:
                results = self._exchange(gang)
            for buffer in self._buffers:
                buffer.finish(results.get(buffer.slot.name))

    def _exchange(self, gang: Gang) -> dict[str, torch.Tensor | None]:
        self.agree_on_late(gang)
        parts = [(buffer.slot.name, buffer.part(self._weights)) for buffer in self._buffers]
        present = [(name, part) for name, part in parts if part is not None]
        found = exchange_buffers(gang, [part for _, part in present])
        return {name: each for (name, _), each in zip(present, found, strict=True)}


def buffer_slots(module: nn.Module) -> list[BufferSlot]:
    """Return the slots of all buffers, without those that hold the tensor of an earlier one."""
    seen: set[int] = set()
    found = []
    for path, owner in module.named_modules():
        for short, tensor in owner._buffers.items():
            if tensor is None or id(tensor) not in seen:
                found.append(BufferSlot(f"{path}.{short}" if path else short, owner, short))
            seen.add(id(tensor))
    return found


def _equal(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and torch.equal(one, two)

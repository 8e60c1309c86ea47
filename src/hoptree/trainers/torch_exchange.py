"""What the workers of a gang exchange after each has computed its own shards of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from hoptree.trainers import torch_shards
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_part import ModelPart
from hoptree.trainers.torch_tree import Tensors

Keep = Callable[[torch.Tensor], torch.Tensor]
_BUCKET = 1 << 26  # bytes of gradients


class StepReport(NamedTuple):
    """What all ranks have computed of a batch.

    ``losses`` are those of all shards in order; ``present`` are the parameters that have a gradient on some rank,
    and ``changed`` says whether a rank has changed a buffer.
    """

    losses: list[float]
    present: list[bool]
    changed: bool


def exchange_report(
    gang: Gang,
    losses: Sequence[float],
    most: int,
    failed: Exception | None,
    own: Tensors = (),
    changed: bool = False,
) -> StepReport:
    """Return what all ranks report of a batch; a rank has the losses of at most ``most`` shards.

    If the code of a rank has failed, raise that error on every rank: the others would wait for its gradients.
    """
    first = 3 + most  # of the flags of parameters
    row = torch.zeros(first + len(own), dtype=torch.float64)
    head = [float(failed is not None), float(changed), float(len(losses)), *losses]
    row[: len(head)] = torch.tensor(head, dtype=torch.float64)
    row[first:] = torch.tensor([gradient is not None for gradient in own], dtype=torch.float64)
    rows = torch.stack(gang.gather(row))
    if rows[:, 0].any():
        texts = gang.texts("" if failed is None else str(failed))
        if failed is not None:
            raise failed
        raise TrainerError(next(text for text in texts if text))
    of_ranks = [(int(count), each) for _, _, count, *each in rows[:, :first].tolist()]
    return StepReport(
        losses=[loss for count, each in of_ranks for loss in each[:count]],
        present=rows[:, first:].any(0).tolist(),
        changed=bool(rows[:, 1].any()),
    )


def exchange_gradients(
    gang: Gang,
    own: Tensors,
    parameters: Sequence[torch.Tensor],
    present: Sequence[bool],
    keep: Keep | None = None,
) -> Tensors:
    """Return the sums of all ranks' gradients by the tree; None where no rank has one.

    A rank without a gradient sends -0.0, which leaves the bits of every sum as they are. ``keep`` moves each sum to
    where it stays.
    """
    here = list(own)
    result: list[torch.Tensor | None] = [None] * len(parameters)
    for kind in _by_type(parameters).values():
        for numbers in _buckets([number for number in kind if present[number]], parameters):
            parts = [_part(here[number], parameters[number]) for number in numbers]
            sums = gang.add(torch.cat(parts))
            for number, part in zip(numbers, torch.split(sums, [each.numel() for each in parts]), strict=True):
                total = _shaped(part, parameters[number])
                result[number] = total if keep is None else keep(total)
                here[number] = None
    return result


def _buckets(numbers: Sequence[int], parameters: Sequence[torch.Tensor]) -> list[list[int]]:
    """Divide parameters so that what is exchanged at a time needs little memory."""
    buckets: list[list[int]] = []
    size = _BUCKET
    for number in numbers:
        if size >= _BUCKET:
            buckets.append([])
            size = 0
        buckets[-1].append(number)
        size += parameters[number].nbytes
    return buckets


def clip_together(gang: Gang, part: ModelPart, most: float) -> None:
    """Clip the gradients of a model's parts by the norm over all of them, in the order of the parameters."""
    assert part.owners is not None
    own = torch.full((len(part.parameters),), math.nan, dtype=torch.float64)
    known = torch.zeros(len(part.parameters), dtype=torch.uint8)
    for number, parameter in enumerate(part.parameters):
        if parameter.grad is not None:
            own[number], known[number] = torch_shards.gradient_norm(parameter.grad), 1
    rows, flags = gang.gather(own), gang.gather(known)
    ranks = [max(owner, 0) for owner in part.owners]  # the first one knows those that every worker has
    norms = [float(rows[rank][number]) for number, rank in enumerate(ranks) if flags[rank][number]]
    torch_shards.clip([parameter.grad for parameter in part.parameters], most, norms)


class BufferPart(NamedTuple):
    """What a rank has of a buffer after its own shards of a batch.

    ``start`` is the content before the batch, ``first`` that after its first shard (None: it has computed none),
    ``differs`` whether a later shard left another one, and ``weighted`` the weighted sum over its shards.
    """

    start: torch.Tensor
    first: torch.Tensor | None
    differs: bool
    weighted: Callable[[], torch.Tensor | None]


def exchange_buffers(gang: Gang, parts: Sequence[BufferPart]) -> list[torch.Tensor]:
    """Return buffers after a batch: the content if all shards of all ranks left the same, else the average."""
    if not parts:
        return []
    flags = torch.tensor([[part.first is not None, part.differs] for part in parts], dtype=torch.uint8)
    of_ranks = gang.gather(flags)
    differs = torch.stack(of_ranks)[:, :, 1].any(0).tolist()
    result: list[torch.Tensor] = [part.start for part in parts]
    average: dict[torch.dtype, list[int]] = {}
    for numbers in _by_type([part.start for part in parts]).values():
        own = torch.cat([_vector(parts[n].start if parts[n].first is None else parts[n].first) for n in numbers])
        of_numbers = [torch.split(each, [parts[n].start.numel() for n in numbers]) for each in gang.gather(own)]
        for place, n in enumerate(numbers):
            found = [split[place] for split, flag in zip(of_numbers, of_ranks, strict=True) if flag[n][0]]
            if differs[n] or not all(torch.equal(each, found[0]) for each in found):
                average.setdefault(parts[n].start.dtype, []).append(n)
            else:
                result[n] = found[0].view(parts[n].start.shape)
    for numbers in average.values():
        sums = gang.add(torch.cat([_part(parts[n].weighted(), parts[n].start) for n in numbers]))
        for n, total in zip(numbers, torch.split(sums, [parts[n].start.numel() for n in numbers]), strict=True):
            result[n] = total.view(parts[n].start.shape)
    return result


def _by_type(tensors: Sequence[torch.Tensor]) -> dict[torch.dtype, list[int]]:
    kinds: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        kinds.setdefault(tensor.dtype, []).append(number)
    return kinds


def _vector(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.detach().reshape(-1)


def _part(gradient: torch.Tensor | None, parameter: torch.Tensor) -> torch.Tensor:
    if gradient is None:
        return torch.full((parameter.numel(),), -0.0, device=parameter.device).to(parameter.dtype)
    return _vector(gradient)


def _shaped(part: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a vector in the shape of a parameter, and in the order of its memory, as a gradient has."""
    shaped = part.view(parameter.shape)
    return shaped if parameter.is_contiguous() else torch.empty_like(parameter).copy_(shaped)

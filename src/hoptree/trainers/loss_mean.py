"""Detect a loss that is not a mean over examples, which shards would change.

The loss of a batch that is cut into shards is the mean of the losses of its shards. For a sum over examples, a root
of a mean or a comparison of examples with each other, that is another function than the loss of the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hoptree.trainers.errors import TrainerError

_OTHER = 1e-4  # losses with a larger relative difference differ; sums in another order differ by far less
_NARROW = 0.03  # the same for losses of 16 bits, and where the model is called again, which may compute in 16 bits
Loss = Callable[[Any, Any], Any]
Bounds = tuple[int, int]


def check_mean(
    loss: Loss, module: nn.Module, inputs: Sequence[torch.Tensor], target: torch.Tensor, output: Any
) -> None:
    """Raise an error if the loss of some examples is not the mean of the losses of parts of them.

    If the output has a row for every example, the parts are single examples, or halves if the loss does not take
    these; otherwise the model is called with each half. A loss that fails, or that is random, is not checked.
    """
    rows = len(target)
    if rows < 2:
        return
    halves = [(0, rows // 2), (rows // 2, rows)]
    try:
        found = loss(output, target)
        whole, narrow = float(found), getattr(found, "dtype", None) in (torch.bfloat16, torch.float16)
        if float(loss(output, target)) != whole:
            return
        for parts in ([(row, row + 1) for row in range(rows)], halves):
            losses = _of_outputs(loss, output, target, parts)
            if losses is not None:
                break
        else:
            narrow = True
            if float(loss(module(*inputs), target)) != whole:
                return
            losses = [float(loss(module(*(each[a:b] for each in inputs)), target[a:b])) for a, b in halves]
    except Exception:  # training reports it
        return
    mean = sum(one * (stop - start) for one, (start, stop) in zip(losses, parts, strict=True)) / rows
    if abs(mean - whole) > (_NARROW if narrow else _OTHER) * max(abs(whole), *map(abs, losses)):
        raise TrainerError(
            f"loss: {whole:.6g} for {rows} examples, but their parts have the mean {mean:.6g}; with shards= "
            'expected a mean over examples, so that a batch can be cut: use reduction="mean", without weights by '
            "class or ignored targets, or shards=1"
        )


def _of_outputs(loss: Loss, output: Any, target: torch.Tensor, parts: Sequence[Bounds]) -> list[float] | None:
    """Return the losses of parts of the output; None if it cannot be cut, or the loss does not take the parts."""
    try:
        losses = [float(loss(_rows(output, part, len(target)), target[part[0] : part[1]])) for part in parts]
    except Exception:
        return None
    return losses if all(map(math.isfinite, losses)) else None


def _rows(output: Any, part: Bounds, rows: int) -> Any:
    if isinstance(output, torch.Tensor) and output.ndim and len(output) == rows:
        return output[part[0] : part[1]]
    if isinstance(output, tuple | list):
        return type(output)(_rows(each, part, rows) for each in output)
    if isinstance(output, Mapping):
        return {name: _rows(each, part, rows) for name, each in output.items()}
    raise TypeError(type(output).__name__)

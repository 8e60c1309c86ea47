"""Detect a loss that compares every output with every target because shapes broadcast: (n, 1) against (n,).

Such a loss trains without an error, but learns only the mean of the targets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hoptree.trainers.errors import TrainerError

_SAME = 1e-5  # losses with a smaller relative difference are equal: sums in another order
_OTHER = 1e-3  # losses with a larger relative difference differ


def check_pairing(loss: Callable[[Any, Any], Any], output: Any, target: Any) -> None:
    """Raise an error if broadcasting makes the loss independent of which target belongs to which example.

    The loss is called with synthetic outputs of the model's shape. If rolling the targets by one example changes it
    for outputs of the target's shape, it must also change for outputs of the model's shape. So losses that handle
    such outputs on purpose (``cross_entropy``, pairwise rankings, an own ``squeeze``) pass.
    """
    if not isinstance(output, torch.Tensor) or not isinstance(target, torch.Tensor):
        return
    crossed = _crossed(tuple(output.shape), tuple(target.shape))
    moved = target.roll(1, 0) if crossed else target
    if crossed is None or not output.is_floating_point() or torch.equal(moved, target):
        return
    made_up = (torch.arange(output.numel(), device=output.device) + 0.5) / output.numel()
    as_given = made_up.to(output.dtype).reshape(output.shape)
    as_meant = as_given.reshape(target.shape)
    if _differs(loss, as_given, target, moved) < _SAME and _differs(loss, as_meant, target, moved) > _OTHER:
        raise TrainerError(
            f"loss: model output {tuple(output.shape)} and target {tuple(target.shape)} broadcast to {crossed}: "
            "every output is compared with every target, no matter which example it belongs to; give both one "
            "shape, for example with .squeeze(1) at the end of the model, or with a target column of shape (n, 1)"
        )


def _crossed(output: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape to which two shapes broadcast, if they differ only in dimensions of 1.

    >>> _crossed((8, 1), (8,)), _crossed((8, 1), (8, 1)), _crossed((8, 3), (8,))
    ((8, 8), None, None)
    """
    if [size for size in output if size != 1] != [size for size in target if size != 1]:
        return None
    try:
        shape = np.broadcast_shapes(output, target)
    except ValueError:
        return None
    return shape if math.prod(shape) > math.prod(target) else None


def _differs(loss: Callable[[Any, Any], Any], output: torch.Tensor, target: Any, moved: Any) -> float:
    """Return the relative change of the loss when the targets change; NaN if it cannot be computed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch itself warns about some of these shapes
            one, two = float(loss(output.clone(), target.clone())), float(loss(output.clone(), moved.clone()))
    except Exception:  # it does not accept such shapes
        return math.nan
    return abs(one - two) / max(abs(one), abs(two)) if one != two else 0.0

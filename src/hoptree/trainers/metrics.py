"""Metrics for a trainer's ``metrics=``: functions of all outputs and all targets, for any array library."""

from __future__ import annotations

import math
from typing import Any

from hoptree.trainers.errors import TrainerError


def accuracy(output: Any, target: Any) -> float:
    """Return the fraction of examples whose class has the highest score (for a single score: its sign).

    Scores are in the last dimension, or in the second as for ``cross_entropy``.

    >>> import numpy as np
    >>> accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
    0.5
    """
    scores, classes = tuple(output.shape), tuple(target.shape)
    if len(scores) == len(classes) + 1 and scores[-1] > 1 and scores[:-1] == classes:
        right = output.argmax(-1) == target
    elif len(scores) == len(classes) + 1 and len(scores) > 1 and scores[:1] + scores[2:] == classes:
        right = output.argmax(1) == target if scores[1] > 1 else (output[:, 0] > 0) == (target > 0.5)
    elif scores == classes and math.prod(scores[1:]) == 1:
        right = (output > 0) == (target > 0.5)
    else:
        raise TrainerError(
            f"accuracy: output {scores}, target {classes}; expected class numbers of shape (n,) for scores of "
            "shape (n, classes), or 0/1 targets of the same shape as single scores"
        )
    fraction: float = int(right.sum()) / math.prod(classes)
    return fraction

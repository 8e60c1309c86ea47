"""Losses after different numbers of epochs, made comparable."""

from __future__ import annotations

import math
from collections.abc import Mapping


def comparable(told: Mapping[int, Mapping[int, float]], enough: int) -> dict[int, float]:
    """Return one loss for each config that can be compared, of the losses by config and epoch.

    The level is the deepest epoch that ``enough`` configs have reached, or all of them while they are fewer. A
    config that reached it counts with its first loss at or after it; others are left out. A config whose last
    loss is not finite has failed: it counts as much as the worst.

    >>> comparable({0: {1: 0.9, 3: 0.5}, 1: {1: 0.8, 3: 0.6, 9: 0.1}, 2: {1: 0.7}, 3: {1: math.inf}}, enough=2)
    {0: 0.5, 1: 0.6, 3: 0.6}
    """
    sound = {config: losses for config, losses in told.items() if math.isfinite(losses[max(losses)])}
    if not sound:
        return {}
    deepest = sorted(map(max, sound.values()), reverse=True)
    level = deepest[min(max(1, enough), len(deepest)) - 1]
    values = {
        config: next(losses[epoch] for epoch in sorted(losses) if epoch >= level and math.isfinite(losses[epoch]))
        for config, losses in sound.items()
        if max(losses) >= level
    }
    return values | dict.fromkeys((config for config in told if config not in sound), max(values.values()))

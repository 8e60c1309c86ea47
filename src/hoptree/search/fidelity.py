"""Losses after different numbers of epochs, made comparable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import final


@final
class Comparison:
    """One loss for each config that can be compared, kept up to date while losses are told.

    The level is the deepest epoch that ``enough`` configs have reached, or all of them while they are fewer. A
    config that reached it counts with its first loss at or after it; others are left out. A config whose last
    loss is not finite has failed: it counts as much as the worst.

    ``refresh`` looks at what was told since, and at everything only when the level has changed.
    """

    def __init__(self, enough: int) -> None:
        self.told: dict[int, dict[int, float]] = {}
        self._enough = max(1, enough)
        self._sound: dict[int, int] = {}  # by config that has not failed: its last epoch
        self._reached: Counter[int] = Counter()  # how many of them have it as their last
        self._failed: set[int] = set()
        self._news: set[int] = set()
        self._values: dict[int, float] = {}  # of those that have not failed
        self._level = 0
        self._worst: float | None = None

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Learn a loss; another one after the same epoch replaces it."""
        losses = self.told.setdefault(config, {})
        losses[epoch] = loss
        last = max(losses)
        before = self._sound.pop(config, None)
        if before is not None:
            self._reached[before] -= 1
        self._failed.discard(config)
        if math.isfinite(losses[last]):
            self._sound[config] = last
            self._reached[last] += 1
        else:
            self._failed.add(config)
        self._news.add(config)

    def refresh(self) -> set[int]:
        """Take in what was told, and return the configs of which something is known now that was not before."""
        level = self._find_level()
        changed, self._news = self._news, set()
        if level != self._level:
            self._level = level
            changed = set(self.told)
        for config in changed:
            self._values.pop(config, None)
            if self._sound.get(config, -1) >= level:
                losses = self.told[config]
                first = min(epoch for epoch, loss in losses.items() if epoch >= level and math.isfinite(loss))
                self._values[config] = losses[first]
        worst = max(self._values.values(), default=None)
        if worst != self._worst:
            self._worst = worst
            changed |= self._failed
        return changed

    @property
    def worst(self) -> float | None:
        """The worst loss that counts; None if there is none."""
        return self._worst

    @property
    def values(self) -> dict[int, float]:
        """The losses that can be compared, by config, as of the last refresh."""
        return self._values | ({} if self._worst is None else dict.fromkeys(self._failed, self._worst))

    def value(self, config: int) -> float | None:
        """Return the loss with which a config is compared, as of the last refresh; None if it is not."""
        return self._worst if config in self._failed else self._values.get(config)

    def _find_level(self) -> int:
        wanted = min(self._enough, len(self._sound))
        for epoch in sorted(self._reached, reverse=True):
            wanted -= self._reached[epoch]
            if wanted <= 0:
                return epoch
        return 0


def comparable(told: Mapping[int, Mapping[int, float]], enough: int) -> dict[int, float]:
    """Return the losses that can be compared, of the losses by config and epoch.

    >>> comparable({0: {1: 0.9, 3: 0.5}, 1: {1: 0.8, 3: 0.6, 9: 0.1}, 2: {1: 0.7}, 3: {1: math.inf}}, enough=2)
    {0: 0.5, 1: 0.6, 3: 0.6}
    """
    comparison = Comparison(enough)
    for config, losses in told.items():
        for epoch, loss in losses.items():
            comparison.tell(config, epoch, loss)
    comparison.refresh()
    return comparison.values

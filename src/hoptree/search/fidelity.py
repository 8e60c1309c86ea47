"""Make losses after different numbers of epochs comparable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import final


@final
class Comparison:
    """One loss for each comparable config, updated as losses are reported.

    The level is the deepest epoch that ``enough`` configs have reached, or all of them if there are fewer. A config
    that reached the level counts with its first loss at or after it; the others are left out. A config whose last
    loss is not finite has failed, and counts with the worst loss.

    ``refresh`` updates only configs with new losses, or all configs if the level has changed.
    """

    def __init__(self, enough: int) -> None:
        self.losses: dict[int, dict[int, float]] = {}
        self._enough = max(1, enough)
        self._last_epochs: dict[int, int] = {}  # by config that has not failed: its last epoch
        self._reached: Counter[int] = Counter()  # by last epoch: how many of these configs
        self._failed: set[int] = set()
        self._updated: set[int] = set()
        self._values: dict[int, float] = {}  # of the configs that have not failed
        self._level = 0
        self._worst: float | None = None

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Add a loss, or replace the one at the same epoch."""
        losses = self.losses.setdefault(config, {})
        losses[epoch] = loss
        last = max(losses)
        before = self._last_epochs.pop(config, None)
        if before is not None:
            self._reached[before] -= 1
        self._failed.discard(config)
        if math.isfinite(losses[last]):
            self._last_epochs[config] = last
            self._reached[last] += 1
        else:
            self._failed.add(config)
        self._updated.add(config)

    def refresh(self) -> set[int]:
        """Apply the losses reported since the last refresh, and return the configs whose value may have changed."""
        level = self._find_level()
        changed, self._updated = self._updated, set()
        if level != self._level:
            self._level = level
            changed = set(self.losses)
        for config in changed:
            self._values.pop(config, None)
            if self._last_epochs.get(config, -1) >= level:
                losses = self.losses[config]
                first = min(epoch for epoch, loss in losses.items() if epoch >= level and math.isfinite(loss))
                self._values[config] = losses[first]
        worst = max(self._values.values(), default=None)
        if worst != self._worst:
            self._worst = worst
            changed |= self._failed
        return changed

    @property
    def worst(self) -> float | None:
        """The worst loss among the configs that have not failed; None if there is none."""
        return self._worst

    @property
    def values(self) -> dict[int, float]:
        """The comparable losses by config, as of the last refresh."""
        return self._values | ({} if self._worst is None else dict.fromkeys(self._failed, self._worst))

    def value(self, config: int) -> float | None:
        """Return the comparable loss of a config, as of the last refresh; None if it has none."""
        return self._worst if config in self._failed else self._values.get(config)

    def _find_level(self) -> int:
        wanted = min(self._enough, len(self._last_epochs))
        for epoch in sorted(self._reached, reverse=True):
            wanted -= self._reached[epoch]
            if wanted <= 0:
                return epoch
        return 0


def comparable(losses_by_config: Mapping[int, Mapping[int, float]], enough: int) -> dict[int, float]:
    """Return the comparable losses, given the losses by config and epoch.

    >>> comparable({0: {1: 0.9, 3: 0.5}, 1: {1: 0.8, 3: 0.6, 9: 0.1}, 2: {1: 0.7}, 3: {1: math.inf}}, enough=2)
    {0: 0.5, 1: 0.6, 3: 0.6}
    """
    comparison = Comparison(enough)
    for config, losses in losses_by_config.items():
        for epoch, loss in losses.items():
            comparison.tell(config, epoch, loss)
    comparison.refresh()
    return comparison.values

"""A search whose configs are all known at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config
from hoptree.search.protocol import Decision, Extend, Train
from hoptree.search.tree import identity


@final
class Fixed:
    """Trains every config of a list for the same number of epochs."""

    def __init__(self, configs: Sequence[Config], epochs: int, every: int = 0) -> None:
        self._decisions: list[Decision] = [Train(config, epochs, every) for config in configs]

    @classmethod
    def grown(cls, lists: Sequence[tuple[Sequence[Config], int]], every: int = 0) -> Fixed:
        """Return the search over lists of configs, each with its epochs, where each list extends the one before.

        Configs of an earlier list keep their trial numbers, and are extended if a later list grants more epochs.
        """
        search = cls((), 0)
        known: set[object] = set()
        until = 0
        for configs, epochs in lists:
            if epochs > until:
                search._decisions += [Extend(trial, epochs) for trial in range(len(known))]
            until = epochs
            for config in configs:
                if (key := identity(config)) not in known:
                    known.add(key)
                    search._decisions.append(Train(config, epochs, every))
        return search

    def start(self) -> Sequence[Decision]:
        """Return all decisions of this search."""
        return self._decisions

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Return no decisions: reports do not matter to a fixed list."""
        return ()

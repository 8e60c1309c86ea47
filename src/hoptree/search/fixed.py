"""A search that knows all its configs beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config
from hoptree.search.protocol import Decision, Train


@final
class Fixed:
    """Trains every config of a list for the same number of epochs."""

    def __init__(self, configs: Sequence[Config], epochs: int, every: int = 0) -> None:
        self._decisions = [Train(config, epochs, every) for config in configs]

    def start(self) -> Sequence[Decision]:
        """Return all decisions there will be."""
        return self._decisions

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Change nothing: no report matters to a fixed list."""
        return ()

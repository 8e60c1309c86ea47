"""A search that runs a callback at a report, so that a fault happens at a moment that the test knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hoptree.core.actions import EndTrial, Report
from hoptree.search.protocol import Decision, Goal, Procedure, Search


class Sabotage:
    """Another procedure; ``happens`` says what is done at the n-th report of the study."""

    def __init__(self, procedure: Any, happens: dict[int, Callable[[], None]]) -> None:
        self.procedure = procedure
        self.happens = happens

    def __repr__(self) -> str:
        return repr(self.procedure)

    def search(self, space: Any, goal: Goal, seed: int) -> Search:
        return _Search(self.procedure, self.procedure.search(space, goal, seed), dict(self.happens))


class _Search:
    def __init__(self, procedure: Procedure, search: Search, happens: dict[int, Callable[[], None]]) -> None:
        self._search = search
        self._happens = happens
        self._reports = 0

    def start(self) -> Sequence[Decision]:
        return self._search.start()

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        if isinstance(news, Report):
            self._reports += 1
            if self._reports in self._happens:
                self._happens[self._reports]()
        return self._search.tell(news)

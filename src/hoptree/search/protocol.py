"""The waist between searches and the engine: decisions out, reports in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Metrics
from hoptree.core.schedules import Config

if TYPE_CHECKING:
    from hoptree.search.space import Space


class Train(msgspec.Struct, frozen=True):
    """Start a trial: the n-th Train or Branch of a search is its trial n, counted from 0."""

    config: Config
    until: int
    every: int = 0


class Branch(msgspec.Struct, frozen=True):
    """Start a trial that follows ``source`` up to the epoch ``at`` and another config from there."""

    source: int
    at: int
    config: Config
    until: int
    every: int = 0


class Extend(msgspec.Struct, frozen=True):
    """Grant a trial more epochs."""

    trial: int
    until: int


class Stop(msgspec.Struct, frozen=True):
    """Give up on a trial."""

    trial: int


Decision: TypeAlias = Train | Branch | Extend | Stop


class Goal(msgspec.Struct, frozen=True):
    """The metric that decides, and its direction, which is never guessed."""

    metric: str
    maximize: bool

    def loss(self, metrics: Metrics) -> float:
        """Return how bad metrics are: lower is better, and infinite for what is missing or no finite number.

        >>> Goal("accuracy", maximize=True).loss({"accuracy": 0.9})
        -0.9
        """
        value = metrics.get(self.metric, math.nan)
        return math.inf if not math.isfinite(value) else -value if self.maximize else value


class Search(Protocol):
    """Proposes trials and grants them budget."""

    def start(self) -> Sequence[Decision]:
        """Return the first decisions."""
        ...

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Take a report or the end of a trial in, and return what follows from it."""
        ...


class Sampler(Protocol):
    """A source of configs: the n-th that it gives is its config n, counted from 0."""

    def ask(self) -> Config | None:
        """Return the next config; None when there is none left."""
        ...

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Learn how bad a config was after an epoch: lower is better, infinite for one that failed."""
        ...


class Procedure(Protocol):
    """A search as a user writes it down: its settings, before it knows what it searches.

    It may have more methods: ``outlook()`` says how many epochs it will grant (``outlook.py``), and ``widen`` makes
    the search that goes on from earlier versions of it (``widening.py``).
    """

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space; the same arguments give the same search."""
        ...


def begin(procedure: Any, space: Space, goal: Goal, seed: int) -> Search:
    """Return the search of a procedure, or say what is wrong with either."""
    if isinstance(procedure, type) or not callable(getattr(procedure, "search", None)):
        raise WorkloadError(
            f"search: {procedure!r}; expected a procedure such as Grid(epochs=10), something with "
            "search(space, goal, seed), or a list of them"
        )
    search = cast("Search", procedure.search(space, goal, seed))
    for method in ("start", "tell"):
        if not callable(getattr(search, method, None)):
            raise WorkloadError(
                f"search: {procedure!r} made {search!r}, which has no {method}(); expected something with start() "
                "and tell(news)"
            )
    return search

"""The protocol between searches and the engine: decisions out, reports in."""

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
    """Start a trial that shares ``source`` up to the epoch ``at`` and continues with another config."""

    source: int
    at: int
    config: Config
    until: int
    every: int = 0


class Extend(msgspec.Struct, frozen=True):
    """Set a higher target epoch for a trial."""

    trial: int
    until: int


class Stop(msgspec.Struct, frozen=True):
    """Stop a trial and free its state."""

    trial: int


Decision: TypeAlias = Train | Branch | Extend | Stop


class Goal(msgspec.Struct, frozen=True):
    """The metric to optimize, and its direction, which is never guessed."""

    metric: str
    maximize: bool

    def loss(self, metrics: Metrics) -> float:
        """Return the loss of metrics: lower is better, and infinite if the metric is missing or not finite.

        >>> Goal("accuracy", maximize=True).loss({"accuracy": 0.9})
        -0.9
        """
        value = metrics.get(self.metric, math.nan)
        return math.inf if not math.isfinite(value) else -value if self.maximize else value


class Search(Protocol):
    """Requests trials and grants them epochs."""

    def start(self) -> Sequence[Decision]:
        """Return the first decisions."""
        ...

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Process a report or the end of a trial, and return the resulting decisions."""
        ...


class Sampler(Protocol):
    """A source of configs: the n-th config that it returns is its config n, counted from 0."""

    def ask(self) -> Config | None:
        """Return the next config; None if there are no more."""
        ...

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Report the loss of a config after an epoch: lower is better, infinite if it failed."""
        ...


class Procedure(Protocol):
    """A search as the user writes it: its settings, without space, goal and seed.

    Three more methods are optional: ``budget_estimate()`` estimates the total epochs (``budget_estimate.py``),
    ``stages()`` says the stages before a run (``outlook.py``), and ``widen`` returns the search that extends
    earlier versions of this procedure (``widening.py``). The property ``endless`` says that only a
    time limit ends it.
    """

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space; the same arguments give the same search."""
        ...


def begin(procedure: Any, space: Space, goal: Goal, seed: int) -> Search:
    """Return the search of a procedure; raise an error if either lacks a method."""
    if isinstance(procedure, type) or not callable(getattr(procedure, "search", None)):
        raise WorkloadError(
            f"search: {procedure!r}; expected a procedure such as Grid(epochs=10), an object with "
            "search(space, goal, seed), or a list of them"
        )
    search = cast("Search", procedure.search(space, goal, seed))
    for method in ("start", "tell"):
        if not callable(getattr(search, method, None)):
            raise WorkloadError(
                f"search: {procedure!r} returned {search!r}, which has no {method}(); expected an object with "
                "start() and tell(update)"
            )
    return search

"""The waist between searches and the engine: decisions out, reports in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config


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


class Search(Protocol):
    """Proposes trials and grants them budget."""

    def start(self) -> Sequence[Decision]:
        """Return the first decisions."""
        ...

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Take a report or the end of a trial in, and return what follows from it."""
        ...

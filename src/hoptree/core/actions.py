"""Actions: imperatives that the engine gives; backends and searches carry them out."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.lineage import Values, seed_of

Ending: TypeAlias = Literal["complete", "stopped", "failed"]


class _Action(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class RunUnit(_Action, frozen=True):
    """Train the state at (``source``, ``unit``) over one partition, giving the state at (``node``, ``unit`` + 1).

    ``source`` differs from ``node`` only where a branch begins. The lineage, and so the seed, follows from
    ``key`` and ``unit``. With ``evaluate`` the new state's metrics are due right after it. A run that comes
    while another is under way on the same worker waits for it: the worker fetches its state meanwhile.
    """

    run: int
    worker: str
    node: int
    source: int
    unit: int
    partition: int
    epoch: int
    key: str
    values: Values
    home: str
    evaluate: bool = False

    @property
    def seed(self) -> int:
        """The unit's random seed (63 bits), a function of its lineage only."""
        return seed_of(self.key, self.unit)


class Evaluate(_Action, frozen=True):
    """Compute the metrics of a stored state, parameters frozen."""

    run: int
    worker: str
    node: int
    unit: int
    key: str


class CancelUnit(_Action, frozen=True):
    """Stop a run that nobody asks for any more."""

    run: int
    worker: str


class DropState(_Action, frozen=True):
    """Forget a state that nothing needs any more."""

    node: int
    unit: int


class Report(_Action, frozen=True):
    """Tell the search a trial's metrics at an epoch."""

    trial: int
    epoch: int
    metrics: Metrics


class EndTrial(_Action, frozen=True):
    """Tell the search that a trial has ended, how, and why if it failed."""

    trial: int
    ending: Ending
    reason: str = ""


Action: TypeAlias = RunUnit | Evaluate | CancelUnit | DropState | Report | EndTrial

"""Actions: imperatives that the engine gives; backends and searches carry them out."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.keys import state_key, unit_seed
from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar

Ending: TypeAlias = Literal["complete", "stopped", "failed"]


class _Action(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class Origin(msgspec.Struct, frozen=True):
    """What the untrained model of a lineage is built from."""

    values: dict[str, Scalar]
    seed: int


class RunUnit(_Action, frozen=True):
    """Train the state at (``source``, ``unit``) over one partition, giving the state at (``node``, ``unit`` + 1).

    ``source`` differs from ``node`` only where a branch begins. It is all that a backend needs: the states are
    named by ``source_state`` (None: the untrained model, built from ``origin``) and ``target_state``, the seed
    follows from the lineage ``key`` and ``unit``. ``home`` is the worker that made the source. With ``evaluate``
    the new state's metrics are due right after it. A run that comes while another is under way on the same worker
    waits for it: the worker fetches its state meanwhile.
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
    origin: Origin
    source_key: str
    tree: str = ""
    evaluate: bool = False

    @property
    def source_state(self) -> str | None:
        """The name of the state that it starts from."""
        return state_key(self.source_key, self.unit, self.tree) if self.unit else None

    @property
    def target_state(self) -> str:
        """The name of the state that it gives."""
        return state_key(self.key, self.unit + 1, self.tree)

    @property
    def seed(self) -> int:
        """The unit's random seed (63 bits), a function of its lineage only."""
        return unit_seed(self.key, self.unit)


class Evaluate(_Action, frozen=True):
    """Compute the metrics of the state named ``key``, parameters frozen; ``lineage`` is that of its node."""

    run: int
    worker: str
    node: int
    unit: int
    key: str
    lineage: str
    origin: Origin


class CancelUnit(_Action, frozen=True):
    """Stop a run that nobody asks for any more; with ``silent`` nothing that it answers counts."""

    run: int
    worker: str
    silent: bool = False


class SaveState(_Action, frozen=True):
    """Write a state to the store, behind training; ``StateSaved`` or ``StateLost`` tells what came of it.

    With ``keep`` it stays though nothing needs it, to go on from after a loss, until a later one of its lineage has
    been saved. One that is not ``durable`` is spare: it is about to be dropped, serves studies to come, and may be
    passed over where the store has no time or no room for it.
    """

    node: int
    unit: int
    key: str
    seconds: float = 0.0  # of training that the lineage would lose without it
    keep: bool = False
    durable: bool = True


class AdoptState(_Action, frozen=True):
    """Count a state that the store holds as the one at this place; ``keep`` it though nothing needs it yet."""

    node: int
    unit: int
    keep: bool = True


class DropState(_Action, frozen=True):
    """Forget a state: nothing needs it any more."""

    node: int
    unit: int
    lineage: str
    tree: str = ""

    @property
    def key(self) -> str:
        """The name of the state."""
        return state_key(self.lineage, self.unit, self.tree)


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


Task: TypeAlias = RunUnit | Evaluate | CancelUnit | SaveState | DropState  # what a backend carries out
Action: TypeAlias = Task | AdoptState | Report | EndTrial

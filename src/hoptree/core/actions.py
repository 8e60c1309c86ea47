"""Actions: what the engine decides; backends and searches carry them out."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.keys import state_key, unit_seed
from hoptree.core.layouts import SINGLE
from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar

Ending: TypeAlias = Literal["complete", "stopped", "failed"]


class _Action(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class Origin(msgspec.Struct, frozen=True):
    """The values and seed from which the untrained model of a lineage is built."""

    values: dict[str, Scalar]
    seed: int


class RunUnit(_Action, frozen=True):
    """Train the state at (``source``, ``unit``) on one partition, up to the state at (``node``, ``unit`` + 1).

    ``source`` differs from ``node`` only where a branch begins. It holds all that a backend needs: ``source_state``
    (None: the untrained model, built from ``origin``) and ``target_state`` are the keys of the states, and the seed
    follows from the lineage ``key`` and ``unit``. ``home`` is the worker that made the source. With ``evaluate``
    the worker evaluates the new state right after it. If another run is under way on the same worker, this one
    waits for it, and the worker fetches its state meanwhile. The workers in ``crew`` train the unit together with
    ``worker``, which leads, reports and evaluates; ``layout`` is the name of how they hold the model.
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
    crew: tuple[str, ...] = ()
    layout: str = SINGLE

    @property
    def source_state(self) -> str | None:
        """The key of the state that it starts from."""
        return state_key(self.source_key, self.unit, self.tree) if self.unit else None

    @property
    def target_state(self) -> str:
        """The key of the state that it produces."""
        return state_key(self.key, self.unit + 1, self.tree)

    @property
    def seed(self) -> int:
        """The unit's random seed (63 bits), a function of its lineage only."""
        return unit_seed(self.key, self.unit)


class Evaluate(_Action, frozen=True):
    """Compute the metrics of the state ``key`` without training it; ``lineage`` is the key of its node."""

    run: int
    worker: str
    node: int
    unit: int
    key: str
    lineage: str
    origin: Origin


class CancelUnit(_Action, frozen=True):
    """Cancel a run that nothing needs any more; with ``silent`` the worker's answer is ignored."""

    run: int
    worker: str
    silent: bool = False


class SaveState(_Action, frozen=True):
    """Write a state to the store in the background; ``StateSaved`` or ``StateLost`` reports the result.

    With ``keep`` the state is kept to resume from, even if nothing needs it, until a later state of its lineage is
    saved. A state that is not ``durable`` is spare: it is about to be dropped, only future studies may use it, and
    the store may skip it if it has no time or space.
    """

    node: int
    unit: int
    key: str
    seconds: float = 0.0  # of training that would be lost without it
    keep: bool = False
    durable: bool = True


class AdoptState(_Action, frozen=True):
    """Use a state from the store at this place; with ``keep`` it is kept even if nothing needs it yet."""

    node: int
    unit: int
    keep: bool = True


class DropState(_Action, frozen=True):
    """Delete a state that nothing needs any more."""

    node: int
    unit: int
    lineage: str
    tree: str = ""

    @property
    def key(self) -> str:
        """The key of the state."""
        return state_key(self.lineage, self.unit, self.tree)


class CopyPartitions(_Action, frozen=True):
    """Let the workers of an idle node hold copies of partitions; ``WorkerJoined`` with all they hold confirms it.

    It changes no state and no result, so the journal does not record it.
    """

    workers: tuple[str, ...]
    partitions: tuple[int, ...]


class Report(_Action, frozen=True):
    """Report a trial's metrics at an epoch to the search."""

    trial: int
    epoch: int
    metrics: Metrics


class EndTrial(_Action, frozen=True):
    """Tell the search that a trial has ended and how; ``reason`` says why it failed."""

    trial: int
    ending: Ending
    reason: str = ""


Task: TypeAlias = (
    RunUnit | Evaluate | CancelUnit | SaveState | DropState | CopyPartitions
)  # what a backend carries out
Action: TypeAlias = Task | AdoptState | Report | EndTrial

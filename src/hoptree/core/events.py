"""Events: facts in the past tense. The engine's state is a fold over them, and the journal is their list."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hoptree.core.costs import CostFormula
from hoptree.core.lineage import ConfigItems

Fault: TypeAlias = Literal["user", "system"]
Metrics: TypeAlias = dict[str, float]


class _Event(msgspec.Struct, frozen=True, gc=False, tag=True, omit_defaults=True):
    pass


class Known(msgspec.Struct, frozen=True, gc=False):
    """What the store holds of a trial's lineage already: epochs with a state, and reports by epoch.

    Metrics that are no finite numbers are spelled ("nan", "inf"), so that any journal can hold them.
    """

    states: tuple[int, ...] = ()
    reports: tuple[tuple[int, dict[str, float | str]], ...] = ()


class TrialAsked(_Event, frozen=True):
    """A search asked for a config to be trained until an epoch.

    Reports are due at ``until`` and, with ``every``, at each multiple of it. With ``barrier`` no trial of the
    study trains past a report that another one still owes. ``root`` stands for all that the lineage starts
    from (trainer, dataset, seed); ``alone`` keeps the trial from sharing.
    """

    trial: int
    config: ConfigItems
    until: int
    every: int = 0
    study: str = ""
    root: str = ""
    barrier: bool = False
    alone: bool = False
    known: Known | None = None


class TrialBranched(_Event, frozen=True):
    """A search asked for a new trial that follows ``source`` up to an epoch and another config from there."""

    trial: int
    source: int
    at: int
    config: ConfigItems
    until: int
    every: int = 0
    known: Known | None = None


class TrialExtended(_Event, frozen=True):
    """A search, or a user, granted a trial epochs; a report is due at ``until``, also if it has more already."""

    trial: int
    until: int
    known: Known | None = None


class TrialStopped(_Event, frozen=True):
    """Somebody gave up on a trial; work that only it needed is cancelled.

    With ``running`` it was said of a trial that ran: if it is complete by now, it stays so.
    """

    trial: int
    running: bool = False


class WorkerJoined(_Event, frozen=True):
    """A worker came (or came back) with the partitions it holds, and its speed relative to others if known."""

    worker: str
    partitions: tuple[int, ...]
    speed: float = 1.0


class WorkerDrained(_Event, frozen=True):
    """A worker is to leave: what it runs may finish, nothing new is given to it."""

    worker: str


class WorkerLost(_Event, frozen=True):
    """A worker is gone with everything that ran on it."""

    worker: str


class UnitFinished(_Event, frozen=True):
    """A unit was trained, and the state after it is stored; ``seconds`` is what it took, 0 if unknown."""

    run: int
    worker: str
    seconds: float = 0.0


class UnitFailed(_Event, frozen=True):
    """A unit or an evaluation ended without a result; ``fault`` says whose fault it was."""

    run: int
    worker: str
    reason: str
    fault: Fault = "user"


class UnitCancelled(_Event, frozen=True):
    """A worker has given up a run that it was told to cancel."""

    run: int
    worker: str


class StateEvaluated(_Event, frozen=True):
    """The metrics of a state are known, and the worker that computed them is free."""

    run: int
    worker: str
    metrics: Metrics
    seconds: float = 0.0


class StateLost(_Event, frozen=True):
    """A stored state is no longer there: node and unit name its place in the plan."""

    node: int
    unit: int


class StateKept(_Event, frozen=True):
    """The store keeps a state although nothing may need it any more: an ancestor to go on from after a loss."""

    node: int
    unit: int


class StateReleased(_Event, frozen=True):
    """The store keeps a state no longer; it is dropped once nothing else needs it."""

    node: int
    unit: int


class LineageTaken(_Event, frozen=True):
    """Another driver trains this lineage from here on: what stands at this place is held back."""

    node: int
    unit: int


class LineageFreed(_Event, frozen=True):
    """No other driver trains from this place any more: what stands there may go on."""

    node: int
    unit: int


class StateFound(_Event, frozen=True):
    """A state that was asked for is in the store: another driver has trained it."""

    node: int
    unit: int


class ReportFound(_Event, frozen=True):
    """The metrics of a state are known: another driver has evaluated it. Spelled as in ``Known``."""

    node: int
    unit: int
    metrics: dict[str, float | str]


class CostsLearned(_Event, frozen=True):
    """What units take was learned, or learned better: it holds for all nodes, also for those to come."""

    formula: CostFormula


Event: TypeAlias = (
    UnitFinished
    | StateEvaluated
    | UnitFailed
    | UnitCancelled
    | TrialAsked
    | TrialBranched
    | TrialExtended
    | TrialStopped
    | WorkerJoined
    | WorkerDrained
    | WorkerLost
    | StateLost
    | StateKept
    | StateReleased
    | LineageTaken
    | LineageFreed
    | StateFound
    | ReportFound
    | CostsLearned
)

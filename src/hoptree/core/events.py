"""Events: what happened, in the past tense. The engine takes them in one at a time.

They speak of nodes of the plan by number, which holds within one process; the journal names lineages instead
(``facts.py``). Those that need no such name are recorded as they are, under the tag that they have here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from hoptree.core.costs import CostFormula
from hoptree.core.lineage import ConfigItems

Fault: TypeAlias = Literal["user", "system"]
Metrics: TypeAlias = dict[str, float]
Asker: TypeAlias = tuple[int, int]
"""Who asked for a trial: a search by its place in its study, and how many it had asked for before; or a user.

A user's request n is (USER, n).
"""

USER = -1


class _Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="fact"):
    pass


class KnownResults(msgspec.Struct, frozen=True, gc=False):
    """What the store holds of a trial's lineage already: epochs with a state, and reports by epoch.

    Metrics that are no finite numbers are spelled ("nan", "inf"), so that any journal can hold them.
    """

    states: tuple[int, ...] = ()
    reports: tuple[tuple[int, dict[str, float | str]], ...] = ()


class TrialAsked(_Event, frozen=True, tag="trial-asked"):
    """A search asked for a config to be trained until an epoch.

    Reports are due at ``until`` and, with ``every``, at each multiple of it. With ``barrier`` no trial of the
    study trains past a report that another one still owes. ``root`` stands for all that the lineage starts
    from (trainer, dataset, seed), ``variant`` for all else that changes bits (platform, files, what a probe shows):
    it is part of the names of states, and seeds do not follow from it. ``alone`` keeps the trial from sharing.
    ``asked_by`` tells a search its trials.
    """

    trial: int
    config: ConfigItems
    until: int
    every: int = 0
    study: str = ""
    root: str = ""
    barrier: bool = False
    alone: bool = False
    known: KnownResults | None = None
    asked_by: Asker | None = None
    variant: str = ""


class TrialBranched(_Event, frozen=True, tag="trial-branched"):
    """A search asked for a new trial that follows ``source`` up to an epoch and another config from there."""

    trial: int
    source: int
    at: int
    config: ConfigItems
    until: int
    every: int = 0
    known: KnownResults | None = None
    asked_by: Asker | None = None


class TrialExtended(_Event, frozen=True, tag="trial-extended"):
    """A search, or a user, granted a trial epochs; a report is due at ``until``, also if it has more already."""

    trial: int
    until: int
    known: KnownResults | None = None


class TrialStopped(_Event, frozen=True, tag="trial-stopped"):
    """Somebody gave up on a trial; work that only it needed is cancelled.

    With ``running`` it was said of a trial that ran: if it is complete by now, it stays so.
    """

    trial: int
    running: bool = False


class TrialRetried(_Event, frozen=True, tag="trial-retried"):
    """A user asked for a failed trial to be trained again: it owes what it owed when it failed."""

    trial: int
    known: KnownResults | None = None


class TrialRebased(_Event, frozen=True, tag="trial-rebased"):
    """Code, data or surroundings have changed: what is trained for a trial from now on begins from another root.

    A trial that runs begins again there, and one that failed does so when it is retried. One that is complete or
    stopped stays as it is; if it is extended, or branched from, that is trained from the beginning.
    """

    trial: int
    root: str
    variant: str = ""
    known: KnownResults | None = None


class DriverStarted(_Event, frozen=True, tag="driver-started"):
    """A driver took the study up: the workers and runs of the one before it are gone, and so are its claims."""


class WorkerJoined(_Event, frozen=True, tag="worker-joined"):
    """A worker came (or came back) with the partitions it holds, and its speed relative to others if known."""

    worker: str
    partitions: tuple[int, ...]
    speed: float = 1.0


class WorkerDrained(_Event, frozen=True, tag="worker-drained"):
    """A worker is to leave: what it runs may finish, nothing new is given to it."""

    worker: str


class WorkerLost(_Event, frozen=True, tag="worker-lost"):
    """A worker is gone with everything that ran on it."""

    worker: str


class UnitFinished(_Event, frozen=True):
    """A unit was trained, and the state after it is there; ``seconds`` is what it took, 0 if unknown.

    ``size`` is the state's number of bytes, 0 if unknown.
    """

    run: int
    worker: str
    seconds: float = 0.0
    size: int = 0


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


class StateSaved(_Event, frozen=True):
    """A state that was to be saved is in the store: an earlier one that was kept for the same lineage may go."""

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
    """The metrics of a state are known: another driver has evaluated it. Spelled as in ``KnownResults``."""

    node: int
    unit: int
    metrics: dict[str, float | str]


class CostsLearned(_Event, frozen=True, tag="costs-learned"):
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
    | TrialRetried
    | TrialRebased
    | DriverStarted
    | WorkerJoined
    | WorkerDrained
    | WorkerLost
    | StateLost
    | StateSaved
    | LineageTaken
    | LineageFreed
    | StateFound
    | ReportFound
    | CostsLearned
)

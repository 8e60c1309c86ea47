"""Events: what happened, in the past tense. The engine applies them one at a time.

They refer to nodes of the plan by number, which is valid within one process; the journal uses lineage keys instead
(``facts.py``). Events without such a reference are recorded as they are, under the tag given here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from hoptree.core.costs import CostFormula
from hoptree.core.lineage import ConfigItems

Fault: TypeAlias = Literal["user", "system", "memory"]
"""Whose fault a failure is: the user's code, the system, or a unit that needs more memory than there is."""
Metrics: TypeAlias = dict[str, float]
Asker: TypeAlias = tuple[int, int]
"""Who requested a trial: the index of a search in its study, and how many trials it had requested before.

A user's request n is (USER, n).
"""

USER = -1


class _Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="fact"):
    pass


class KnownResults(msgspec.Struct, frozen=True, gc=False):
    """Results that the store already holds for a trial's lineage: epochs with a state, and reports by epoch.

    Metrics that are not finite are spelled ("nan", "inf"), so that any journal can hold them.
    """

    states: tuple[int, ...] = ()
    reports: tuple[tuple[int, dict[str, float | str]], ...] = ()


class TrialAsked(_Event, frozen=True, tag="trial-asked"):
    """A search requested to train a config until an epoch.

    Reports are due at ``until`` and, with ``every``, at each multiple of it. With ``barrier`` no trial of the
    study trains past an epoch at which another one's report is due. ``root`` identifies what the lineage starts
    from (trainer, dataset, seed), ``variant`` all else that changes bits (platform, files, results of a probe): it
    is part of the keys of states, but not of seeds. A trial that is ``alone`` shares nothing with others.
    ``asked_by`` lets a search recognize its trials.
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
    """A search requested a new trial that follows ``source`` up to an epoch, and another config from there."""

    trial: int
    source: int
    at: int
    config: ConfigItems
    until: int
    every: int = 0
    known: KnownResults | None = None
    asked_by: Asker | None = None


class TrialExtended(_Event, frozen=True, tag="trial-extended"):
    """A search or a user extended a trial; a report is due at ``until``, even if it has trained further."""

    trial: int
    until: int
    known: KnownResults | None = None


class TrialStopped(_Event, frozen=True, tag="trial-stopped"):
    """A search or a user stopped a trial; work that only it needed is cancelled.

    With ``running`` only a running trial is stopped: if it is complete by now, it stays complete.
    """

    trial: int
    running: bool = False


class TrialRetried(_Event, frozen=True, tag="trial-retried"):
    """A user requested to retry a failed trial; the reports that were due when it failed are due again."""

    trial: int
    known: KnownResults | None = None


class TrialRebased(_Event, frozen=True, tag="trial-rebased"):
    """Code, data or environment have changed: a trial's further training starts from another root.

    A running trial starts again there, and a failed one does so when it is retried. A complete or stopped one stays
    as it is; if it is extended or branched from, that is trained from the beginning.
    """

    trial: int
    root: str
    variant: str = ""
    known: KnownResults | None = None


class DriverStarted(_Event, frozen=True, tag="driver-started"):
    """A driver started or resumed the study: workers, runs and claims of the previous driver no longer exist."""


class WorkerJoined(_Event, frozen=True, tag="worker-joined"):
    """A worker joined (again), with the partitions it holds and its relative speed if known.

    Workers of one ``machine`` that hold a partition can train a unit together. ``node`` is the instance on which
    it runs, as named by ``NodeStarted``; "" if nodes are not paid for.
    """

    worker: str
    partitions: tuple[int, ...]
    speed: float = 1.0
    machine: str = ""
    node: str = ""


class WorkerDrained(_Event, frozen=True, tag="worker-drained"):
    """A worker will leave: its runs may finish, but it gets no new ones."""

    worker: str


class WorkerLost(_Event, frozen=True, tag="worker-lost"):
    """A worker died or left, and its runs are lost."""

    worker: str


class UnitFinished(_Event, frozen=True):
    """A unit was trained, and the state after it is stored; ``seconds`` is its duration, 0 if unknown.

    ``size`` is the size of the state in bytes, 0 if unknown.
    """

    run: int
    worker: str
    seconds: float = 0.0
    size: int = 0


class UnitFailed(_Event, frozen=True):
    """A unit or an evaluation ended without a result; ``fault`` says whose fault it was.

    If it ran out of memory, ``limit`` is what a worker may use, and ``asked`` what it asked for in vain, in bytes;
    0 if unknown.
    """

    run: int
    worker: str
    reason: str
    fault: Fault = "user"
    limit: int = 0
    asked: int = 0


class UnitCancelled(_Event, frozen=True):
    """A worker has cancelled a run as requested."""

    run: int
    worker: str


class StateEvaluated(_Event, frozen=True):
    """A worker has computed the metrics of a state, and is free again."""

    run: int
    worker: str
    metrics: Metrics
    seconds: float = 0.0


class StateLost(_Event, frozen=True):
    """A stored state was lost; node and unit are its place in the plan."""

    node: int
    unit: int


class StateSaved(_Event, frozen=True):
    """A state was saved to the store: earlier states kept for the same lineage may be dropped."""

    node: int
    unit: int


class LineageTaken(_Event, frozen=True):
    """Another driver trains this lineage from this place on: it is held back here."""

    node: int
    unit: int


class LineageFreed(_Event, frozen=True):
    """No other driver trains from this place any more: the lineage may continue here."""

    node: int
    unit: int


class StateFound(_Event, frozen=True):
    """The store holds a needed state: another driver has trained it."""

    node: int
    unit: int


class ReportFound(_Event, frozen=True):
    """Another driver has evaluated a state; the metrics are spelled as in ``KnownResults``."""

    node: int
    unit: int
    metrics: dict[str, float | str]


class CostsLearned(_Event, frozen=True, tag="costs-learned"):
    """New costs of units were learned; they apply to all nodes, existing and new."""

    formula: CostFormula


class AllocationPlanned(_Event, frozen=True, tag="allocation-planned"):
    """A plan of allocation was made: at the start of a run, after a stage, or when a node was lost or late.

    ``plan`` is an ``elastic.AllocationPlan`` as plain data, ``stage`` the index of the stage that begins, and
    ``reason`` why it was made.
    """

    plan: dict[str, Any]
    stage: int = 0
    reason: str = ""


class NodesRequested(_Event, frozen=True, tag="nodes-requested"):
    """The cluster was asked to have so many nodes."""

    count: int


class NodeStarted(_Event, frozen=True, tag="node-started"):
    """A node runs, and is paid for from now on; ``waited`` are the seconds since it was requested."""

    node: str
    devices: int
    waited: float = 0.0


class NodeReleased(_Event, frozen=True, tag="node-released"):
    """A node was given back."""

    node: str


class NodeLost(_Event, frozen=True, tag="node-lost"):
    """A node has failed, or its provider has taken it away."""

    node: str


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
    | AllocationPlanned
    | NodesRequested
    | NodeStarted
    | NodeReleased
    | NodeLost
)

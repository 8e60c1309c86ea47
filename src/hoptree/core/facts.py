"""Facts: one step of an engine as the journal records it.

An entry holds an event and the decisions that followed from it. Both name lineages by key and are complete in
themselves, so a later version reads them correctly whatever its own engine would decide. Tags and fields are a
stored format: a change needs a new record version with an upgrade (``store/record_versions.py``) and a golden file.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hoptree.core.actions import Ending
from hoptree.core.events import (
    AllocationPlanned,
    CostsLearned,
    DriverStarted,
    Fault,
    NodeLost,
    NodeReleased,
    NodesRequested,
    NodeStarted,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    TrialStopped,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.layouts import SINGLE
from hoptree.core.metrics import Spelled

RECORD_VERSION = 1


class FactPlace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A place: the key of a lineage, a unit, and the tree (the variant, and the trial if it shares nothing)."""

    lineage: str
    unit: int
    tree: str = ""


class _Fact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="fact"):
    pass


# --- events -----------------------------------------------------------------------------------------------


class UnitFinishedFact(_Fact, frozen=True, tag="unit-finished"):
    """A worker has trained the unit ``at``; with ``evaluates`` it evaluates the new state next."""

    run: int
    worker: str
    at: FactPlace
    partition: int
    evaluates: bool = False
    seconds: float = 0.0
    size: int = 0


class RunFailedFact(_Fact, frozen=True, tag="run-failed"):
    """A unit, or with ``evaluation`` an evaluation, ended without a result.

    After the fault "memory", ``limit`` and ``asked`` are bytes, as in ``UnitFailed``.
    """

    run: int
    worker: str
    at: FactPlace
    reason: str
    fault: Fault
    partition: int = -1
    evaluation: bool = False
    limit: int = 0
    asked: int = 0


class RunCancelledFact(_Fact, frozen=True, tag="run-cancelled"):
    """A worker has cancelled a run."""

    run: int
    worker: str
    at: FactPlace
    partition: int = -1
    evaluation: bool = False


class StateEvaluatedFact(_Fact, frozen=True, tag="state-evaluated"):
    """The metrics of the state ``at`` are known."""

    run: int
    worker: str
    at: FactPlace
    metrics: Spelled
    seconds: float = 0.0


class LateMessageFact(_Fact, frozen=True, tag="late-message"):
    """A worker sent a message about a run that was not under way; it has no effect."""

    run: int
    worker: str


class StateLostFact(_Fact, frozen=True, tag="state-lost"):
    """A stored state was lost."""

    at: FactPlace


class StateSavedFact(_Fact, frozen=True, tag="state-saved"):
    """A state was saved to the store."""

    at: FactPlace


class StateFoundFact(_Fact, frozen=True, tag="state-found"):
    """The store holds a state that another driver trained."""

    at: FactPlace


class ReportFoundFact(_Fact, frozen=True, tag="report-found"):
    """Another driver has evaluated a state."""

    at: FactPlace
    metrics: dict[str, float | str]


class LineageTakenFact(_Fact, frozen=True, tag="lineage-taken"):
    """Another driver trains a lineage from this place on."""

    at: FactPlace


class LineageFreedFact(_Fact, frozen=True, tag="lineage-freed"):
    """The other driver no longer trains the lineage from this place on."""

    at: FactPlace


EventFact: TypeAlias = (
    UnitFinishedFact
    | StateEvaluatedFact
    | RunFailedFact
    | RunCancelledFact
    | LateMessageFact
    | StateLostFact
    | StateSavedFact
    | StateFoundFact
    | ReportFoundFact
    | LineageTakenFact
    | LineageFreedFact
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
    | CostsLearned
    | AllocationPlanned
    | NodesRequested
    | NodeStarted
    | NodeReleased
    | NodeLost
)


# --- decisions --------------------------------------------------------------------------------------------


class UnitGiven(_Fact, frozen=True, tag="unit-given"):
    """The unit ``at`` was assigned to a worker; ``source`` is the lineage it branches from, "" for its own.

    The workers in ``crew`` train it together with that worker.
    """

    run: int
    worker: str
    at: FactPlace
    partition: int
    source: str = ""
    home: str = ""
    evaluates: bool = False
    crew: tuple[str, ...] = ()
    layout: str = SINGLE


class EvaluationGiven(_Fact, frozen=True, tag="evaluation-given"):
    """The evaluation of the state ``at`` was assigned to a worker."""

    run: int
    worker: str
    at: FactPlace


class RunWithdrawn(_Fact, frozen=True, tag="run-withdrawn"):
    """A worker was asked to cancel a run; with ``silent`` its answer is ignored."""

    run: int
    worker: str
    silent: bool = False


class SaveDecided(_Fact, frozen=True, tag="save-decided"):
    """A state has to be saved, and kept to resume from if ``keep``."""

    at: FactPlace
    seconds: float = 0.0
    keep: bool = False
    durable: bool = True


class StateAdopted(_Fact, frozen=True, tag="state-adopted"):
    """A state from the store is used at this place."""

    at: FactPlace
    keep: bool = True


class StateDropped(_Fact, frozen=True, tag="state-dropped"):
    """A state was dropped, as nothing needed it."""

    at: FactPlace


class TrialReported(_Fact, frozen=True, tag="trial-reported"):
    """The metrics of a trial's state at an epoch were reported to it."""

    trial: int
    epoch: int


class TrialEnded(_Fact, frozen=True, tag="trial-ended"):
    """A trial ended."""

    trial: int
    ending: Ending
    reason: str = ""


Decided: TypeAlias = (
    UnitGiven
    | EvaluationGiven
    | RunWithdrawn
    | SaveDecided
    | StateAdopted
    | StateDropped
    | TrialReported
    | TrialEnded
)


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One step: an event, and the decisions that followed from it, in order."""

    event: EventFact
    decided: tuple[Decided, ...] = ()

"""Facts: one step of an engine as the journal records it.

An entry holds what happened and what was decided about it. Both name lineages by key and say all that they are
about, so a later version reads them right whatever its own engine would decide. The tags and fields here are a
stored format: a change needs a new record version with an upgrade (``store/record_versions.py``) and a golden file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never, final

import msgspec

from hoptree.core.actions import (
    Action,
    AdoptState,
    CancelUnit,
    DropState,
    Ending,
    EndTrial,
    Evaluate,
    Report,
    RunUnit,
    SaveState,
)
from hoptree.core.errors import ProtocolError
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    Event,
    Fault,
    LineageFreed,
    LineageTaken,
    Metrics,
    ReportFound,
    StateEvaluated,
    StateFound,
    StateLost,
    StateSaved,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    TrialStopped,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.fold import Fold
from hoptree.core.metrics import Spelled, spelled, unspelled
from hoptree.core.plan import Node
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState

RECORD_VERSION = 1


class FactPlace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A place: the key of a lineage, a unit, and the tree: the variant, and whose, if a trial shares nothing."""

    lineage: str
    unit: int
    tree: str = ""


class _Fact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="fact"):
    pass


# --- what happened ----------------------------------------------------------------------------------------


class UnitFinishedFact(_Fact, frozen=True, tag="unit-finished"):
    """A worker has trained the unit ``at``; with ``evaluates`` it goes on to evaluate the state after it."""

    run: int
    worker: str
    at: FactPlace
    partition: int
    evaluates: bool = False
    seconds: float = 0.0
    size: int = 0


class RunFailedFact(_Fact, frozen=True, tag="run-failed"):
    """A unit, or with ``evaluation`` an evaluation, ended without a result."""

    run: int
    worker: str
    at: FactPlace
    reason: str
    fault: Fault
    partition: int = -1
    evaluation: bool = False


class RunCancelledFact(_Fact, frozen=True, tag="run-cancelled"):
    """A worker has given up a run."""

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
    """A worker spoke of a run that was not under way: nothing follows from it."""

    run: int
    worker: str


class StateLostFact(_Fact, frozen=True, tag="state-lost"):
    """A state is no longer there."""

    at: FactPlace


class StateSavedFact(_Fact, frozen=True, tag="state-saved"):
    """A state is in the store."""

    at: FactPlace


class StateFoundFact(_Fact, frozen=True, tag="state-found"):
    """Another driver has left a state in the store."""

    at: FactPlace


class ReportFoundFact(_Fact, frozen=True, tag="report-found"):
    """Another driver has evaluated a state."""

    at: FactPlace
    metrics: dict[str, float | str]


class LineageTakenFact(_Fact, frozen=True, tag="lineage-taken"):
    """Another driver trains a lineage on from here."""

    at: FactPlace


class LineageFreedFact(_Fact, frozen=True, tag="lineage-freed"):
    """No other driver trains a lineage on from here any more."""

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
)


# --- what was decided -------------------------------------------------------------------------------------


class UnitGiven(_Fact, frozen=True, tag="unit-given"):
    """A worker was given the unit ``at``; ``source`` is the lineage it branches from, "" for its own."""

    run: int
    worker: str
    at: FactPlace
    partition: int
    source: str = ""
    home: str = ""
    evaluates: bool = False


class EvaluationGiven(_Fact, frozen=True, tag="evaluation-given"):
    """A worker was given the state ``at`` to evaluate."""

    run: int
    worker: str
    at: FactPlace


class RunWithdrawn(_Fact, frozen=True, tag="run-withdrawn"):
    """A worker was told to give a run up; with ``silent`` nothing that it answers counts."""

    run: int
    worker: str
    silent: bool = False


class SaveDecided(_Fact, frozen=True, tag="save-decided"):
    """A state is to be saved, and kept to go on from if ``keep``."""

    at: FactPlace
    seconds: float = 0.0
    keep: bool = False
    durable: bool = True


class StateAdopted(_Fact, frozen=True, tag="state-adopted"):
    """A state that the store holds counts as the one at this place."""

    at: FactPlace
    keep: bool = True


class StateDropped(_Fact, frozen=True, tag="state-dropped"):
    """A state was let go: nothing needed it."""

    at: FactPlace


class TrialReported(_Fact, frozen=True, tag="trial-reported"):
    """A trial was told the metrics at an epoch: those of its state there."""

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
    """One step: what happened, and what was decided about it, in order."""

    event: EventFact
    decided: tuple[Decided, ...] = ()


# --- from steps to facts ----------------------------------------------------------------------------------


@final
class FactWriter:
    """Turns the steps of an engine into entries."""

    def __init__(self, state: StudyState) -> None:
        self._nodes = state.plan.nodes

    def entry(self, step: Step) -> Entry:
        """Return a step as it is recorded."""
        return Entry(self._event(step), tuple(self.decided(action) for action in step.actions))

    def _event(self, step: Step) -> EventFact:
        event, run = step.event, step.run
        match event:
            case UnitFinished() | UnitFailed() | UnitCancelled() | StateEvaluated():
                return LateMessageFact(event.run, event.worker) if run is None else self._run_event(step)
            case StateLost(node, unit):
                return StateLostFact(self._at(node, unit))
            case StateSaved(node, unit):
                return StateSavedFact(self._at(node, unit))
            case StateFound(node, unit):
                return StateFoundFact(self._at(node, unit))
            case ReportFound(node, unit, metrics):
                return ReportFoundFact(self._at(node, unit), metrics)
            case LineageTaken(node, unit):
                return LineageTakenFact(self._at(node, unit))
            case LineageFreed(node, unit):
                return LineageFreedFact(self._at(node, unit))
            case _:
                return event

    def _run_event(self, step: Step) -> EventFact:
        event, run = step.event, step.run
        assert run is not None
        unit = isinstance(run, RunUnit)
        at = self._at(run.node, run.unit)
        partition = run.partition if isinstance(run, RunUnit) else -1
        match event:
            case UnitFinished(number, worker, seconds, size):
                evaluates = isinstance(run, RunUnit) and run.evaluate
                return UnitFinishedFact(number, worker, at, partition, evaluates, seconds, size)
            case UnitFailed(number, worker, reason, fault):
                return RunFailedFact(number, worker, at, reason, fault, partition, step.evaluating)
            case UnitCancelled(number, worker):
                return RunCancelledFact(number, worker, at, partition, step.evaluating)
            case StateEvaluated(number, worker, metrics, seconds):
                at = self._at(run.node, run.unit + unit)
                return StateEvaluatedFact(number, worker, at, spelled(metrics), seconds)
            case _:
                raise AssertionError(f"{event} is about no run")

    def decided(self, action: Action) -> Decided:
        """Return an action as it is recorded."""
        match action:
            case RunUnit():
                at = FactPlace(action.key, action.unit, action.tree)
                source = "" if action.source_key == action.key else action.source_key
                return UnitGiven(
                    action.run, action.worker, at, action.partition, source, action.home, action.evaluate
                )
            case Evaluate(run, worker, node, unit):
                return EvaluationGiven(run, worker, self._at(node, unit))
            case CancelUnit(run, worker, silent):
                return RunWithdrawn(run, worker, silent)
            case SaveState(node, unit, _, seconds, keep, durable):
                return SaveDecided(self._at(node, unit), seconds, keep, durable)
            case AdoptState(node, unit, keep):
                return StateAdopted(self._at(node, unit), keep)
            case DropState(node, unit):
                return StateDropped(self._at(node, unit))
            case Report(trial, epoch, _):
                return TrialReported(trial, epoch)
            case EndTrial(trial, ending, reason):
                return TrialEnded(trial, ending, reason)
            case _:
                assert_never(action)

    def _at(self, number: int, unit: int) -> FactPlace:
        node = self._nodes[number]
        return FactPlace(node.key, unit, node.lane)


# --- from facts to steps ----------------------------------------------------------------------------------


@final
class FactReader:
    """Folds entries into the state of a study, and returns each as the step that it was."""

    def __init__(self, state: StudyState) -> None:
        self._state = state
        self._fold = Fold(state)

    def take(self, entry: Entry, now: float) -> Step:
        """Apply an entry."""
        event = self._event(entry.event)
        self._fold.apply_event(event)
        actions = [self.action(decided) for decided in entry.decided]
        return self._fold.apply_actions(event, now, actions)

    def _event(self, fact: EventFact) -> Event:
        match fact:
            case UnitFinishedFact():
                self._check(fact.run, fact.worker, fact.at, fact.partition, trained=True)
                return UnitFinished(fact.run, fact.worker, fact.seconds, fact.size)
            case RunFailedFact():
                self._check(fact.run, fact.worker, fact.at, fact.partition)
                return UnitFailed(fact.run, fact.worker, fact.reason, fact.fault)
            case RunCancelledFact():
                self._check(fact.run, fact.worker, fact.at, fact.partition)
                return UnitCancelled(fact.run, fact.worker)
            case StateEvaluatedFact():
                self._check(fact.run, fact.worker, fact.at, state=True)
                return StateEvaluated(fact.run, fact.worker, unspelled(fact.metrics), fact.seconds)
            case LateMessageFact():
                return UnitCancelled(-1, fact.worker)  # of no run
            case StateLostFact(at):
                return StateLost(self._node(at).id, at.unit)
            case StateSavedFact(at):
                return StateSaved(self._node(at).id, at.unit)
            case StateFoundFact(at):
                return StateFound(self._node(at).id, at.unit)
            case ReportFoundFact(at, metrics):
                return ReportFound(self._node(at).id, at.unit, metrics)
            case LineageTakenFact(at):
                return LineageTaken(self._node(at).id, at.unit)
            case LineageFreedFact(at):
                return LineageFreed(self._node(at).id, at.unit)
            case _:
                return fact

    def action(self, fact: Decided) -> Action:
        """Return what was decided as the action that it was."""
        match fact:
            case UnitGiven(run, worker, at, partition, source, home, evaluates):
                self._check_new(run, worker)
                node, partitions = self._node(at), self._state.settings.partitions
                before = self._source(node, source)
                return RunUnit(
                    run,
                    worker,
                    node.id,
                    before.id,
                    at.unit,
                    partition,
                    at.unit // partitions,
                    node.key,
                    node.values,
                    home,
                    node.built_from,
                    before.key,
                    node.lane,
                    evaluates,
                )
            case EvaluationGiven(run, worker, at):
                self._check_new(run, worker)
                node = self._node(at)
                key = node.state_key(at.unit)
                return Evaluate(run, worker, node.id, at.unit, key, node.key, node.built_from)
            case RunWithdrawn(run, worker, silent):
                return CancelUnit(run, worker, silent)
            case SaveDecided(at, seconds, keep, durable):
                node = self._node(at)
                return SaveState(node.id, at.unit, node.state_key(at.unit), seconds, keep, durable)
            case StateAdopted(at, keep):
                return AdoptState(self._node(at).id, at.unit, keep)
            case StateDropped(at):
                node = self._node(at)
                return DropState(node.id, at.unit, node.key, node.lane)
            case TrialReported(trial, epoch):
                return Report(trial, epoch, self._metrics(trial, epoch))
            case TrialEnded(trial, ending, reason):
                return EndTrial(trial, ending, reason)
            case _:
                assert_never(fact)

    def _node(self, at: FactPlace) -> Node:
        node = self._state.plan.find(at.lineage, at.tree)
        if node is None:
            raise ProtocolError(f"lineage {at.lineage} at unit {at.unit}: no trial before this entry passes there")
        return node

    def _source(self, node: Node, key: str) -> Node:
        if not key:
            return node
        assert node.parent is not None
        if node.parent.key != key:
            raise ProtocolError(f"lineage {node.key}: it branches from {node.parent.key}, not from {key}")
        return node.parent

    def _metrics(self, number: int, epoch: int) -> Metrics:
        trial = self._state.trials.get(number)
        if trial is None:
            raise ProtocolError(f"trial {number}: told a report, but never asked for")
        node, unit = self._state.plan.way(trial, epoch * self._state.settings.partitions)[-1]
        if unit not in node.reports:
            raise ProtocolError(f"trial {number}: told a report at epoch {epoch}, which nobody has evaluated")
        return node.reports[unit]

    def _check_new(self, number: int, worker: str) -> None:
        """Refuse a run that is under way already: two drivers have written, each without the other's entries."""
        run = self._state.runs.find(number)
        if run is not None:
            raise ProtocolError(f"run {number} of {worker}: it was given to {run.worker} before, and has not ended")

    def _check(
        self,
        number: int,
        worker: str,
        at: FactPlace,
        partition: int | None = None,
        *,
        trained: bool = False,
        state: bool = False,
    ) -> None:
        """Refuse an event that contradicts what was recorded when its run was given out."""
        run = self._state.runs.find(number)
        if run is None or run.worker != worker:
            raise ProtocolError(f"run {number} of {worker}: it ended, but no entry before says that it was given")
        node = self._state.plan.nodes[run.node]
        unit = run.unit + (state and isinstance(run, RunUnit))
        if (node.key, unit, node.lane) != (at.lineage, at.unit, at.tree):
            raise ProtocolError(f"run {number} of {worker}: it was given unit {unit} of {node.key}, and ended {at}")
        given = run.partition if isinstance(run, RunUnit) else -1
        if partition is not None and partition != given:
            raise ProtocolError(f"run {number} of {worker}: it was given partition {given}, and ended {partition}")
        evaluating = self._state.runs.is_evaluating(number)
        if trained and evaluating:
            raise ProtocolError(f"run {number} of {worker}: it was to evaluate, and ended a unit")
        if state and not evaluating:
            raise ProtocolError(f"run {number} of {worker}: it was to train, and ended an evaluation")


def fold(state: StudyState, entries: Sequence[tuple[float, Entry]]) -> None:
    """Fold entries, each with its time, into a state."""
    reader = FactReader(state)
    for now, entry in entries:
        reader.take(entry, now)

"""Reads the facts of a journal: folds them into the state of a study, and returns the steps that they record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, final

from hoptree.core.actions import (
    Action,
    AdoptState,
    CancelUnit,
    DropState,
    EndTrial,
    Evaluate,
    Report,
    RunUnit,
    SaveState,
)
from hoptree.core.errors import ProtocolError
from hoptree.core.events import (
    Event,
    LineageFreed,
    LineageTaken,
    Metrics,
    ReportFound,
    StateEvaluated,
    StateFound,
    StateLost,
    StateSaved,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
)
from hoptree.core.facts import (
    Decided,
    Entry,
    EvaluationGiven,
    EventFact,
    FactPlace,
    LateMessageFact,
    LineageFreedFact,
    LineageTakenFact,
    ReportFoundFact,
    RunCancelledFact,
    RunFailedFact,
    RunWithdrawn,
    SaveDecided,
    StateAdopted,
    StateDropped,
    StateEvaluatedFact,
    StateFoundFact,
    StateLostFact,
    StateSavedFact,
    TrialEnded,
    TrialReported,
    UnitFinishedFact,
    UnitGiven,
)
from hoptree.core.fold_journal import Fold
from hoptree.core.metrics import unspelled
from hoptree.core.nodes import Node
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState


@final
class FactReader:
    """Folds entries into the state of a study, and returns the step of each."""

    def __init__(self, state: StudyState) -> None:
        self._state = state
        self._fold = Fold(state)

    def take(self, entry: Entry, now: float) -> Step:
        """Apply an entry and return its step."""
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
                return UnitFailed(fact.run, fact.worker, fact.reason, fact.fault, fact.limit, fact.asked)
            case RunCancelledFact():
                self._check(fact.run, fact.worker, fact.at, fact.partition)
                return UnitCancelled(fact.run, fact.worker)
            case StateEvaluatedFact():
                self._check(fact.run, fact.worker, fact.at, state=True)
                return StateEvaluated(fact.run, fact.worker, unspelled(fact.metrics), fact.seconds)
            case LateMessageFact():
                return UnitCancelled(-1, fact.worker)  # of no known run: it has no effect
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
        """Return a recorded decision as an action."""
        match fact:
            case UnitGiven(run, worker, at, partition, source, home, evaluates, crew, layout):
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
                    node.tree,
                    evaluates,
                    crew,
                    layout,
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
                return DropState(node.id, at.unit, node.key, node.tree)
            case TrialReported(trial, epoch):
                return Report(trial, epoch, self._metrics(trial, epoch))
            case TrialEnded(trial, ending, reason):
                return EndTrial(trial, ending, reason)
            case _:
                assert_never(fact)

    def _node(self, at: FactPlace) -> Node:
        node = self._state.plan.find(at.lineage, at.tree)
        if node is None:
            raise ProtocolError(f"lineage {at.lineage} at unit {at.unit}: no trial before this entry passes it")
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
            raise ProtocolError(
                f"trial {number}: the journal reports metrics to it, but no entry before requests it"
            )
        node, unit = self._state.plan.path_with_ends(trial, epoch * self._state.settings.partitions)[-1]
        if unit not in node.reports:
            raise ProtocolError(
                f"trial {number}: the journal reports epoch {epoch}, but no entry before evaluates it"
            )
        return node.reports[unit]

    def _check_new(self, number: int, worker: str) -> None:
        """Raise if a run is under way already: two drivers have written without each other's entries."""
        run = self._state.runs.find(number)
        if run is not None:
            raise ProtocolError(
                f"run {number} of {worker}: it was assigned to {run.worker} before, and has not ended"
            )

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
        """Raise if an event contradicts what was recorded when its run was assigned."""
        run = self._state.runs.find(number)
        if run is None or run.worker != worker:
            raise ProtocolError(f"run {number} of {worker}: it ended, but no entry before assigns it")
        node = self._state.plan.nodes[run.node]
        unit = run.unit + (state and isinstance(run, RunUnit))
        if (node.key, unit, node.tree) != (at.lineage, at.unit, at.tree):
            raise ProtocolError(
                f"run {number} of {worker}: it was assigned unit {unit} of {node.key}, and ended {at}"
            )
        given = run.partition if isinstance(run, RunUnit) else -1
        if partition is not None and partition != given:
            raise ProtocolError(
                f"run {number} of {worker}: it was assigned partition {given}, and ended {partition}"
            )
        evaluating = self._state.runs.is_evaluating(number)
        if trained and evaluating:
            raise ProtocolError(f"run {number} of {worker}: it was evaluating, and finished a unit")
        if state and not evaluating:
            raise ProtocolError(f"run {number} of {worker}: it was training, and finished an evaluation")


def fold(state: StudyState, entries: Sequence[tuple[float, Entry]]) -> None:
    """Fold entries, each with its time, into the state of a study."""
    reader = FactReader(state)
    for now, entry in entries:
        reader.take(entry, now)

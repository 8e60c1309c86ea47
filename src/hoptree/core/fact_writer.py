"""Turns the steps of an engine into the facts that the journal records."""

from __future__ import annotations

from typing import assert_never, final

from hoptree.core.actions import (
    Action,
    AdoptState,
    CancelUnit,
    CopyPartitions,
    DropState,
    EndTrial,
    Evaluate,
    Report,
    RunUnit,
    SaveState,
)
from hoptree.core.events import (
    LineageFreed,
    LineageTaken,
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
from hoptree.core.metrics import spelled
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState


@final
class FactWriter:
    """Turns the steps of an engine into entries."""

    def __init__(self, state: StudyState) -> None:
        self._nodes = state.plan.nodes

    def entry(self, step: Step) -> Entry:
        """Return the journal entry of a step."""
        recorded = (action for action in step.actions if not isinstance(action, CopyPartitions))
        return Entry(self._event(step), tuple(self.decided(action) for action in recorded))

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
            case UnitFailed(number, worker, reason, fault, limit, asked):
                return RunFailedFact(number, worker, at, reason, fault, partition, step.evaluating, limit, asked)
            case UnitCancelled(number, worker):
                return RunCancelledFact(number, worker, at, partition, step.evaluating)
            case StateEvaluated(number, worker, metrics, seconds):
                at = self._at(run.node, run.unit + unit)
                return StateEvaluatedFact(number, worker, at, spelled(metrics), seconds)
            case _:
                raise AssertionError(f"{event} is not about a run")

    def decided(self, action: Action) -> Decided:
        """Return an action as the journal records it."""
        match action:
            case RunUnit():
                at = FactPlace(action.key, action.unit, action.tree)
                source = "" if action.source_key == action.key else action.source_key
                return UnitGiven(
                    action.run,
                    action.worker,
                    at,
                    action.partition,
                    source,
                    action.home,
                    action.evaluate,
                    action.crew,
                    action.layout,
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
            case CopyPartitions():
                raise AssertionError(f"{action} is not recorded")
            case _:
                assert_never(action)

    def _at(self, number: int, unit: int) -> FactPlace:
        node = self._nodes[number]
        return FactPlace(node.key, unit, node.tree)

"""Folding: facts in, the state of a study out. Nothing is decided here.

An entry of the journal holds an event and the decisions that followed from it. A fold applies both to trials and
plan without asking a policy or a dispatcher, so a journal keeps its meaning when the scheduler changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from hoptree.core.actions import Action, AdoptState, DropState, Ending, EndTrial, Report, RunUnit, SaveState
from hoptree.core.errors import ProtocolError
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    Event,
    KnownResults,
    LineageFreed,
    LineageTaken,
    ReportFound,
    StateEvaluated,
    StateLost,
    StateSaved,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    UnitFailed,
    UnitFinished,
)
from hoptree.core.lineage import History, Phase, branched
from hoptree.core.metrics import unspelled
from hoptree.core.nodes import Node, Place, State
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from hoptree.core.trial import Trial, due_epochs


@final
class Fold:
    """Applies steps to the state of a study; see the module docstring."""

    def __init__(self, state: StudyState) -> None:
        self._state = state
        self._plan = state.plan
        self._partitions = state.settings.partitions
        self._free = state.settings.order == "free"

    def apply(self, event: Event, now: float, actions: Sequence[Action]) -> Step:
        """Apply an event and the actions that followed from it."""
        self.apply_event(event)
        return self.apply_actions(event, now, actions)

    def apply_event(self, event: Event) -> None:
        """Apply an event to trials and plan; ``apply_actions`` comes next."""
        match event:
            case TrialAsked():
                if event.trial not in self._state.trials:
                    trial = Trial(event.trial, (Phase(0, event.config),), event.root, event.study, event.every)
                    trial.alone, trial.barrier, trial.asked_by = event.alone, event.barrier, event.asked_by
                    trial.variant = event.variant
                    self._begin(trial, event.until, event.known)
            case TrialBranched():
                if event.trial not in self._state.trials:
                    self._begin(self._branched(event), event.until, event.known)
            case TrialExtended():
                trial = self._trial(event.trial)
                if trial.ending == "failed":
                    trial.change("extended")
                    trial.owe(event.until)
                    self._plan.path_with_ends(trial, trial.until * self._partitions)
                elif trial.ending != "stopped":
                    if trial.must_move(event.until):
                        trial.end_at(None)
                        trial.move(*trial.base_to_come)
                    trial.change("extended")
                    self._grant(trial, event.until, event.known)
            case TrialRetried():
                trial = self._trial(event.trial)
                if trial.ending == "failed":
                    self._retry(trial, event.known)
            case TrialRebased():
                self._rebase(self._trial(event.trial), event)
            case StateEvaluated(run=number, metrics=metrics):
                run = self._state.runs.find(number)
                if run is not None:
                    unit = run.unit + 1 if isinstance(run, RunUnit) else run.unit
                    self._plan.nodes[run.node].reports.setdefault(unit, dict(metrics))
            case ReportFound(node, unit, metrics):
                self._plan.nodes[node].reports.setdefault(unit, unspelled(metrics))
            case UnitFinished():
                self._trained(event)
            case UnitFailed():
                self._failed(event)
            case StateLost(node, unit):
                lost = self._plan.nodes[node].states.pop(unit, None)
                for trial in self._plan.nodes[node].finals.get(unit, ()) if lost is not None else ():
                    trial.lost_state = True
                if lost is not None and self._free:  # a run that started from it may be under way
                    self._plan.nodes[node].lost[unit] = lost
            case StateSaved(node, unit):
                self._saved(self._plan.nodes[node], unit)
            case LineageTaken(node, unit):
                self._plan.nodes[node].taken.add(unit)
            case LineageFreed(node, unit):
                self._plan.nodes[node].taken.discard(unit)
            case DriverStarted():
                for each in self._plan.nodes:
                    each.taken.clear()
                    each.lost.clear()
            case CostsLearned(formula):
                self._plan.learn(formula)
            case _:
                pass  # the state records workers and runs itself, and these events change nothing else

    def apply_actions(self, event: Event, now: float, actions: Sequence[Action]) -> Step:
        """Apply the actions that followed from an event that has been applied; return the whole step."""
        for action in actions:
            match action:
                case Report(number, epoch, metrics):
                    self._trial(number).add_report(epoch, metrics)
                case EndTrial(number, ending, reason):
                    self._end(self._trial(number), ending, reason)
                case AdoptState(node, unit, keep):
                    state = self._stored(self._plan.nodes[node], unit)
                    state.kept, state.saved = state.kept or keep, True
                case SaveState(node, unit, keep=True):
                    saved = self._plan.nodes[node].states.get(unit)
                    if saved is not None:
                        saved.kept = True
                case DropState(node, unit):
                    self._plan.nodes[node].states.pop(unit, None)
                case _:
                    pass
        return self._state.note(event, now, False, actions)

    # --- trials -----------------------------------------------------------------------------------------

    def _trial(self, number: int) -> Trial:
        trial = self._state.trials.get(number)
        if trial is None:
            raise ProtocolError(f"trial {number} was never requested; {len(self._state.trials)} others were")
        return trial

    def _branched(self, event: TrialBranched) -> Trial:
        source = self._trial(event.source)
        phases: History = branched(source.history, event.at, dict(event.config))
        root, variant = source.base_to_come
        trial = Trial(event.trial, phases, root, source.study, event.every)
        trial.alone, trial.tree_owner, trial.barrier = source.alone, source.tree_owner, source.barrier
        trial.asked_by, trial.variant = event.asked_by, variant
        return trial

    def _begin(self, trial: Trial, until: int, known: KnownResults | None) -> None:
        self._state.trials[trial.number] = trial
        self._grant(trial, until, known)

    def _grant(self, trial: Trial, until: int, known: KnownResults | None) -> None:
        """Record the reports that are due up to an epoch, and those that the store held already."""
        self._enter(trial, until, known)
        due = due_epochs(trial, until)
        trial.until = max(trial.until, until)
        self._open(trial, due)

    def _retry(self, trial: Trial, known: KnownResults | None) -> None:
        due = trial.retry()
        for node, _ in self._plan.path_with_ends(trial, trial.until * self._partitions):
            node.attempts.clear()
        self._enter(trial, trial.until, known)
        self._open(trial, due)

    def _rebase(self, trial: Trial, event: TrialRebased) -> None:
        base = event.root, event.variant
        if trial.ending in ("complete", "stopped"):
            trial.onward = None if base == trial.base else base
            return
        if trial.base == base:
            return
        if trial.ending == "failed":
            trial.move(*base)
            self._plan.path_with_ends(trial, trial.until * self._partitions)
            return
        due = sorted(trial.open)
        trial.open.clear()
        trial.end_at(None)
        self._leave_nodes(trial)
        trial.move(*base)
        self._enter(trial, trial.until, event.known)
        self._open(trial, due)

    def _leave_nodes(self, trial: Trial) -> None:
        """Count a trial as live in no node; stop keeping states that no running trial can resume from."""
        for node in self._plan.follow(trial, 0):
            if not node.live:
                for state in node.states.values():
                    state.kept = False

    def _open(self, trial: Trial, due: list[int]) -> None:
        self._plan.follow(trial, trial.until)
        root = self._plan.root(trial.root, trial.tree)
        for epoch, place in zip(due, self._plan.places(trial.history, root, due), strict=True):
            trial.open[epoch] = place

    def _enter(self, trial: Trial, until: int, known: KnownResults | None) -> None:
        """Record the reports that the store held already."""
        root = self._plan.root(trial.root, trial.tree)
        reports = {} if known is None else {epoch: each for epoch, each in known.reports if 0 < epoch <= until}
        for node, unit in self._plan.places(trial.history, root, sorted(reports)):
            metrics = reports[unit // self._partitions]
            node.reports.setdefault(unit, unspelled(metrics))

    def _end(self, trial: Trial, ending: Ending, reason: str) -> None:
        trial.owed = tuple(sorted(trial.open)) if ending == "failed" else ()
        trial.open.clear()
        trial.change(ending)
        trial.reason = reason
        trial.end_at(None)
        self._leave_nodes(trial)
        if ending == "complete":
            node, end = self._plan.path_with_ends(trial, trial.until * self._partitions)[-1]
            trial.end_at(Place(node, end))

    # --- units and states -------------------------------------------------------------------------------

    def _trained(self, event: UnitFinished) -> None:
        run = self._state.runs.find(event.run)
        if not isinstance(run, RunUnit) or run.worker != event.worker or self._state.runs.is_evaluating(event.run):
            return  # a late or repeated message
        node, unit = self._plan.nodes[run.node], run.unit + 1
        order = self._visited(run) if self._free else 0
        known = self._stored(node, unit)
        known.home, known.order, known.size, known.saved = run.worker, order, event.size, False
        node.trained[run.partition] = node.trained.get(run.partition, 0) + 1

    def _stored(self, node: Node, unit: int) -> State:
        """Return the state at a place, which is stored now."""
        for trial in node.finals.get(unit, ()):
            trial.lost_state = False
        return node.states.setdefault(unit, State(node, unit, ""))

    def _saved(self, node: Node, unit: int) -> None:
        """Record that a state was saved: earlier ones of the node need not be kept any longer."""
        for state in node.states.values():
            if state.unit == unit:
                state.saved = True
            elif state.unit < unit:
                state.kept = False

    def _visited(self, run: RunUnit) -> int:
        """Return the partitions, as bits, that an epoch has visited after a run, in free order."""
        bits = 1 << run.partition
        if run.unit % self._partitions:
            node = self._plan.nodes[run.source]
            source = node.states.get(run.unit) or node.lost.get(run.unit)
            bits |= self._visited_before(node, run.unit) if source is None else source.order
        return bits

    def _visited_before(self, node: Node, unit: int) -> int:
        """Return the visited partitions before a unit whose state was lost before the last snapshot."""
        bits = 0
        for earlier in range(unit - unit % self._partitions, unit):
            at = node
            while at.start > earlier and at.parent is not None:
                at = at.parent
            bits |= 1 << self._state.visits[at.id, earlier]
        return bits

    def _failed(self, event: UnitFailed) -> None:
        run = self._state.runs.find(event.run)
        if run is not None and run.worker == event.worker:
            evaluating = self._state.runs.is_evaluating(event.run)
            count_attempt(self._plan.nodes[run.node], run.unit, event, self._state.settings, evaluating=evaluating)


def count_attempt(node: Node, unit: int, event: UnitFailed, settings: Settings, *, evaluating: bool) -> bool:
    """Count a failure of a unit or of its evaluation; return whether it has failed too often.

    Then the count starts again, so trials that request the unit later have all their attempts.
    """
    counted = (f"{'evaluation' if evaluating else 'unit'} {event.fault}", unit)
    attempts = node.attempts[counted] = node.attempts.get(counted, 0) + 1
    hopeless = attempts > (settings.patience if event.fault == "system" else settings.retries)
    if hopeless:
        del node.attempts[counted]
    return hopeless

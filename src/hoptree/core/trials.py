"""Trials: their requests, the reports that are due, and how each trial ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from hoptree.core.actions import Action, Ending, EndTrial, Report
from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.errors import ProtocolError, WorkloadError
from hoptree.core.events import (
    KnownResults,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    TrialRetried,
    TrialStopped,
)
from hoptree.core.lineage import Phase, branched
from hoptree.core.metrics import unspelled
from hoptree.core.nodes import Node, Place, State
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan
from hoptree.core.standings import Standings
from hoptree.core.states import StateRegistry
from hoptree.core.trial import Trial, due_epochs


@final
class Trials:
    """Turns trials into requests at places of the plan, and reports at those places into answers."""

    def __init__(
        self,
        plan: Plan,
        open_work: OpenWork,
        barriers: Barriers,
        dispatcher: Dispatcher,
        states: StateRegistry,
        actions: list[Action],
        trials: dict[int, Trial],
    ) -> None:
        self._plan = plan
        self._open_work = open_work
        self._barriers = barriers
        self._dispatcher = dispatcher
        self._states = states
        self._actions = actions
        self.by_number = trials
        self.live = 0  # trials that have not ended
        self.standings = Standings()
        self.missing: dict[tuple[int, int], Place] = {}  # lost final states that are being retrained

    def asked(self, event: TrialAsked) -> None:
        """Begin a trial; a repeated request changes nothing."""
        if not event.config:
            raise WorkloadError("config: it is empty; expected at least one hyper-parameter")
        phases = (Phase(0, event.config),)
        known = self.by_number.get(event.trial)
        if known is not None:
            if known.history == phases:
                return
            raise ProtocolError(
                f"trial {event.trial} was requested before with another config: {known.history[0].config}, "
                f"now {event.config}; use a different number for every trial"
            )
        trial = Trial(event.trial, phases, event.root, event.study, event.every)
        trial.alone, trial.barrier, trial.asked_by = event.alone, event.barrier, event.asked_by
        trial.variant = event.variant
        self._begin(trial, event.until, event.known)

    def branched(self, event: TrialBranched) -> None:
        """Begin a trial that follows another one up to an epoch."""
        source = self._known(event.source)
        if not 0 < event.at <= source.until:
            raise WorkloadError(
                f"at: epoch {event.at} of trial {event.source}, which was requested until {source.until}; "
                "expected an epoch that the source reaches"
            )
        if event.until <= event.at:
            raise WorkloadError(f"until: {event.until}; expected more than the {event.at} epochs before the branch")
        phases = branched(source.history, event.at, dict(event.config))
        known = self.by_number.get(event.trial)
        if known is not None:
            if known.history == phases:
                return
            raise ProtocolError(f"trial {event.trial} was requested before with another history")
        root, variant = source.base_to_come
        trial = Trial(event.trial, phases, root, source.study, event.every)
        trial.alone, trial.tree_owner, trial.variant = source.alone, source.tree_owner, variant
        trial.barrier, trial.asked_by = source.barrier, event.asked_by
        self._begin(trial, event.until, event.known)

    def extended(self, event: TrialExtended) -> None:
        """Grant a trial more epochs; a stopped trial stays stopped, and a failed one gets them if it is retried.

        An epoch that was granted before is reported again, and the trial ends again: a search may request less than
        users have granted meanwhile, and still waits for its report.
        """
        trial = self._known(event.trial)
        if event.until < 1:
            raise WorkloadError(f"until: {event.until}; expected at least one epoch")
        if trial.ending == "failed":
            trial.owe(event.until)
            self._plan.path_with_ends(trial, trial.until * self._plan.partitions)
        if trial.ending in ("stopped", "failed"):
            trial.change("extended")
            return
        if trial.ending == "complete":
            if trial.must_move(event.until):
                self._release_final(trial)
                trial.move(*trial.base_to_come)
            self.live += 1
        trial.change("extended")
        self._proceed(trial, event.until, event.known)

    def stopped(self, event: TrialStopped) -> None:
        """Stop a trial; a complete one releases its state, unless only a running trial is meant."""
        trial = self._known(event.trial)
        if trial.ending is None or (trial.ending == "complete" and not event.running):
            self.end(trial, "stopped")

    def retried(self, event: TrialRetried) -> None:
        """Continue a failed trial with the reports that were due and all attempts; ignore other trials."""
        trial = self._known(event.trial)
        if trial.ending != "failed":
            return
        due = trial.retry()
        self.live += 1
        for node, _ in self._plan.path_with_ends(trial, trial.until * self._plan.partitions):
            node.attempts.clear()
        found = [] if event.known is None else self._adopt(trial, trial.until, event.known)
        self._plan.follow(trial, trial.until)
        self._open(trial, due)
        for place in found:
            self.answer(*place)

    def rebased(self, event: TrialRebased) -> None:
        """Train a trial from another root from now on; see the event."""
        trial, base = self._known(event.trial), (event.root, event.variant)
        if trial.ending in ("complete", "stopped"):
            self._redirect(trial, base)
            return
        if trial.base == base:
            return
        if trial.ending == "failed":
            trial.move(*base)
            self._plan.path_with_ends(trial, trial.until * self._plan.partitions)
            return
        due = sorted(trial.open)
        self._withdraw_requests(trial)
        self._release_final(trial)
        self._leave_nodes(trial)
        if trial.barrier:
            self._dispatcher.fresh.extend(self._barriers.leave(trial))
        trial.move(*base)
        found = [] if event.known is None else self._adopt(trial, trial.until, event.known)
        self._plan.follow(trial, trial.until)
        self._open(trial, due)
        for place in found:
            self.answer(*place)

    def _redirect(self, trial: Trial, base: tuple[str, str]) -> None:
        """Set the root for further epochs of an ended trial; a lost state of the old root is not retrained."""
        trial.onward = None if base == trial.base else base
        place = trial.final
        if place is None:
            return
        if trial.onward is None:
            if trial.lost_state:
                self._restore(place)
        elif not self._is_restorable(place):
            self.give_up_restoring([place])

    def answer(self, node: Node, unit: int) -> None:
        """Report a state's metrics to all trials that requested them; trials with no report due are complete."""
        epoch = unit // self._plan.partitions
        metrics = node.reports[unit]
        for trial in node.requests.pop(unit, ()):
            self._unwant(trial, epoch)
            trial.add_report(epoch, metrics)
            self._actions.append(Report(trial.number, epoch, metrics))
            self.standings.end()
            if not trial.open:
                self._complete(trial)
            elif trial.barrier:
                self._dispatcher.fresh.extend(self._barriers.opened(trial))

    def arrive(self, state: State) -> None:
        """Start the children that waited for a state; trials wait only for its evaluation from now on."""
        node, unit = state.node, state.unit
        for child in self._open_work.arrive(node, unit):
            self._open_work.spawn(child, unit, state)
        for trial in node.requests.get(unit, ()):
            trial.wanting.discard(unit // self._plan.partitions)

    def end(self, trial: Trial, ending: Ending, reason: str = "") -> None:
        """End a trial; work that only it needed is cancelled."""
        trial.owed = tuple(sorted(trial.open)) if ending == "failed" else ()
        self._withdraw_requests(trial)
        self._release_final(trial)
        self._close(trial, ending, reason)

    def _withdraw_requests(self, trial: Trial) -> None:
        """Withdraw a trial's open requests."""
        places: list[Place] = []
        for epoch, (node, unit) in trial.open.items():
            waiting = node.requests[unit]
            waiting.remove(trial)
            if not waiting:
                del node.requests[unit]
            if epoch in trial.wanting:
                places.append(Place(node, unit))
        trial.wanting.clear()
        trial.open.clear()
        self._open_work.remove_targets(places)

    def _release_final(self, trial: Trial) -> None:
        self._clear_final(trial)
        self._states.pin(trial, None)

    def _leave_nodes(self, trial: Trial) -> None:
        """Count a trial as live in no node; stop keeping states that no running trial can resume from."""
        for node in self._plan.follow(trial, 0):
            if not node.live:
                for state in [state for state in node.states.values() if state.kept]:
                    self._states.let_go(state)

    def want_again(self, state: State) -> None:
        """Train a lost state again for the trials that wait for its report."""
        for trial in state.node.requests.get(state.unit, ()):
            self._want(trial, state.unit // self._plan.partitions)

    def _known(self, number: int) -> Trial:
        trial = self.by_number.get(number)
        if trial is None:
            raise ProtocolError(f"trial {number} was never requested; {len(self.by_number)} others were")
        return trial

    def _begin(self, trial: Trial, until: int, known: KnownResults | None) -> None:
        if trial.every < 0:
            raise WorkloadError(f"every: {trial.every}; expected 0 (only at the end) or a number of epochs")
        if until < 1:
            raise WorkloadError(f"until: {until}; expected at least one epoch")
        self._plan.path(
            trial.history, self._root(trial), until * self._plan.partitions
        )  # raises if a cost is invalid
        self.standings.begin(trial, until)
        self.by_number[trial.number] = trial
        self.live += 1
        self._proceed(trial, until, known)

    def _proceed(self, trial: Trial, until: int, known: KnownResults | None) -> None:
        """Continue a trial to an epoch; results from the store are reported after all its requests are open."""
        found = [] if known is None else self._adopt(trial, until, known)
        self._grant(trial, until)
        for place in found:
            self.answer(*place)

    def _adopt(self, trial: Trial, until: int, known: KnownResults) -> list[Place]:
        """Use what the store holds of a lineage, and return the places with new reports.

        A state that an active lineage will produce anyway is not adopted.
        """
        partitions, root = self._plan.partitions, self._root(trial)
        epochs = sorted(epoch for epoch in known.states if 0 < epoch <= until)
        for node, unit in self._plan.places(trial.history, root, epochs):
            if unit not in node.states and not node.waiting and all(c.unit > unit for c in node.active):
                self._states.adopt(node, unit, keep=True)
        reports = {epoch: metrics for epoch, metrics in known.reports if 0 < epoch <= until}
        found = [
            place
            for place in self._plan.places(trial.history, root, sorted(reports))
            if place.unit not in place.node.reports
        ]
        for node, unit in found:
            node.reports[unit] = unspelled(reports[unit // partitions])
        return found

    def _root(self, trial: Trial) -> Node:
        return self._plan.root(trial.root, trial.tree)

    def _grant(self, trial: Trial, until: int) -> None:
        """Open the requests of a trial up to an epoch."""
        due = due_epochs(trial, until)
        trial.until = max(trial.until, until)
        self._plan.follow(trial, trial.until)
        self._open(trial, due)

    def _open(self, trial: Trial, due: list[int]) -> None:
        """Open requests at some epochs; those with known metrics are answered at once."""
        root = self._root(trial)
        answered: list[Place] = []
        for epoch, place in zip(due, self._plan.places(trial.history, root, due), strict=True):
            trial.open[epoch] = place
            if self._request(trial, epoch, place):
                answered.append(place)
        if trial.barrier:
            self._barriers.enter(trial)
        if self._barriers.any:
            self._dispatcher.fresh.extend(self._barriers.reconsider())
        for place in answered:
            self.answer(*place)

    def _want(self, trial: Trial, epoch: int) -> None:
        if epoch not in trial.wanting:
            trial.wanting.add(epoch)
            self._open_work.add_target(*trial.open[epoch])

    def _unwant(self, trial: Trial, epoch: int) -> None:
        if epoch in trial.wanting:
            trial.wanting.remove(epoch)
            self._open_work.remove_target(*trial.open[epoch])

    def _complete(self, trial: Trial) -> None:
        """Complete a trial with no report due; its final state is kept, and retrained if it is lost."""
        self._clear_final(trial)
        node, end = self._plan.path_with_ends(trial, trial.until * self._plan.partitions)[-1]
        trial.end_at(Place(node, end))
        self._states.end_with(trial, node.states.get(end))
        self._close(trial, "complete", "")

    def _clear_final(self, trial: Trial) -> None:
        place = trial.final
        trial.end_at(None)
        if place is not None and not self._is_restorable(place):
            self.give_up_restoring([place])

    def _is_restorable(self, place: Place) -> bool:
        """Return whether a lost state has to be retrained for a trial that ended with it."""
        return any(trial.onward is None for trial in place.node.finals.get(place.unit, ()))

    def restore(self, state: State) -> None:
        """Retrain a lost final state: a complete trial always has its state."""
        for trial in state.node.finals.get(state.unit, ()):
            trial.lost_state = True
            if trial.onward is None:
                self._restore(Place(state.node, state.unit))

    def _restore(self, place: Place) -> None:
        node, unit = place
        if (node.id, unit) not in self.missing:
            self.missing[node.id, unit] = place
            self._open_work.add_target(node, unit)

    def give_up_restoring(self, places: Iterable[Place]) -> None:
        """Stop retraining final states; their trials stay without them."""
        for node, unit in places:
            if self.missing.pop((node.id, unit), None) is not None:
                self._open_work.remove_target(node, unit)

    def resume(self) -> None:
        """Resume the trials of a folded state: open their requests, and make them users of their states."""
        running = [trial for trial in self.by_number.values() if trial.ending is None]
        self.live = len(running)
        for trial in self.by_number.values():
            if trial.final is not None:
                self._states.pin(trial, trial.final.node.states.get(trial.final.unit))
        for trial in running:
            if trial.barrier and trial.open:
                self._barriers.enter(trial)
        answered: dict[tuple[int, int], Place] = {}
        for trial in running:
            for epoch, place in sorted(trial.open.items()):
                if self._request(trial, epoch, place):
                    answered[place.node.id, place.unit] = place
        for place in answered.values():
            self.answer(*place)
        for trial in self.by_number.values():
            if trial.final is not None and trial.lost_state and trial.onward is None:
                self._restore(trial.final)

    def _request(self, trial: Trial, epoch: int, place: Place) -> bool:
        """Add a trial's request for the report at a place; return whether the report is known already."""
        node, unit = place
        waiting = node.requests.setdefault(unit, [])
        waiting.append(trial)
        if unit in node.reports:
            return True
        if unit not in node.states:
            self._want(trial, epoch)
        elif len(waiting) == 1 and not self._dispatcher.is_evaluating(node, unit):
            self._states.evaluate_later(node.states[unit])
        return False

    def _close(self, trial: Trial, ending: Ending, reason: str) -> None:
        if trial.ending is None:
            self.live -= 1
        trial.change(ending)
        trial.reason = reason
        self._actions.append(EndTrial(trial.number, ending, reason))
        self.standings.end()
        self._leave_nodes(trial)
        if trial.barrier:
            self._dispatcher.fresh.extend(self._barriers.leave(trial))

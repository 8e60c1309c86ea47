"""Trials: what was asked for, what is still owed, and how each one ends."""

from __future__ import annotations

from typing import final

from hoptree.core.actions import Action, Ending, EndTrial, Report
from hoptree.core.demand import Demand
from hoptree.core.dispatch import Dispatcher
from hoptree.core.errors import ProtocolError, WorkloadError
from hoptree.core.events import Known, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.gates import Gates
from hoptree.core.lineage import Phase, branched
from hoptree.core.plan import Node, Place, Plan, State, Trial
from hoptree.core.states import States


@final
class Trials:
    """Turns trials into requests at places of the plan, and reports at those places into answers."""

    def __init__(
        self,
        plan: Plan,
        demand: Demand,
        gates: Gates,
        dispatcher: Dispatcher,
        states: States,
        actions: list[Action],
    ) -> None:
        self._plan = plan
        self._demand = demand
        self._gates = gates
        self._dispatcher = dispatcher
        self._states = states
        self._actions = actions
        self.by_number: dict[int, Trial] = {}
        self.live = 0  # trials that have not ended

    def asked(self, event: TrialAsked) -> None:
        """Begin a trial; the same one asked for again changes nothing."""
        if not event.config:
            raise WorkloadError("config: it is empty; expected at least one hyper-parameter")
        phases = (Phase(0, event.config),)
        known = self.by_number.get(event.trial)
        if known is not None:
            if known.history == phases:
                return
            raise ProtocolError(
                f"trial {event.trial} was asked for before with another config: {known.history[0].config}, "
                f"now {event.config}; give every trial a number of its own"
            )
        trial = Trial(event.trial, phases, event.root, event.study, event.every)
        trial.alone = event.alone
        trial.barrier = event.barrier
        self._begin(trial, event.until, event.known)

    def branched(self, event: TrialBranched) -> None:
        """Begin a trial that follows another one up to an epoch."""
        source = self._known(event.source)
        if not 0 < event.at <= source.until:
            raise WorkloadError(
                f"at: epoch {event.at} of trial {event.source}, which was asked for until {source.until}; "
                "expected an epoch that the source reaches"
            )
        if event.until <= event.at:
            raise WorkloadError(f"until: {event.until}; expected more than the {event.at} epochs before the branch")
        phases = branched(source.history, event.at, dict(event.config))
        known = self.by_number.get(event.trial)
        if known is not None:
            if known.history == phases:
                return
            raise ProtocolError(f"trial {event.trial} was asked for before with another history")
        trial = Trial(event.trial, phases, source.root, source.study, event.every)
        trial.alone, trial.tree = source.alone, source.tree
        trial.barrier = source.barrier
        self._begin(trial, event.until, event.known)

    def extended(self, event: TrialExtended) -> None:
        """Grant a trial more epochs; one that was given up stays so.

        An epoch that it was granted before is reported (again), and the trial ends (again): a search may ask for
        less than users have granted meanwhile, and waits for its answer all the same.
        """
        trial = self._known(event.trial)
        if event.until < 1:
            raise WorkloadError(f"until: {event.until}; expected at least one epoch")
        if trial.ending in ("stopped", "failed"):
            return
        if trial.ending == "complete":
            trial.ending = None
            self.live += 1
        self._proceed(trial, event.until, event.known)

    def stopped(self, event: TrialStopped) -> None:
        """Give a trial up; a complete one lets go of its state, unless only a running one was meant."""
        trial = self._known(event.trial)
        if trial.ending is None or (trial.ending == "complete" and not event.running):
            self.end(trial, "stopped")

    def answer(self, node: Node, unit: int) -> None:
        """Tell every trial that asked what the report says, and end those that owe nothing more."""
        epoch = unit // self._plan.partitions
        metrics = node.reports[unit]
        for trial in node.requests.pop(unit, ()):
            self._unwant(trial, epoch)
            del trial.open[epoch]
            trial.reached = max(trial.reached, epoch)
            self._actions.append(Report(trial.number, epoch, metrics))
            if not trial.open:
                self._complete(trial)
            elif trial.barrier:
                self._dispatcher.fresh.extend(self._gates.opened(trial))

    def end(self, trial: Trial, ending: Ending, reason: str = "") -> None:
        """Take a trial's open requests back; what only it needed is cancelled."""
        for epoch, (node, unit) in trial.open.items():
            waiting = node.requests[unit]
            waiting.remove(trial)
            if not waiting:
                del node.requests[unit]
            self._unwant(trial, epoch)
        trial.open.clear()
        self._forget_final(trial)
        self._states.pin(trial, None)
        self._close(trial, ending, reason)

    def want_again(self, state: State) -> None:
        """Have a lost state trained again for those who still wait for its report."""
        for trial in state.node.requests.get(state.unit, ()):
            self._want(trial, state.unit // self._plan.partitions)

    def _known(self, number: int) -> Trial:
        trial = self.by_number.get(number)
        if trial is None:
            raise ProtocolError(f"trial {number} was never asked for; {len(self.by_number)} others were")
        return trial

    def _begin(self, trial: Trial, until: int, known: Known | None) -> None:
        if trial.every < 0:
            raise WorkloadError(f"every: {trial.every}; expected 0 (only at the end) or a number of epochs")
        if until < 1:
            raise WorkloadError(f"until: {until}; expected at least one epoch")
        self._plan.path(trial.history, self._root(trial), until * self._plan.partitions)  # may refuse a cost
        self.by_number[trial.number] = trial
        self.live += 1
        self._proceed(trial, until, known)

    def _proceed(self, trial: Trial, until: int, known: Known | None) -> None:
        """Let a trial go on to an epoch; what was found is told when nobody lets go any more of what it needs."""
        found = [] if known is None else self._adopt(trial, until, known)
        self._grant(trial, until)
        for place in found:
            self.answer(*place)

    def _adopt(self, trial: Trial, until: int, known: Known) -> list[Place]:
        """Take in what the store holds of a lineage: nobody trains or evaluates it again; return what is reported.

        Where somebody is on the way already, what they will make is waited for.
        """
        partitions, root = self._plan.partitions, self._root(trial)
        epochs = sorted(epoch for epoch in known.states if 0 < epoch <= until)
        for node, unit in self._plan.places(trial.history, root, epochs):
            if unit not in node.states and not node.waiting and all(c.unit > unit for c in node.cursors):
                self._states.adopt(node, unit)
        reports = {epoch: metrics for epoch, metrics in known.reports if 0 < epoch <= until}
        found = [
            place
            for place in self._plan.places(trial.history, root, sorted(reports))
            if place.unit not in place.node.reports
        ]
        for node, unit in found:
            node.reports[unit] = {name: float(value) for name, value in reports[unit // partitions].items()}
        return found

    def _root(self, trial: Trial) -> Node:
        return self._plan.root(trial.root, trial.lane)

    def _grant(self, trial: Trial, until: int) -> None:
        """Open the requests of a trial up to an epoch; those with results are answered at once."""
        every = trial.every
        due = [] if not every else list(range((trial.until // every + 1) * every, until, every))
        if until not in trial.open:
            due.append(until)
        trial.until = max(trial.until, until)
        self._follow(trial, trial.until)
        root = self._root(trial)
        answered: list[Place] = []
        for epoch, place in zip(due, self._plan.places(trial.history, root, due), strict=True):
            node, unit = place
            trial.open[epoch] = (node, unit)
            waiting = node.requests.setdefault(unit, [])
            waiting.append(trial)
            if unit in node.reports:
                answered.append(place)
            elif unit not in node.states:
                self._want(trial, epoch)
            elif len(waiting) == 1 and not self._dispatcher.is_evaluating(node, unit):
                self._states.evaluate_later(node.states[unit])
        if trial.barrier:
            self._gates.enter(trial)
        if self._gates.any:
            self._dispatcher.fresh.extend(self._gates.reconsider())
        for place in answered:
            self.answer(*place)

    def _follow(self, trial: Trial, until: int) -> list[Node]:
        """Count a trial in the nodes that it passes up to an epoch, and there only; return those of before."""
        partitions = self._plan.partitions
        before = [node for node, _ in self._plan.way(trial, trial.followed * partitions)] if trial.followed else []
        for node in before:
            node.live -= 1
        trial.followed = until
        for node, _ in self._plan.way(trial, until * partitions) if until else ():
            node.live += 1
        return before

    def _want(self, trial: Trial, epoch: int) -> None:
        if epoch not in trial.wanting:
            trial.wanting.add(epoch)
            self._demand.want(*trial.open[epoch])

    def _unwant(self, trial: Trial, epoch: int) -> None:
        if epoch in trial.wanting:
            trial.wanting.remove(epoch)
            self._demand.unwant(*trial.open[epoch])

    def _complete(self, trial: Trial) -> None:
        """End a trial that owes nothing; the state it ended with is kept, and again if it has to be retrained."""
        self._forget_final(trial)
        node, end = self._plan.way(trial, trial.until * self._plan.partitions)[-1]
        trial.final = Place(node, end)
        node.finals.setdefault(end, []).append(trial)
        self._states.pin(trial, node.states.get(end))
        self._close(trial, "complete", "")

    def _forget_final(self, trial: Trial) -> None:
        if trial.final is not None:
            node, unit = trial.final
            node.finals[unit].remove(trial)
            if not node.finals[unit]:
                del node.finals[unit]
            trial.final = None

    def _close(self, trial: Trial, ending: Ending, reason: str) -> None:
        if trial.ending is None:
            self.live -= 1
        trial.ending = ending
        trial.reason = reason
        self._actions.append(EndTrial(trial.number, ending, reason))
        for node in self._follow(trial, 0):
            if not node.live:  # what the store keeps there serves nobody who is on the way
                for state in [state for state in node.states.values() if state.kept]:
                    self._states.let_go(state)
        if trial.barrier:
            self._dispatcher.fresh.extend(self._gates.leave(trial))

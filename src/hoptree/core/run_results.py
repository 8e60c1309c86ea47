"""How runs end: units that finish, states that are evaluated, runs that fail or are cancelled."""

from __future__ import annotations

from functools import partial
from typing import final

from hoptree.core.active_lineages import ActiveLineages
from hoptree.core.dispatch import Dispatcher
from hoptree.core.event_log import EventLog
from hoptree.core.events import StateEvaluated, UnitCancelled, UnitFailed, UnitFinished
from hoptree.core.fold_journal import count_attempt
from hoptree.core.layout_choice import Candidate, Shortage
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.nodes import ActiveLineage, Run, State
from hoptree.core.open_work import OpenWork
from hoptree.core.settings import Settings
from hoptree.core.states import StateRegistry
from hoptree.core.trials import Trials
from hoptree.core.workers import Worker


@final
class RunResults:
    """Applies the events of runs; late and repeated messages change nothing."""

    def __init__(
        self,
        settings: Settings,
        open_work: OpenWork,
        dispatcher: Dispatcher,
        states: StateRegistry,
        trials: Trials,
        lineages: ActiveLineages,
        log: EventLog,
    ) -> None:
        self._settings = settings
        self._free = settings.order == "free"
        self._open_work = open_work
        self._dispatcher = dispatcher
        self._states = states
        self._trials = trials
        self._lineages = lineages
        self._log = log

    def unit_finished(self, event: UnitFinished) -> None:
        """Move the lineage over the unit that its worker has trained."""
        run = self._run(event)
        if run is None or run.evaluating:
            return
        worker = self._dispatcher.workers.by_name[run.worker]
        if worker.queue[0] is not run:
            busy_with = worker.queue[0].number
            issued = self._dispatcher.issued
            raise self._log.impossible(event, f"{worker.name} was still busy with run {busy_with}", issued)
        lineage = run.lineage
        assert lineage is not None
        needed = run.status != "cancelling"
        if self._dispatcher.gangs.allotment is not None:
            if run.layout in (SINGLE, DATA):  # other layouts have other times
                self._dispatcher.gangs.allotment.observe(run.node, 1 + len(run.crew), event.seconds)
            self._dispatcher.release_crew(run)
        if run.evaluate:
            run.change("unit finished, evaluation due")
        else:
            self._dispatcher.end(run)
            run.change("unit finished")
        lineage.end_run(run)
        worker.last = lineage
        self._advance(lineage, run, self._store(lineage, run, worker, event), needed=needed)

    def _store(self, lineage: ActiveLineage, run: Run, worker: Worker, event: UnitFinished) -> State:
        """Record the trained unit and its new state."""
        open_work, node = self._open_work, lineage.node
        open_work.backlog -= node.cost
        open_work.done[run.partition] += node.cost
        node.trained[run.partition] = node.trained.get(run.partition, 0) + 1
        node.todo -= 1
        order = lineage.order | 1 << run.partition if self._free else 0
        state = self._states.store(node, run.unit + 1, worker.name, order, event.size)
        self._states.trained(state, event.seconds)
        self._trials.missing.pop((node.id, run.unit + 1), None)
        return state

    def _advance(self, lineage: ActiveLineage, run: Run, state: State, *, needed: bool) -> None:
        """Move a lineage to its new state, and start or end what depends on that state."""
        open_work, node, unit = self._open_work, lineage.node, state.unit
        old, lineage.state, lineage.unit = lineage.state, state, unit
        if unit in node.counts:
            self._trials.arrive(state)
            if unit in node.requests and not run.evaluate:
                self._states.evaluate_later(state)
            needed = False
        if run.evaluate:
            run.state = state
            state.users += 1
        if self._free:
            lineage.order = state.order
        if unit % self._settings.partitions == 0:
            lineage.order = 0 if self._free else node.rotation
        self._lineages.aim(lineage, run.partition + 1)
        overtaken = any(other.unit == unit for other in node.active if other is not lineage)
        if not overtaken and (needed or open_work.next_target(lineage) is not None):
            if not needed:
                open_work.refresh(lineage)
            if not lineage.runs:
                self._lineages.offer(lineage)
        elif lineage.runs:
            self._lineages.cancel_runs(lineage)
        else:
            self._lineages.withdraw(lineage)
        if old is not None:
            self._states.release(old)

    def state_evaluated(self, event: StateEvaluated) -> None:
        """Report the metrics of a state to all trials that requested them."""
        run = self._run(event)
        if run is None:
            return
        if not run.evaluating:
            raise self._log.impossible(event, "the unit has not finished", self._dispatcher.issued)
        self._dispatcher.end(run)
        run.change("evaluated")
        state = run.state
        assert state is not None
        state.node.reports.setdefault(state.unit, dict(event.metrics))  # a state has one report: the first
        self._trials.answer(state.node, state.unit)
        self._states.release(state)

    def unit_failed(self, event: UnitFailed) -> None:
        """Try again, or fail the trials that need the unit if it has failed too often, or in every layout."""
        run = self._run(event)
        if run is None:
            return
        devices = 1 + len(run.crew)
        self._dispatcher.end(run)
        evaluating = run.evaluating
        run.change("run failed")
        hopeless, reason = (
            count_attempt(run.node, run.unit, event, self._settings, evaluating=evaluating),
            event.reason,
        )
        if event.fault == "memory" and not evaluating:
            hopeless, reason = self._without_layout(run, devices, event, exhausted=hopeless)
        if evaluating:
            state = run.state
            assert state is not None
            if hopeless:
                for trial in list(state.node.requests.get(state.unit, ())):
                    self._trials.end(trial, "failed", event.reason)
            self._evaluate_again(state)
            return
        lineage = run.lineage
        assert lineage is not None
        self._lineages.drop_runs(lineage, run)
        if hopeless:
            self._trials.give_up_restoring(list(self._open_work.targets_behind(lineage)))
            for trial in list(self._open_work.trials_behind(lineage)):
                if trial.ending is None:
                    self._trials.end(trial, "failed", reason)
        self._lineages.resume(lineage)

    def _without_layout(self, run: Run, devices: int, event: UnitFailed, *, exhausted: bool) -> tuple[bool, str]:
        """Exclude a layout that did not fit; return whether the unit's trials fail, and why.

        Without a limit, other processes may have taken the memory: then the unit has all its attempts.
        """
        layouts = self._dispatcher.gangs.layouts
        tried = Candidate(Layout.parse(run.layout), devices)
        is_possible = partial(self._dispatcher.gangs.can_gather, run.partition)
        if layouts.exclude(run.node, tried, Shortage(event.limit, event.asked), is_possible):
            return False, ""
        described = layouts.describe(run.node)
        several = f"no layout needs so little memory:\n{described}\n" if "\n" in described else ""
        return bool(event.limit) or exhausted, several + event.reason

    def unit_cancelled(self, event: UnitCancelled) -> None:
        """Continue the lineage of a cancelled run if it is needed again."""
        run = self._run(event)
        if run is None:
            return
        self._dispatcher.end(run)
        evaluating = run.evaluating
        run.change("run cancelled")
        if evaluating:
            assert run.state is not None
            self._evaluate_again(run.state)
            return
        assert run.lineage is not None
        self._lineages.drop_runs(run.lineage, run)
        self._lineages.resume(run.lineage)

    def worker_lost(self, worker: Worker) -> None:
        """Repeat the runs of a worker that died; other workers that train one of them together cancel it."""
        for run in worker.queue:
            del self._dispatcher.runs[run.number]
        lineages: list[ActiveLineage] = []
        for run in worker.queue:
            self._lineages.cancel_gang(run, worker)
            evaluating = run.evaluating
            run.change("worker lost")
            if evaluating:
                assert run.state is not None
                self._evaluate_again(run.state)
            elif run.lineage is not None and run.lineage not in lineages:
                lineages.append(run.lineage)
        worker.queue.clear()
        for lineage in lineages:
            lineage.end_runs()
            self._lineages.resume(lineage)

    def _run(self, event: UnitFinished | StateEvaluated | UnitFailed | UnitCancelled) -> Run | None:
        """Return the run of an event; None if it has ended (a late message); raise if it never began."""
        number = event.run
        run = self._dispatcher.runs.get(number)
        issued = self._dispatcher.issued
        if run is None:
            if not 0 <= number < issued:
                raise self._log.impossible(event, f"run {number} was never assigned to a worker", issued)
            return None
        if run.worker != event.worker:
            raise self._log.impossible(event, f"run {number} was assigned to {run.worker}", issued)
        return run

    def _evaluate_again(self, state: State) -> None:
        """Repeat an evaluation that ended without a result; train the state again if it is lost."""
        if state.unit not in state.node.requests:
            self._states.release(state)
        elif state.unit in state.node.states:
            self._states.evaluations.append(state)
        else:
            self._trials.want_again(state)
            self._states.release(state)

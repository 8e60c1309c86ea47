"""The engine: events in, actions out. It decides; others act.

    actions = engine.step(event, now)

Nothing else goes in: no clock, no randomness, no I/O. What it has taken in and decided is recorded as facts, and
an engine can be made from the state that a fold over them gives (``fold.py``). Events that came at one moment are
handed in with ``more=True`` but for the last: all are taken in before any worker is given work.
"""

from __future__ import annotations

from collections import deque
from typing import assert_never, final

from hoptree.core.actions import Action, CancelUnit
from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.errors import ProtocolError, WorkloadError
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    Event,
    LineageFreed,
    LineageTaken,
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
from hoptree.core.fold import count_attempt
from hoptree.core.open_work import OpenWork
from hoptree.core.other_drivers import OtherDrivers
from hoptree.core.plan import ActiveLineage, Cost, Node, Place, Run, State, Trial
from hoptree.core.policies import Policy, checked, make_policy
from hoptree.core.repricing import Repricing
from hoptree.core.saving import SavePolicy, Saving
from hoptree.core.settings import Settings
from hoptree.core.states import StateBooks
from hoptree.core.study_state import StudyState
from hoptree.core.trials import Trials
from hoptree.core.workers import Worker, Workers


@final
class Engine:
    """Plans and schedules all trials; see the module."""

    def __init__(
        self,
        settings: Settings,
        cost: Cost | None = None,
        policy: Policy | None = None,
        *,
        state: StudyState | None = None,
        saving: SavePolicy | None = None,
    ) -> None:
        """Begin a study, or take one up from the ``state`` that it is in: then ``DriverStarted`` comes first."""
        self.settings = settings
        self.state = state or StudyState(settings)
        self.plan = self.state.plan
        if cost is not None:
            self.plan.price_by(cost)
        self.demand = OpenWork(settings.partitions)
        self.workers = Workers(settings.partitions)
        self._policy = checked(policy) if policy else make_policy(settings, self.demand, self.workers)
        self._actions: list[Action] = []
        self._gates = Barriers(settings.partitions, self.demand)
        self._repricing = Repricing(self.plan, self.demand)
        self.states = StateBooks(self._actions, Saving(settings.partitions, saving, self._actions))
        self._dispatcher = Dispatcher(
            settings, self._policy, self.demand, self.workers, self._gates, self.states, self._actions
        )
        self._dispatcher.issued = self.state.issued
        self._trials = Trials(
            self.plan,
            self.demand,
            self._gates,
            self._dispatcher,
            self.states,
            self._actions,
            self.state.trials,
        )
        self._elsewhere = OtherDrivers(
            settings.partitions, self.demand, self._gates, self._dispatcher, self.states, self._trials
        )
        self._folded = bool(self.state.trials)  # trials that were not begun here have to be taken up
        self._free = settings.order == "free"
        self._spawned = 0
        self._log: deque[tuple[float, Event, list[Action]]] = deque(maxlen=4096)

    @property
    def trials(self) -> dict[int, Trial]:
        """All trials, by number."""
        return self._trials.by_number

    @property
    def live(self) -> int:
        """How many trials have not ended."""
        return self._trials.live

    @property
    def finished(self) -> bool:
        """Whether all trials have ended, and those that are complete have their states."""
        return not self._trials.live and not self._trials.missing

    @property
    def runs(self) -> dict[int, Run]:
        """The runs that workers have been given and that have not ended."""
        return self._dispatcher.runs

    def step(self, event: Event, now: float, *, more: bool = False) -> list[Action]:
        """Take one fact in and return what is to be done about it."""
        self._actions.clear()
        match event:
            case UnitFinished():
                self._unit_finished(event)
            case StateEvaluated():
                self._state_evaluated(event)
            case UnitFailed():
                self._unit_failed(event)
            case UnitCancelled():
                self._unit_cancelled(event)
            case TrialAsked():
                self._trials.asked(event)
            case TrialBranched():
                self._trials.branched(event)
            case TrialExtended():
                self._trials.extended(event)
            case TrialStopped():
                self._trials.stopped(event)
            case TrialRetried():
                self._trials.retried(event)
            case TrialRebased():
                self._trials.rebased(event)
            case DriverStarted():
                self._driver_started()
            case WorkerJoined():
                self._worker_joined(event)
            case WorkerDrained():
                self._worker_drained(event)
            case WorkerLost():
                self._worker_lost(event)
            case StateLost():
                self._state_lost(event)
            case StateSaved():
                self._state_saved(event)
            case LineageTaken():
                self._elsewhere.taken(event, self._node(event))
            case LineageFreed():
                self._elsewhere.freed(event, self._node(event))
            case StateFound():
                self._elsewhere.state_found(event, self._node(event))
            case ReportFound():
                self._elsewhere.report_found(event, self._node(event))
            case CostsLearned(formula):
                self._repricing.begin(formula)
            case _:
                assert_never(event)
        if self._repricing.under_way:
            self._repricing.go_on()
        self._settle()
        if more:
            self._dispatcher.take_in()
        else:
            self._dispatcher.dispatch()
        actions = self._actions.copy()
        self._log.append((now, event, actions))
        return actions

    # --- runs -------------------------------------------------------------------------------------------

    def _unit_finished(self, event: UnitFinished) -> None:
        run = self._run(event)
        if run is None or run.evaluating:
            return
        worker = self.workers.by_name[run.worker]
        if worker.queue[0] is not run:
            raise self._impossible(event, f"{worker.name} was still busy with run {worker.queue[0].number}")
        cursor = run.cursor
        assert cursor is not None
        if not run.evaluate:
            self._release_run(worker, run)
        cursor.runs.remove(run)
        worker.last = cursor
        self._advance(cursor, run, worker, event.seconds, event.size)

    def _advance(self, cursor: ActiveLineage, run: Run, worker: Worker, seconds: float, size: int) -> None:
        """Move a cursor over the unit that it has finished, and see what begins or ends there."""
        demand, node = self.demand, cursor.node
        unit = run.unit + 1
        demand.backlog -= node.cost
        demand.done[run.partition] += node.cost
        node.trained[run.partition] = node.trained.get(run.partition, 0) + 1
        node.todo -= 1
        order = cursor.order | 1 << run.partition if self._free else cursor.order
        state = self.states.store(node, unit, worker.name, order if self._free else 0, size)
        self.states.trained(state, seconds)
        self._trials.missing.pop((node.id, unit), None)
        old, cursor.state, cursor.unit = cursor.state, state, unit
        needed = not run.cancelled
        if unit in node.counts:
            for child in demand.arrive(node, unit):
                demand.spawn(child, unit, state)
            for trial in node.requests.get(unit, ()):
                trial.wanting.discard(unit // self.settings.partitions)
            if unit in node.requests and not run.evaluate:
                self.states.evaluate_later(state)
            needed = False
        if run.evaluate:
            run.evaluating = True
            run.state = state
            state.users += 1
        if unit % self.settings.partitions == 0:
            order = 0 if self._free else node.rotation
        cursor.order = order
        self._aim(cursor, run.partition + 1)
        overtaken = any(other.unit == unit for other in node.cursors if other is not cursor)
        if not overtaken and (needed or demand.next_stop(cursor) is not None):
            if not needed:
                demand.refresh(cursor)
            if not cursor.runs:
                self._offer(cursor)
        elif cursor.runs:
            self._cancel_runs(cursor)
        else:
            self._withdraw(cursor)
        if old is not None:
            self.states.release(old)

    def _state_evaluated(self, event: StateEvaluated) -> None:
        run = self._run(event)
        if run is None:
            return
        if not run.evaluating:
            raise self._impossible(event, "the unit has not finished")
        self._release_run(self.workers.by_name[run.worker], run)
        state = run.state
        assert state is not None
        state.node.reports.setdefault(state.unit, dict(event.metrics))  # a state has one report: the first
        self._trials.answer(state.node, state.unit)
        self.states.release(state)

    def _unit_failed(self, event: UnitFailed) -> None:
        run = self._run(event)
        if run is None:
            return
        worker = self.workers.by_name[run.worker]
        self._release_run(worker, run)
        hopeless = count_attempt(run.node, run.unit, event, self.settings, evaluating=run.evaluating)
        if run.evaluating:
            state = run.state
            assert state is not None
            if hopeless:
                for trial in list(state.node.requests.get(state.unit, ())):
                    self._trials.end(trial, "failed", event.reason)
            self._evaluate_again(state)
            return
        cursor = run.cursor
        assert cursor is not None
        self._drop_runs(cursor, run)
        if hopeless:
            self._trials.give_up_restoring(list(self.demand.stops_behind(cursor)))
            for trial in list(self.demand.trials_behind(cursor)):
                if trial.ending is None:
                    self._trials.end(trial, "failed", event.reason)
        self._resume(cursor)

    def _unit_cancelled(self, event: UnitCancelled) -> None:
        run = self._run(event)
        if run is None:
            return
        self._release_run(self.workers.by_name[run.worker], run)
        if run.evaluating:
            assert run.state is not None
            self._evaluate_again(run.state)
            return
        assert run.cursor is not None
        self._drop_runs(run.cursor, run)
        self._resume(run.cursor)

    def _run(self, event: UnitFinished | StateEvaluated | UnitFailed | UnitCancelled) -> Run | None:
        """Return a run under way; None for a late or repeated message; refuse what was never given out."""
        number = event.run
        run = self._dispatcher.runs.get(number)
        if run is None:
            if not 0 <= number < self._dispatcher.issued:
                raise self._impossible(event, f"run {number} was never given to a worker")
            return None
        if run.worker != event.worker:
            raise self._impossible(event, f"run {number} was given to {run.worker}")
        return run

    def _release_run(self, worker: Worker, run: Run) -> None:
        del self._dispatcher.runs[run.number]
        worker.queue.remove(run)
        self._dispatcher.freed.append(worker)

    def _drop_runs(self, cursor: ActiveLineage, failed: Run) -> None:
        """Forget a run that did not succeed, and those queued behind it: without its state they never begin."""
        index = cursor.runs.index(failed)
        for run in cursor.runs[index + 1 :]:
            self._release_run(self.workers.by_name[run.worker], run)
            self._actions.append(CancelUnit(run.number, run.worker, silent=True))
        del cursor.runs[index:]

    def _cancel_runs(self, cursor: ActiveLineage) -> None:
        """Tell the worker to give up a cursor's runs; it stays busy until it says that it has."""
        for run in cursor.runs:
            if not run.cancelled:
                run.cancelled = True
                self._actions.append(CancelUnit(run.number, run.worker))

    def _resume(self, cursor: ActiveLineage) -> None:
        """Give a cursor whose run came to nothing its chance again, from a state that is there."""
        if cursor.stale or cursor.runs:
            return
        state = cursor.state
        if state is not None and state.unit not in state.node.states:
            self._withdraw(cursor)
            self.demand.cover_again(cursor.node)
        elif self.demand.next_stop(cursor) is None:
            self._withdraw(cursor)
        else:
            self._offer(cursor)

    # --- workers ----------------------------------------------------------------------------------------

    def _driver_started(self) -> None:
        """Forget the workers, runs and claims of the driver before, and take up what a fold has left."""
        for name in list(self.workers.by_name):
            self._worker_lost(WorkerLost(name))
        for node in self.plan.nodes:
            for unit in sorted(node.taken):
                self._elsewhere.freed(LineageFreed(node.id, unit), node)
        if not self._folded:
            return
        self._folded = False
        for node in self.plan.nodes:
            node.cost = self.plan.price(node)
            for partition, count in node.trained.items():
                self.demand.done[partition] += count * node.cost
            for state in node.states.values():
                state.users += state.kept
        self._trials.resume()
        for node in self.plan.nodes:
            for state in list(node.states.values()):
                if not state.users:
                    state.users = 1
                    self.states.release(state)
        self.states.save_again(self.trials.values())

    def _worker_joined(self, event: WorkerJoined) -> None:
        wrong = [p for p in event.partitions if not 0 <= p < self.settings.partitions]
        if wrong:
            raise WorkloadError(
                f"partitions: {event.worker} holds partition {wrong[0]}; expected numbers from 0 to "
                f"{self.settings.partitions - 1}"
            )
        if not 0 < event.speed < float("inf"):
            raise WorkloadError(f"speed: {event.speed} of {event.worker}; expected a finite number above 0")
        held = tuple(dict.fromkeys(event.partitions))
        self._dispatcher.freed.append(self.workers.join(event.worker, held, event.speed))

    def _worker_drained(self, event: WorkerDrained) -> None:
        worker = self.workers.by_name.get(event.worker)
        if worker is not None:
            worker.draining = True
            self.workers.set_busy(worker)

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.workers.leave(event.worker)
        if worker is None:
            return
        for run in worker.queue:
            del self._dispatcher.runs[run.number]
        cursors: list[ActiveLineage] = []
        for run in worker.queue:
            if run.evaluating:
                assert run.state is not None
                self._evaluate_again(run.state)
            elif run.cursor is not None and run.cursor not in cursors:
                cursors.append(run.cursor)
        worker.queue.clear()
        for cursor in cursors:
            cursor.runs.clear()
            self._resume(cursor)

    # --- states -----------------------------------------------------------------------------------------

    def _state_lost(self, event: StateLost) -> None:
        node = self._node(event)
        state = node.states.get(event.unit)
        if state is None:
            return
        self.states.lose(state)
        for child in [node, *(c for (start, _), c in node.children.items() if start == event.unit)]:
            for cursor in [c for c in child.cursors if c.state is state and not c.runs]:
                self._withdraw(cursor)
                self.demand.cover_again(child)
        if state in self.states.evaluations:
            self.states.evaluations.remove(state)
            self._trials.want_again(state)
            self.states.release(state)
        self._trials.restore(state)

    def _state_saved(self, event: StateSaved) -> None:
        """Keep the earlier states of the same lineage no longer."""
        for state in list(self._node(event).states.values()):
            if state.unit == event.unit:
                state.saved = True
            elif state.kept and state.unit < event.unit:
                self.states.let_go(state)

    def _node(self, event: StateLost | StateSaved | LineageTaken | LineageFreed | StateFound | ReportFound) -> Node:
        if not 0 <= event.node < len(self.plan.nodes):
            raise self._impossible(event, f"node {event.node} is not in the plan")
        if self._free and isinstance(event, LineageTaken | StateFound | ReportFound):
            raise self._impossible(event, "in free order a lineage does not say what others have trained")
        node = self.plan.nodes[event.node]
        if isinstance(event, StateFound | ReportFound) and event.unit <= node.start:
            raise self._impossible(event, f"node {event.node} begins at unit {node.start}")
        return node

    def _evaluate_again(self, state: State) -> None:
        """After an evaluation came to nothing: once more, or train the state again if it is gone."""
        if state.unit not in state.node.requests:
            self.states.release(state)
        elif state.unit in state.node.states:
            self.states.evaluations.append(state)
        else:
            self._trials.want_again(state)
            self.states.release(state)

    # --- cursors ----------------------------------------------------------------------------------------

    def _aim(self, cursor: ActiveLineage, hint: int) -> None:
        """Set a cursor's next partition: fixed by its lineage in strict order, a wish in free order."""
        cursor.partition = (hint if self._free else cursor.order + cursor.unit) % self.settings.partitions

    def _offer(self, cursor: ActiveLineage) -> None:
        cursor.held = self._gates.bars(cursor)
        if not cursor.held:
            self._dispatcher.fresh.append(cursor)

    def _withdraw(self, cursor: ActiveLineage) -> None:
        self._dispatcher.ready.take(cursor)
        self.demand.remove(cursor)
        if cursor.state is not None:
            self.states.release(cursor.state)

    def _settle(self) -> None:
        """Bring cursors in line with what the event changed in the demand."""
        demand = self.demand
        if demand.spawned:
            for cursor in demand.spawned:
                state = cursor.state
                if not self._free:
                    cursor.order = self.plan.rotation(cursor.node, cursor.unit)
                elif state is not None and cursor.unit % self.settings.partitions:
                    cursor.order = state.order
                self._aim(cursor, self._spawned)
                self._spawned += 1
                self._offer(cursor)
            demand.spawned.clear()
        if demand.unneeded:
            for cursor in demand.unneeded:
                if cursor.stale or demand.next_stop(cursor) is not None:
                    continue
                if cursor.runs:
                    self._cancel_runs(cursor)
                else:
                    self._withdraw(cursor)
            demand.unneeded.clear()
        if demand.changed:
            for cursor in demand.changed:
                if cursor.sequence >= 0:
                    self._dispatcher.ready.push(cursor)
            demand.changed.clear()

    # --- what others may ask ----------------------------------------------------------------------------

    def stored(self) -> list[State]:
        """Return the states that there are."""
        return [state for node in self.plan.nodes for state in node.states.values()]

    @property
    def open_requests(self) -> list[Place]:
        """Where a report is due, in the order of the plan."""
        return [Place(node, unit) for node in self.plan.nodes for unit in sorted(node.requests)]

    def waiting_partitions(self) -> list[int]:
        """Return partitions that a ready unit needs and no worker holds."""
        held = {p for worker in self.workers.by_name.values() for p in worker.partitions}
        needed: set[int] = set()
        for node in self.plan.nodes:
            for cursor in node.cursors:
                if not cursor.runs and not cursor.held:
                    needed |= set(range(self.settings.partitions)) if self._free else {cursor.partition}
        return sorted(needed - held)

    def story(self, run: int) -> str:
        """Return what is remembered about one run, oldest first."""
        lines = [
            f"  at {now:g}: {record}"
            for now, event, actions in self._log
            for record in (event, *actions)
            if getattr(record, "run", None) == run
        ]
        return "\n".join(lines) if lines else "  nothing is remembered about it"

    def _impossible(self, event: Event, why: str) -> ProtocolError:
        run = getattr(event, "run", -1)
        issued = self._dispatcher.issued
        last = f"last run given out: {issued - 1}" if issued else "no run was given out yet"
        story = self.story(run)
        return ProtocolError(f"{event}: this cannot have happened: {why} ({last}). Its story:\n{story}")

"""The engine: events in, actions out. It decides; backends act.

    actions = engine.step(event, now)

It has no other input: no clock, no randomness, no I/O. Events and actions are recorded as facts, and folding them
gives the state from which a new engine can continue (``fold_journal.py``). Of several events at one moment, all but
the last are passed with ``more=True``: the engine applies all of them before it assigns work.
"""

from __future__ import annotations

from typing import assert_never, final

from hoptree.core.actions import Action
from hoptree.core.active_lineages import ActiveLineages
from hoptree.core.allotment import Allotment
from hoptree.core.barriers import Barriers
from hoptree.core.dispatch import Dispatcher
from hoptree.core.dry_run import DryRun
from hoptree.core.errors import ProtocolError, TransitionError, WorkloadError
from hoptree.core.event_log import EventLog
from hoptree.core.events import (
    AllocationPlanned,
    CostsLearned,
    DriverStarted,
    Event,
    LineageFreed,
    LineageTaken,
    NodeLost,
    NodeReleased,
    NodesRequested,
    NodeStarted,
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
from hoptree.core.gang_plan import GangPlan
from hoptree.core.gang_planner import GangPlanner
from hoptree.core.layout_choice import LayoutChoice
from hoptree.core.nodes import Node, Place, Run, State
from hoptree.core.open_work import OpenWork
from hoptree.core.other_drivers import OtherDrivers
from hoptree.core.plan import Cost
from hoptree.core.policies import FirstCome, LongestPath, Policy, checked, make_policy
from hoptree.core.replication import Replication, ReplicationSettings
from hoptree.core.repricing import Repricing
from hoptree.core.run_results import RunResults
from hoptree.core.saving import SavePolicy, Saving
from hoptree.core.settings import MONTE_CARLO, Settings
from hoptree.core.states import StateRegistry
from hoptree.core.study_state import StudyState
from hoptree.core.trial import Trial
from hoptree.core.trials import Trials
from hoptree.core.workers import Workers


@final
class Engine:
    """Plans and schedules all trials; see the module docstring."""

    def __init__(
        self,
        settings: Settings,
        cost: Cost | None = None,
        policy: Policy | None = None,
        *,
        state: StudyState | None = None,
        saving: SavePolicy | None = None,
        allotment: Allotment | None = None,
        layouts: LayoutChoice | None = None,
        replication: ReplicationSettings | None = None,
        plan: GangPlan = (),
    ) -> None:
        """Begin a study, or continue one from its ``state``: then the first event must be ``DriverStarted``.

        Without ``allotment`` every unit is trained by one worker, without ``replication`` idle nodes get no copies.
        Without ``layouts`` a unit that runs out of memory has no other layout to be trained in. Dry runs begin with
        ``plan``, and follow it until they find something better.
        """
        self.settings = settings
        self.state = state or StudyState(settings)
        self.plan = self.state.plan
        if cost is not None:
            self.plan.price_by(cost)
        self.open_work = OpenWork(settings.partitions)
        self.workers = Workers(settings.partitions)
        self._barriers = Barriers(settings.partitions, self.open_work)
        chosen = checked(policy) if policy else make_policy(settings, self.open_work, self.workers, self._barriers)
        self._policy = chosen
        self._actions: list[Action] = []
        self._repricing = Repricing(self.plan, self.open_work)
        self.states = StateRegistry(self._actions, Saving(settings.partitions, saving, self._actions))
        self._dispatcher = Dispatcher(
            settings, self._policy, self.open_work, self.workers, self._barriers, self.states, self._actions
        )
        self._dispatcher.issued = self.state.issued
        self._dispatcher.gangs.allotment = allotment
        self._dispatcher.gangs.layouts = layouts or LayoutChoice()
        if allotment is not None and isinstance(chosen, LongestPath | FirstCome):
            self._dispatcher.gangs.planner = GangPlanner(
                settings,
                self.open_work,
                self.workers,
                allotment,
                DryRun(random=settings.policy == MONTE_CARLO),
                Replication(replication) if replication else None,
                plan,
            )
        self._trials = Trials(
            self.plan,
            self.open_work,
            self._barriers,
            self._dispatcher,
            self.states,
            self._actions,
            self.state.trials,
        )
        self._other_drivers = OtherDrivers(
            self.open_work, self._barriers, self._dispatcher, self.states, self._trials
        )
        self._log = EventLog()
        self._lineages = ActiveLineages(
            settings, self.plan, self.open_work, self._barriers, self._dispatcher, self.states, self._actions
        )
        self._runs = RunResults(
            settings, self.open_work, self._dispatcher, self.states, self._trials, self._lineages, self._log
        )
        self._folded = bool(self.state.trials)  # whether trials of the given state have to be resumed
        self._free = settings.order == "free"

    @property
    def trials(self) -> dict[int, Trial]:
        """All trials, by number."""
        return self._trials.by_number

    @property
    def live(self) -> int:
        """Number of trials that have not ended."""
        return self._trials.live

    @property
    def finished(self) -> bool:
        """Whether all trials have ended, and all complete ones have their states."""
        return not self._trials.live and not self._trials.missing

    @property
    def runs(self) -> dict[int, Run]:
        """The runs that were assigned to workers and have not ended."""
        return self._dispatcher.runs

    def step(self, event: Event, now: float, *, more: bool = False) -> list[Action]:
        """Apply one event and return the actions that follow from it."""
        self._actions.clear()
        self._dispatcher.now = now
        try:
            self._apply(event)
            if self._repricing.under_way:
                self._repricing.go_on()
            self._lineages.settle()
            if more:
                self._dispatcher.take_in()
            else:
                self._dispatcher.dispatch()
        except TransitionError as error:
            error.add_note(f"It happened at {now:g} in the step of {event}. {self._log.recent()}")
            raise
        actions = self._actions.copy()
        self._log.steps.append((now, event, actions))
        return actions

    def _apply(self, event: Event) -> None:
        match event:
            case UnitFinished():
                self._runs.unit_finished(event)
            case StateEvaluated():
                self._runs.state_evaluated(event)
            case UnitFailed():
                self._runs.unit_failed(event)
            case UnitCancelled():
                self._runs.unit_cancelled(event)
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
                self._other_drivers.taken(event, self._node(event))
            case LineageFreed():
                self._other_drivers.freed(event, self._node(event))
            case StateFound():
                self._other_drivers.state_found(event, self._node(event))
            case ReportFound():
                self._other_drivers.report_found(event, self._node(event))
            case CostsLearned(formula):
                self._repricing.begin(formula)
            case AllocationPlanned() | NodesRequested() | NodeStarted() | NodeReleased() | NodeLost():
                pass  # what a study costs is recorded, and workers join and leave by events of their own
            case _:
                assert_never(event)

    # --- workers ----------------------------------------------------------------------------------------

    def _driver_started(self) -> None:
        """Drop the workers, runs and claims of the previous driver, and resume the trials of a folded state."""
        for name in list(self.workers.by_name):
            self._worker_lost(WorkerLost(name))
        for node in self.plan.nodes:
            for unit in sorted(node.taken):
                self._other_drivers.freed(LineageFreed(node.id, unit), node)
        if not self._folded:
            return
        self._folded = False
        self._trials.standings.resume(self.state.dialogue, self.trials, self.plan.nodes)
        for node in self.plan.nodes:
            node.cost = self.plan.price(node)
            for partition, count in node.trained.items():
                self.open_work.done[partition] += count * node.cost
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
        self._dispatcher.freed.append(self.workers.join(event.worker, held, event.speed, event.machine))

    def _worker_drained(self, event: WorkerDrained) -> None:
        worker = self.workers.by_name.get(event.worker)
        if worker is not None:
            worker.draining = True
            self.workers.set_busy(worker)

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.workers.leave(event.worker)
        planner = self._dispatcher.gangs.planner
        if planner is not None and planner.replication is not None:
            planner.replication.lost(event.worker)
        if worker is not None:
            self._runs.worker_lost(worker)

    # --- states -----------------------------------------------------------------------------------------

    def _state_lost(self, event: StateLost) -> None:
        node = self._node(event)
        state = node.states.get(event.unit)
        if state is None:
            return
        self.states.lose(state)
        for child in [node, *(c for (start, _), c in node.children.items() if start == event.unit)]:
            for lineage in [c for c in child.active if c.state is state and not c.runs]:
                self._lineages.withdraw(lineage)
                self.open_work.cover_again(child)
        if state in self.states.evaluations:
            self.states.evaluations.remove(state)
            self._trials.want_again(state)
            self.states.release(state)
        self._trials.restore(state)

    def _state_saved(self, event: StateSaved) -> None:
        """Stop keeping the earlier states of the same lineage."""
        for state in list(self._node(event).states.values()):
            if state.unit == event.unit:
                state.saved = True
            elif state.kept and state.unit < event.unit:
                self.states.let_go(state)

    def _node(self, event: StateLost | StateSaved | LineageTaken | LineageFreed | StateFound | ReportFound) -> Node:
        if not 0 <= event.node < len(self.plan.nodes):
            raise self._impossible(event, f"the plan has no node {event.node}")
        if self._free and isinstance(event, LineageTaken | StateFound | ReportFound):
            raise self._impossible(
                event, "in free order drivers share no states, as a place does not determine a state"
            )
        node = self.plan.nodes[event.node]
        if isinstance(event, StateFound | ReportFound) and event.unit <= node.start:
            raise self._impossible(event, f"node {event.node} begins at unit {node.start}")
        return node

    def _impossible(self, event: Event, why: str) -> ProtocolError:
        return self._log.impossible(event, why, self._dispatcher.issued)

    # --- queries ----------------------------------------------------------------------------------------

    def stored(self) -> list[State]:
        """Return all stored states."""
        return [state for node in self.plan.nodes for state in node.states.values()]

    @property
    def open_requests(self) -> list[Place]:
        """The places where a report is due, in the order of the plan."""
        return [Place(node, unit) for node in self.plan.nodes for unit in sorted(node.requests)]

    @property
    def unmet_layout(self) -> tuple[str, int, int] | None:
        """The layout, workers and partition for which nothing runs, as no machine has so many workers; or None."""
        return None if self.runs else self._dispatcher.gangs.unmet

    def waiting_partitions(self) -> list[int]:
        """Return the partitions that a ready unit needs and no worker holds."""
        held = {p for worker in self.workers.by_name.values() for p in worker.partitions}
        needed: set[int] = set()
        for node in self.plan.nodes:
            for lineage in node.active:
                if lineage.status in ("idle", "ready"):
                    needed |= set(range(self.settings.partitions)) if self._free else {lineage.partition}
        return sorted(needed - held)

    def story(self, run: int) -> str:
        """Return what is logged about one run, oldest first."""
        return self._log.story(run)

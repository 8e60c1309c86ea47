"""The nine invariants of the engine, checked from the outside after every step.

The checker keeps its own records of what runs where and what is stored (``observed.py``), from events and actions
alone, and uses the plan only for the paths of trials. So a mistake in the engine's records is a contradiction.

1. Completeness: in an epoch a lineage visits every partition exactly once.
2. Isolation: two units of one lineage never run at the same time: a unit starts from a stored state, or waits
   on the same worker for the unit that produces it. (A unit that is retrained because its state was lost and is
   needed again is no input of a unit under way.)
3. Exclusive access: a worker runs one unit at a time.
4. No preemption of a running unit, except to cancel work that nothing needs any more.
5. Locality: a unit runs on a worker that holds its partition.
6. No unit is trained twice while a state at or after it is stored, nor while another driver trains it.
7. A state that something still needs is never dropped.
8. Every trial ends: complete, stopped, or failed with a reason.
9. No state leaks: a state is stored while something needs it, and then dropped.

It also checks that the statuses of runs, active lineages and trials follow the tables in ``transitions.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, final

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
from hoptree.core.engine import Engine
from hoptree.core.errors import InvariantError
from hoptree.core.events import (
    DriverStarted,
    Event,
    LineageFreed,
    LineageTaken,
    StateEvaluated,
    StateLost,
    StateSaved,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.nodes import ActiveLineage, Run
from hoptree.core.observed import Observed, StateId
from hoptree.core.steps import Step
from hoptree.core.transitions import TABLES, reachable
from hoptree.core.trial import Trial

_Stateful: TypeAlias = Run | ActiveLineage | Trial
_KINDS: dict[type, str] = {Run: "run", ActiveLineage: "active lineage", Trial: "trial"}


@final
class InvariantChecker:
    """Checks the steps of one engine; ``see`` raises InvariantError with the last steps."""

    def __init__(self, engine: Engine, *, progress: bool = True) -> None:
        """Without ``progress`` workers may idle: a journal does not say which entries belong to one moment."""
        self._engine = engine
        self._observed = Observed(engine)
        self._progress = progress
        self._partitions = engine.settings.partitions
        self._room = 2 if engine.settings.ahead else 1
        self._asked: set[tuple[int, int]] = set()  # trials and the epochs they were granted
        self._reported: set[tuple[int, int]] = set()
        self._bases: dict[int, tuple[str, str]] = {}  # by trial, the root and variant that it is trained under
        self._statuses: dict[_Stateful, str] = {}
        self._story: deque[tuple[float, Event, Sequence[Action]]] = deque(maxlen=30)

    def follow(self, engine: Engine) -> None:
        """Continue with another engine that has resumed the study; all records are kept."""
        self._engine = engine
        self._observed.engine = engine
        self._statuses.clear()

    def see(self, step: Step) -> None:
        """Check one step: the event that went in and the actions that came out."""
        event, now, more, actions = step.event, step.now, step.more, step.actions
        self._story.append((now, event, actions))
        self._take_event(event)
        for action in actions:
            self._take_action(action)
        left = [leader for leader in self._observed.broken.values() if leader in self._observed.queues]
        self._expect(not left, 3, f"{left} go on with runs that have lost one of their workers")
        self._observed.broken.clear()
        if not more:
            if self._progress:
                self._check_progress()
            if any(isinstance(action, EndTrial) for action in actions) or not any(self._observed.queues.values()):
                self._check_leaks()
            self._check_statuses()

    def _take_event(self, event: Event) -> None:
        match event:
            case WorkerJoined(worker, partitions):
                self._observed.partitions_of[worker] = partitions
                self._observed.queues.setdefault(worker, [])
                self._observed.draining.discard(worker)
            case WorkerDrained(worker):
                self._observed.draining.add(worker)
            case WorkerLost(worker):
                self._observed.lose_worker(worker)
            case UnitFinished(number, worker):
                run = self._head(number, worker)
                self._observed.release(number)
                if isinstance(run, RunUnit) and number not in self._observed.evaluating:
                    self._observed.visited[run.node, run.unit + 1] = self._observed.will_visit[number]
                    self._observed.chained -= {
                        r.run for r in self._observed.queues[worker] if r.unit == run.unit + 1
                    }
                    if run.evaluate:
                        self._observed.evaluating.add(number)
                    else:
                        self._observed.queues[worker].remove(run)
            case StateEvaluated(run=number, worker=worker) | UnitFailed(run=number, worker=worker):
                self._observed.end_run(number, worker)
            case UnitCancelled(number, worker):
                self._observed.end_run(number, worker)
            case DriverStarted():
                self._observed.partitions_of.clear()
                self._observed.queues.clear()
                self._observed.draining.clear()
                self._observed.helping.clear()
                self._observed.taken.clear()
            case StateLost(node, unit):
                if self._observed.visited.pop((node, unit), None) is not None:
                    self._observed.restoring |= {(node, unit)} & {*self._observed.final_states.values()}
                self._observed.kept.discard((node, unit))
            case StateSaved(node, unit):
                self._observed.kept -= {
                    state_id for state_id in self._observed.kept if state_id[0] == node and state_id[1] < unit
                }
            case LineageTaken(node, unit):
                self._observed.taken.add((node, unit))
            case LineageFreed(node, unit):
                self._observed.taken.discard((node, unit))
            case TrialAsked() | TrialBranched() | TrialExtended():
                self._asked.add((event.trial, event.until))
                self._take_move(self._engine.trials[event.trial])
            case TrialRebased(number):
                self._take_move(self._engine.trials[number])
            case _:
                pass

    def _take_move(self, trial: Trial) -> None:
        """Release the states of a trial under its old root, if it has started again under another one."""
        if self._bases.setdefault(trial.number, trial.base) == trial.base:
            return
        self._bases[trial.number] = trial.base
        self._observed.final_states.pop(trial.number, None)
        root, variant, until = trial.earlier[-1]
        plan = self._engine.plan
        left = plan.path(trial.history, plan.root(root, trial.tree_of(variant)), until * self._partitions)
        self._observed.kept -= {
            state_id
            for state_id in self._observed.kept
            if state_id[0] in {node.id for node in left} - self._observed.live()
        }

    def _take_action(self, action: Action) -> None:
        match action:
            case RunUnit():
                self._check_run(action)
                self._check_crew(action)
                self._observed.queues[action.worker].append(action)
            case Evaluate():
                self._check_room(action)
                self._expect(
                    (action.node, action.unit) in self._observed.visited, 7, f"{action}: that state is not stored"
                )
                self._observed.queues[action.worker].append(action)
            case CancelUnit(number, worker):
                self._check_cancel(number, worker)
            case SaveState(node, unit, keep=keep):
                state_id = (node, unit)
                self._expect(
                    state_id in self._observed.visited or not keep, 7, f"{action}: that state is not stored"
                )
                self._observed.kept |= {state_id} if keep else set()
            case AdoptState(node, unit, keep):
                self._observed.visited.setdefault((node, unit), self._observed.would_visit(node, unit))
                self._observed.kept |= {(node, unit)} if keep else set()
            case DropState(node, unit):
                self._check_drop((node, unit))
                self._observed.visited.pop((node, unit), None)
            case Report(number, epoch, _):
                trial = self._engine.trials.get(number)
                self._expect(trial is not None, 8, f"a report for trial {number}, which was never requested")
                assert trial is not None
                due = (number, epoch) in self._asked or (trial.every and epoch % trial.every == 0)
                self._expect(bool(due), 8, f"a report of {trial} at epoch {epoch}, which was not requested")
                self._reported.add((number, epoch))
            case EndTrial(number, ending, reason):
                self._expect(ending != "failed" or bool(reason), 8, f"trial {number} failed without a reason")
                last = (number, self._engine.trials[number].until)
                told = ending != "complete" or last in self._reported
                self._expect(told, 8, f"trial {number} is complete without its last report")
                self._observed.final_states.pop(number, None)
                if ending == "complete":
                    self._observed.final_states[number] = self._observed.path(
                        self._engine.trials[number], last[1] * self._partitions
                    )[-1]
                gone = (
                    self._observed.nodes(self._engine.trials[number]) - self._observed.live()
                )  # nothing is kept there for anybody
                self._observed.kept -= {state_id for state_id in self._observed.kept if state_id[0] in gone}

    # --- checks -----------------------------------------------------------------------------------------

    def _check_run(self, run: RunUnit) -> None:
        self._expect(run.worker in self._observed.partitions_of, 5, f"{run}: there is no such worker")
        self._expect(
            run.partition in self._observed.partitions_of[run.worker],
            5,
            f"{run}: the worker does not hold its partition",
        )
        self._check_room(run)
        taken = (run.node, run.unit) in self._observed.taken
        self._expect(not taken, 6, f"{run}: another driver trains that")
        self._expect(
            not self._observed.is_under_way(run.node, run.unit), 2, f"{run}: the same unit is under way already"
        )
        if not (has_input := self._observed.is_input_stored(run)):
            self._observed.chained.add(run.run)
            has_input = self._observed.runs_ahead(run) is not None
        self._expect(has_input, 2, f"{run}: the state that it starts from is not there")
        visits = self._observed.will_visit[run.run] = self._observed.visits(run)
        self._expect(len(set(visits)) == len(visits), 1, f"{run}: its epoch has visited {visits}")
        if (run.unit + 1) % self._partitions == 0:
            everything = list(range(self._partitions))
            self._expect(sorted(visits) == everything, 1, f"{run}: its epoch ends having visited {visits}")
        self._expect(
            self._observed.is_needed(run.node, run.unit + 1),
            6,
            f"{run}: nobody needs it, or what it gives is stored",
        )

    def _check_crew(self, run: RunUnit) -> None:
        for worker in run.crew:
            held = self._observed.partitions_of.get(worker, ())
            self._expect(run.partition in held, 5, f"{run}: {worker} does not hold its partition")
            self._expect(worker not in self._observed.draining, 3, f"{run}: {worker} is to leave")
            busy = self._observed.queues.get(worker) or worker in self._observed.helping or worker == run.worker
            self._expect(not busy, 3, f"{run}: {worker} has a run already")
            self._observed.helping[worker] = run

    def _check_room(self, run: RunUnit | Evaluate) -> None:
        queue = self._observed.queues.get(run.worker, [])
        self._expect(run.worker not in self._observed.draining, 3, f"{run}: the worker is to leave")
        self._expect(run.worker not in self._observed.helping, 3, f"{run}: the worker helps another one")
        self._expect(len(queue) < self._room, 3, f"{run}: the worker has {len(queue)} runs already")

    def _check_cancel(self, number: int, worker: str) -> None:
        queue = self._observed.queues.get(worker, [])
        run = next((run for run in queue if run.run == number), None)
        if self._observed.broken.get(number) == worker:
            del self._observed.broken[number]
            self._observed.end_run(number, worker)
            return
        if not isinstance(run, RunUnit) or number in self._observed.evaluating:
            return
        if number in self._observed.chained and self._observed.runs_ahead(run) is None:
            queue.remove(run)  # it was to follow a run that came to nothing, so it never began
        elif queue[0] is run:
            evaluated = self._observed.under_evaluation()
            needed = self._observed.is_needed(
                run.node, run.unit + 1, self._observed.coming() | evaluated, evaluated
            )
            self._expect(not needed, 4, f"{run} is cancelled though it is needed")
        self._observed.cancelled.add(number)

    def _check_drop(self, state_id: StateId) -> None:
        coming, evaluated = self._observed.coming(), self._observed.under_evaluation()
        self._expect(
            state_id not in self._observed.kept, 7, f"state {state_id} is dropped though the store keeps it"
        )
        self._expect(state_id not in evaluated, 7, f"state {state_id} is dropped while it is evaluated")
        for queue in self._observed.queues.values():
            for run in queue:
                if isinstance(run, RunUnit) and run.run not in self._observed.evaluating:
                    self._expect(
                        (run.source, run.unit) != state_id, 7, f"state {state_id} is dropped while {run} needs it"
                    )
        for trial in self._engine.trials.values():
            for node, unit in trial.open.values():
                source = self._observed.source(trial, unit)
                answered = unit in node.reports or (node.id, unit) in evaluated
                way = self._observed.path(trial, unit)
                if source == state_id and coming.intersection(way[way.index(state_id) + 1 :]):
                    continue  # the state that replaces it is being made
                self._expect(
                    source != state_id or answered, 7, f"state {state_id} is dropped, but {trial} needs it"
                )
            if trial.ending == "complete":
                last = self._observed.path(trial, trial.until * self._partitions)[-1]
                self._expect(last != state_id, 7, f"state {state_id} is dropped, but {trial} ended with it")

    def _check_leaks(self) -> None:
        """Check that something needs every stored state: a complete trial, an open request or a run."""
        needed = (
            {*self._observed.final_states.values()}
            | self._observed.kept
            | self._observed.coming()
            | self._observed.under_evaluation()
        )
        for queue in self._observed.queues.values():
            needed |= {(run.source, run.unit) for run in queue if isinstance(run, RunUnit)}
        for trial in self._engine.trials.values():
            for _, unit in trial.open.values():
                source = self._observed.source(trial, unit)
                needed |= set() if source is None else {source}
        for trial, state_id in self._observed.being_restored():
            source = self._observed.source(trial, state_id[1])
            needed |= set() if source is None else {source}
        leaked = sorted(set(self._observed.visited) - needed)
        self._expect(not leaked, 9, f"states {leaked} are stored, and nothing needs them")

    def _check_progress(self) -> None:
        working = {
            partition
            for name in self._observed.partitions_of
            if name not in self._observed.draining
            for partition in self._observed.partitions_of[name]
        }
        busy = any(self._observed.queues.values())
        if not busy and len(working) == self._partitions:
            waiting = [trial for trial in self._engine.trials.values() if trial.ending is None]
            away = [trial for trial in waiting if self._observed.waits_for_other_driver(trial)]
            left = [trial for trial in waiting if trial not in away and not (trial.barrier and away)]
            self._expect(not left, 8, f"{left} wait, all workers are idle")

    # --- queues -----------------------------------------------------------------------------------------

    def _head(self, number: int, worker: str) -> RunUnit | Evaluate | None:
        queue = self._observed.queues.get(worker, [])
        found = next((run for run in queue if run.run == number), None)
        if found is not None:
            self._expect(queue[0] is found, 3, f"run {number} ended before {queue[0]}, which came first")
        return found

    # --- statuses ---------------------------------------------------------------------------------------

    def _check_statuses(self) -> None:
        """Check that statuses agree with queues and runs, and changed as the tables allow."""
        engine = self._engine
        lineages = [lineage for node in engine.plan.nodes for lineage in node.active]
        for lineage in lineages:
            data = (bool(lineage.runs), lineage.sequence >= 0)
            expected = (lineage.status == "running", lineage.status == "ready")
            self._expect_status(data == expected and lineage.status != "removed", lineage, lineage.status)
        for run in engine.runs.values():
            active = run.lineage is not None and run in run.lineage.runs
            self._expect_status(active != run.evaluating, run, run.status)
        before, self._statuses = self._statuses, {}
        items: list[_Stateful] = [*engine.runs.values(), *lineages, *engine.trials.values()]
        for item in items:
            was = before.pop(item, item.status)
            legal = item.status in reachable(TABLES[_KINDS[type(item)]], was)
            self._expect_status(legal, item, f"{was}, then {item.status}")
            self._statuses[item] = item.status
        for item in before:  # the engine has removed it
            self._expect_status(not TABLES[_KINDS[type(item)]][item.status], item, f"removed while {item.status}")

    def _expect_status(self, holds: bool, item: _Stateful, status: str) -> None:
        if not holds:
            raise InvariantError(f"{item} was {status}, against transitions.py\n{self._last_steps()}")

    def _expect(self, holds: bool, number: int, message: str) -> None:
        if not holds:
            raise InvariantError(f"invariant {number} is broken: {message}\n{self._last_steps()}")

    def _last_steps(self) -> str:
        lines = [
            line
            for now, event, actions in self._story
            for line in (f"at {now:g} {event}", *(f"    -> {action}" for action in actions))
        ]
        return "\n".join(["The last steps:", *lines])

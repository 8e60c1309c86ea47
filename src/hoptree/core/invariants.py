"""The nine promises of the engine, checked after every step from the outside.

A witness sees only what everybody sees: events and actions. It keeps its own books of what runs where and what is
stored, and asks the plan only for the way of a trial. So a mistake in the engine's books shows as a contradiction.

1. Completeness: in an epoch a lineage visits every partition exactly once.
2. Isolation: two units of one lineage never run at the same time: a unit starts from a state that is there, or
   behind the unit that makes it, on the same worker. (Units that are trained again because an early state is
   needed and lost feed nothing that is under way.)
3. Exclusive access: a worker runs one unit at a time.
4. No preemption of a running unit, except to cancel work nobody asks for any more.
5. Locality: a unit runs on a worker that holds its partition.
6. No unit is trained twice while a state at or after it is stored, nor while another driver has taken it.
7. A state that something still needs is never dropped.
8. Every trial that was asked for ends: complete, stopped, or failed with a reason.
9. No state leaks: what is stored is kept for a reason, and dropped when the reason is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
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
from hoptree.core.plan import Trial
from hoptree.core.steps import Step

Spot: TypeAlias = tuple[int, int]  # node and unit of a state


@final
class InvariantChecker:
    """Books of one run of an engine; ``see`` raises InvariantError with the story so far."""

    def __init__(self, engine: Engine, *, progress: bool = True) -> None:
        """Begin; without ``progress`` workers may idle: a journal does not say which entries are of one moment."""
        self._engine = engine
        self._progress = progress
        self._partitions = engine.settings.partitions
        self._room = 2 if engine.settings.ahead else 1
        self._held: dict[str, tuple[int, ...]] = {}
        self._draining: set[str] = set()
        self._queues: dict[str, list[RunUnit | Evaluate]] = {}
        self._evaluating: set[int] = set()
        self._visited: dict[Spot, tuple[int, ...]] = {}  # stored states, with the partitions of their epoch
        self._will_visit: dict[int, tuple[int, ...]] = {}  # by run
        self._chained: set[int] = set()  # runs that wait for the state of the run ahead of them
        self._cancelled: set[int] = set()
        self._kept: set[Spot] = set()
        self._ended_with: dict[int, Spot] = {}  # by trial; one that is extended holds it until it ends again
        self._restoring: set[Spot] = set()  # lost states that trials ended with
        self._taken: set[Spot] = set()  # places from which another driver trains on
        self._asked: set[tuple[int, int]] = set()  # trials and the epochs they were granted
        self._reported: set[tuple[int, int]] = set()
        self._bases: dict[int, tuple[str, str]] = {}  # by trial, the root and variant that it is trained under
        self._ways: dict[tuple[int, tuple[str, str], int], list[Spot]] = {}
        self._story: deque[tuple[float, Event, Sequence[Action]]] = deque(maxlen=30)

    def follow(self, engine: Engine) -> None:
        """Go on with another engine that has taken up the study: the books stay, and so do the promises."""
        self._engine = engine

    def see(self, step: Step) -> None:
        """Check one step: the event that went in and the actions that came out."""
        event, now, more, actions = step.event, step.now, step.more, step.actions
        self._story.append((now, event, actions))
        self._take_event(event)
        for action in actions:
            self._take_action(action)
        if not more:
            if self._progress:
                self._check_progress()
            if any(isinstance(action, EndTrial) for action in actions) or not any(self._queues.values()):
                self._check_leaks()

    def _take_event(self, event: Event) -> None:
        match event:
            case WorkerJoined(worker, partitions):
                self._held[worker] = partitions
                self._queues.setdefault(worker, [])
                self._draining.discard(worker)
            case WorkerDrained(worker):
                self._draining.add(worker)
            case WorkerLost(worker):
                self._held.pop(worker, None)
                self._queues.pop(worker, None)
                self._draining.discard(worker)
            case UnitFinished(number, worker):
                run = self._head(number, worker)
                if isinstance(run, RunUnit) and number not in self._evaluating:
                    self._visited[run.node, run.unit + 1] = self._will_visit[number]
                    self._chained -= {r.run for r in self._queues[worker] if r.unit == run.unit + 1}
                    if run.evaluate:
                        self._evaluating.add(number)
                    else:
                        self._queues[worker].remove(run)
            case StateEvaluated(run=number, worker=worker) | UnitFailed(run=number, worker=worker):
                self._leave(number, worker)
            case UnitCancelled(number, worker):
                self._leave(number, worker)
            case DriverStarted():
                self._held.clear()
                self._queues.clear()
                self._draining.clear()
                self._taken.clear()
            case StateLost(node, unit):
                if self._visited.pop((node, unit), None) is not None:
                    self._restoring |= {(node, unit)} & {*self._ended_with.values()}
                self._kept.discard((node, unit))
            case StateSaved(node, unit):
                self._kept -= {spot for spot in self._kept if spot[0] == node and spot[1] < unit}
            case LineageTaken(node, unit):
                self._taken.add((node, unit))
            case LineageFreed(node, unit):
                self._taken.discard((node, unit))
            case TrialAsked() | TrialBranched() | TrialExtended():
                self._asked.add((event.trial, event.until))
                self._take_move(self._engine.trials[event.trial])
            case TrialRebased(number):
                self._take_move(self._engine.trials[number])
            case _:
                pass

    def _take_move(self, trial: Trial) -> None:
        """Let go of what a trial had in another tree, if it has begun again under another root."""
        if self._bases.setdefault(trial.number, trial.base) == trial.base:
            return
        self._bases[trial.number] = trial.base
        self._ended_with.pop(trial.number, None)
        root, variant, until = trial.earlier[-1]
        plan = self._engine.plan
        left = plan.path(trial.history, plan.root(root, trial.lane_of(variant)), until * self._partitions)
        self._kept -= {spot for spot in self._kept if spot[0] in {node.id for node in left} - self._live()}

    def _take_action(self, action: Action) -> None:
        match action:
            case RunUnit():
                self._check_run(action)
                self._queues[action.worker].append(action)
            case Evaluate():
                self._check_room(action)
                self._expect((action.node, action.unit) in self._visited, 7, f"{action}: that state is not stored")
                self._queues[action.worker].append(action)
            case CancelUnit(number, worker):
                self._check_cancel(number, worker)
            case SaveState(node, unit, keep=keep):
                spot = (node, unit)
                self._expect(spot in self._visited or not keep, 7, f"{action}: that state is not stored")
                self._kept |= {spot} if keep else set()
            case AdoptState(node, unit, keep):
                self._visited.setdefault((node, unit), self._would_visit(node, unit))
                self._kept |= {(node, unit)} if keep else set()
            case DropState(node, unit):
                self._check_drop((node, unit))
                self._visited.pop((node, unit), None)
            case Report(number, epoch, _):
                trial = self._engine.trials.get(number)
                self._expect(trial is not None, 8, f"a report for trial {number}, which was never asked for")
                assert trial is not None
                due = (number, epoch) in self._asked or (trial.every and epoch % trial.every == 0)
                self._expect(bool(due), 8, f"a report of {trial} at epoch {epoch}, which nobody asked for")
                self._reported.add((number, epoch))
            case EndTrial(number, ending, reason):
                self._expect(ending != "failed" or bool(reason), 8, f"trial {number} failed without a reason")
                last = (number, self._engine.trials[number].until)
                told = ending != "complete" or last in self._reported
                self._expect(told, 8, f"trial {number} is complete without its last report")
                self._ended_with.pop(number, None)
                if ending == "complete":
                    self._ended_with[number] = self._way(self._engine.trials[number], last[1] * self._partitions)[
                        -1
                    ]
                gone = self._nodes(self._engine.trials[number]) - self._live()  # nothing is kept there for anybody
                self._kept -= {spot for spot in self._kept if spot[0] in gone}

    # --- checks -----------------------------------------------------------------------------------------

    def _check_run(self, run: RunUnit) -> None:
        self._expect(run.worker in self._held, 5, f"{run}: there is no such worker")
        self._expect(run.partition in self._held[run.worker], 5, f"{run}: the worker does not hold its partition")
        self._check_room(run)
        taken = (run.node, run.unit) in self._taken
        self._expect(not taken, 6, f"{run}: another driver trains that")
        self._expect(not self._is_under_way(run.node, run.unit), 2, f"{run}: the same unit is under way already")
        if not (has_input := self._is_input_stored(run)):
            self._chained.add(run.run)
            has_input = self._runs_ahead(run) is not None
        self._expect(has_input, 2, f"{run}: the state that it starts from is not there")
        visits = self._will_visit[run.run] = self._visits(run)
        self._expect(len(set(visits)) == len(visits), 1, f"{run}: its epoch has visited {visits}")
        if (run.unit + 1) % self._partitions == 0:
            everything = list(range(self._partitions))
            self._expect(sorted(visits) == everything, 1, f"{run}: its epoch ends having visited {visits}")
        self._expect(
            self._is_needed(run.node, run.unit + 1), 6, f"{run}: nobody needs it, or what it gives is stored"
        )

    def _is_under_way(self, node: int, unit: int) -> bool:
        return any(
            isinstance(run, RunUnit) and run.run not in self._evaluating and (run.node, run.unit) == (node, unit)
            for queue in self._queues.values()
            for run in queue
        )

    def _check_room(self, run: RunUnit | Evaluate) -> None:
        queue = self._queues.get(run.worker, [])
        self._expect(run.worker not in self._draining, 3, f"{run}: the worker is to leave")
        self._expect(len(queue) < self._room, 3, f"{run}: the worker has {len(queue)} runs already")

    def _check_cancel(self, number: int, worker: str) -> None:
        queue = self._queues.get(worker, [])
        run = next((run for run in queue if run.run == number), None)
        if not isinstance(run, RunUnit) or number in self._evaluating:
            return
        if number in self._chained and self._runs_ahead(run) is None:
            queue.remove(run)  # it was to follow a run that came to nothing, so it never began
        elif queue[0] is run:
            evaluated = self._under_evaluation()
            needed = self._is_needed(run.node, run.unit + 1, self._coming() | evaluated, evaluated)
            self._expect(not needed, 4, f"{run} is cancelled though it is needed")
        self._cancelled.add(number)

    def _under_evaluation(self) -> set[Spot]:
        found: set[Spot] = set()
        for run in (run for queue in self._queues.values() for run in queue):
            if isinstance(run, Evaluate):
                found.add((run.node, run.unit))
            elif run.run in self._evaluating:
                found.add((run.node, run.unit + 1))
        return found

    def _check_drop(self, spot: Spot) -> None:
        coming, evaluated = self._coming(), self._under_evaluation()
        self._expect(spot not in self._kept, 7, f"state {spot} is dropped though the store keeps it")
        self._expect(spot not in evaluated, 7, f"state {spot} is dropped while it is evaluated")
        for queue in self._queues.values():
            for run in queue:
                if isinstance(run, RunUnit) and run.run not in self._evaluating:
                    self._expect((run.source, run.unit) != spot, 7, f"state {spot} is dropped while {run} needs it")
        for trial in self._engine.trials.values():
            for node, unit in trial.open.values():
                source = self._source(trial, unit)
                answered = unit in node.reports or (node.id, unit) in evaluated
                way = self._way(trial, unit)
                if source == spot and coming.intersection(way[way.index(spot) + 1 :]):
                    continue  # the state that replaces it is being made
                self._expect(source != spot or answered, 7, f"state {spot} is dropped, but {trial} needs it")
            if trial.ending == "complete":
                last = self._way(trial, trial.until * self._partitions)[-1]
                self._expect(last != spot, 7, f"state {spot} is dropped, but {trial} ended with it")

    def _being_restored(self) -> Iterator[tuple[Trial, Spot]]:
        """Yield the lost states that trials ended with, and that are to be made again."""
        for number, spot in self._ended_with.items():
            trial = self._engine.trials[number]
            if spot in self._restoring and spot not in self._visited and trial.onward is None:
                yield trial, spot

    def _check_leaks(self) -> None:
        """See that every stored state has a reason to be: somebody ended with it, or goes on from it."""
        needed = {*self._ended_with.values()} | self._kept | self._coming() | self._under_evaluation()
        for queue in self._queues.values():
            needed |= {(run.source, run.unit) for run in queue if isinstance(run, RunUnit)}
        for trial in self._engine.trials.values():
            for _, unit in trial.open.values():
                source = self._source(trial, unit)
                needed |= set() if source is None else {source}
        for trial, spot in self._being_restored():
            source = self._source(trial, spot[1])
            needed |= set() if source is None else {source}
        leaked = sorted(set(self._visited) - needed)
        self._expect(not leaked, 9, f"states {leaked} are stored, and nothing needs them")

    def _check_progress(self) -> None:
        working = {partition for name in self._held if name not in self._draining for partition in self._held[name]}
        busy = any(self._queues.values())
        if not busy and len(working) == self._partitions:
            waiting = [trial for trial in self._engine.trials.values() if trial.ending is None]
            away = [trial for trial in waiting if self._waits_elsewhere(trial)]
            left = [trial for trial in waiting if trial not in away and not (trial.barrier and away)]
            self._expect(not left, 8, f"{left} wait, all workers are idle")

    def _waits_elsewhere(self, trial: Trial) -> bool:
        """Return whether another driver has taken a place on a trial's way."""
        if not self._taken:
            return False
        units = max((unit for _, unit in trial.open.values()), default=0)
        return any((node, unit - 1) in self._taken for node, unit in self._way(trial, units))

    # --- books ------------------------------------------------------------------------------------------

    def _head(self, number: int, worker: str) -> RunUnit | Evaluate | None:
        queue = self._queues.get(worker, [])
        found = next((run for run in queue if run.run == number), None)
        if found is not None:
            self._expect(queue[0] is found, 3, f"run {number} ended before {queue[0]}, which came first")
        return found

    def _leave(self, number: int, worker: str) -> None:
        self._evaluating.discard(number)
        if worker in self._queues:
            self._queues[worker] = [run for run in self._queues[worker] if run.run != number]

    def _visits(self, run: RunUnit) -> tuple[int, ...]:
        """Return the partitions that the run's epoch will have visited after it."""
        if run.unit % self._partitions == 0:
            return (run.partition,)
        before = self._visited.get((run.source, run.unit))
        if before is None:
            ahead = self._runs_ahead(run)
            assert ahead is not None
            before = self._will_visit[ahead.run]
        return (*before, run.partition)

    def _would_visit(self, number: int, unit: int) -> tuple[int, ...]:
        """Return the partitions that the epoch of a place has visited there, in strict order."""
        node = self._engine.plan.nodes[number]
        begin = unit - unit % self._partitions if unit % self._partitions else unit - self._partitions
        while node.start > begin and node.parent is not None:
            node = node.parent
        return tuple((node.rotation + at) % self._partitions for at in range(begin, unit))

    def _is_input_stored(self, run: RunUnit) -> bool:
        return run.unit == 0 or (run.source, run.unit) in self._visited

    def _runs_ahead(self, run: RunUnit) -> RunUnit | None:
        """Return the run on the same worker that will give this one its input."""
        for other in self._queues[run.worker]:
            if isinstance(other, RunUnit) and (other.node, other.unit) == (run.node, run.unit - 1):
                return other
        return None

    def _way(self, trial: Trial, units: int) -> list[Spot]:
        """Return the spots that a trial's first units lead through, from unit 1 on."""
        way = self._ways.get((trial.number, trial.base, units))
        if way is None:
            nodes = self._engine.plan.way(trial, units)
            way = [(node.id, unit) for node, end in nodes for unit in range(node.start + 1, end + 1)]
            self._ways[trial.number, trial.base, units] = way
        return way

    def _live(self) -> set[int]:
        """Return the nodes that trials pass which have not ended."""
        trials = (trial for trial in self._engine.trials.values() if trial.ending is None)
        return {node for trial in trials for node in self._nodes(trial)}

    def _nodes(self, trial: Trial) -> set[int]:
        """Return the nodes that a trial passes, all of its budget."""
        return {node for node, _ in self._way(trial, trial.until * self._partitions)}

    def _source(self, trial: Trial, unit: int) -> Spot | None:
        return next((spot for spot in reversed(self._way(trial, unit)) if spot in self._visited), None)

    def _is_needed(
        self, node: int, unit: int, coming: Set[Spot] = frozenset(), evaluated: Set[Spot] = frozenset()
    ) -> bool:
        """Return whether an open request lies behind a spot, with nothing stored or coming in between.

        A request whose state is being evaluated needs nothing more, also if the state was lost meanwhile.
        """
        for trial in self._engine.trials.values():
            for place, end in trial.open.values():
                if end < unit or end in place.reports or (place.id, end) in evaluated:
                    continue
                way = self._way(trial, end)
                if way[unit - 1] != (node, unit) or way[unit - 1] in self._visited:
                    continue
                if not any(spot in self._visited or spot in coming for spot in way[unit:]):
                    return True
        for trial, last in self._being_restored():
            if last[1] < unit:
                continue
            way = self._way(trial, last[1])
            if way[unit - 1] == (node, unit) and not any(
                s in self._visited or s in coming for s in way[unit - 1 :]
            ):
                return True
        return False

    def _coming(self) -> set[Spot]:
        """Return the states that runs under way will give."""
        idle = self._chained | self._cancelled | self._evaluating
        runs = (run for queue in self._queues.values() for run in queue)
        return {(run.node, run.unit + 1) for run in runs if isinstance(run, RunUnit) and run.run not in idle}

    def _expect(self, holds: bool, number: int, message: str) -> None:
        if not holds:
            lines = [
                line
                for now, event, actions in self._story
                for line in (f"at {now:g} {event}", *(f"    -> {action}" for action in actions))
            ]
            story = "\n".join(lines)
            raise InvariantError(f"invariant {number} is broken: {message}\nThe story:\n{story}")

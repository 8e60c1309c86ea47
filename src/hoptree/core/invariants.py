"""The eight promises of the engine, checked after every step from the outside.

A witness sees only what everybody sees: events and actions. It keeps its own books of what runs where and what is
stored, and asks the plan only for the way of a trial. So a mistake in the engine's books shows as a contradiction.

1. Completeness: in an epoch a lineage visits every partition exactly once.
2. Isolation: two units of one lineage never run at the same time.
3. Exclusive access: a worker runs one unit at a time.
4. No preemption of a running unit, except to cancel work nobody asks for any more.
5. Locality: a unit runs on a worker that holds its partition.
6. No unit is trained twice while a state at or after it is stored.
7. A state that something still needs is never dropped.
8. Every trial that was asked for ends: complete, stopped, or failed with a reason.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias, final

from hoptree.core.actions import Action, CancelUnit, DropState, EndTrial, Evaluate, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.errors import InvariantError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.plan import Trial

Spot: TypeAlias = tuple[int, int]  # node and unit of a state


@final
class Witness:
    """Books of one run of an engine; ``see`` raises InvariantError with the story so far."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._partitions = engine.settings.partitions
        self._room = 2 if engine.settings.ahead else 1
        self._held: dict[str, tuple[int, ...]] = {}
        self._draining: set[str] = set()
        self._queues: dict[str, list[RunUnit | Evaluate]] = {}
        self._evaluating: set[int] = set()
        self._visited: dict[Spot, tuple[int, ...]] = {}  # stored states, with the partitions of their epoch
        self._ended: dict[int, EndTrial] = {}
        self._story: deque[str] = deque(maxlen=60)

    def see(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Check one step: the event that went in and the actions that came out."""
        self._story.append(f"at {now:g} {event}")
        self._story.extend(f"    -> {action}" for action in actions)
        self._take_event(event)
        for action in actions:
            self._take_action(action)
        if not more:
            self._check_progress()

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
                    self._visited[run.node, run.unit + 1] = self._visits(run)
                    if run.evaluate:
                        self._evaluating.add(number)
                    else:
                        self._queues[worker].remove(run)
            case StateEvaluated(run=number, worker=worker) | UnitFailed(run=number, worker=worker):
                self._leave(number, worker)
            case UnitCancelled(number, worker):
                self._leave(number, worker)
            case StateLost(node, unit):
                self._visited.pop((node, unit), None)
            case _:
                pass

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
            case DropState(node, unit):
                self._check_drop((node, unit))
                self._visited.pop((node, unit), None)
            case Report(number, _, _):
                trial = self._engine.trials.get(number)
                self._expect(trial is not None, 8, f"a report for trial {number}, which was never asked for")
            case EndTrial(number, ending, reason):
                self._expect(ending != "failed" or bool(reason), 8, f"trial {number} failed without a reason")
                self._ended[number] = action

    # --- checks -----------------------------------------------------------------------------------------

    def _check_run(self, run: RunUnit) -> None:
        self._expect(run.worker in self._held, 5, f"{run}: there is no such worker")
        self._expect(run.partition in self._held[run.worker], 5, f"{run}: the worker does not hold its partition")
        self._check_room(run)
        for worker, queue in self._queues.items():
            for other in queue:
                if not isinstance(other, RunUnit) or other.run in self._evaluating or other.node != run.node:
                    continue
                follows = worker == run.worker and other.unit == run.unit - 1
                apart = (run.source, run.unit) in self._visited and (other.source, other.unit) in self._visited
                self._expect(other.unit != run.unit and (follows or apart), 2, f"{run} while {other} is under way")
        self._expect(self._ready_input(run), 2, f"{run}: the state that it starts from is not there")
        visits = self._visits(run)
        self._expect(len(set(visits)) == len(visits), 1, f"{run}: its epoch has visited {visits}")
        if (run.unit + 1) % self._partitions == 0:
            everything = list(range(self._partitions))
            self._expect(sorted(visits) == everything, 1, f"{run}: its epoch ends having visited {visits}")
        self._expect(
            self._is_needed(run.node, run.unit + 1), 6, f"{run}: nobody needs it, or what it gives is stored"
        )

    def _check_room(self, run: RunUnit | Evaluate) -> None:
        queue = self._queues.get(run.worker, [])
        self._expect(len(queue) < self._room, 3, f"{run}: the worker has {len(queue)} runs already")

    def _check_cancel(self, number: int, worker: str) -> None:
        for index, run in enumerate(self._queues.get(worker, [])):
            if run.run == number and index == 0 and isinstance(run, RunUnit) and number not in self._evaluating:
                self._expect(
                    not self._is_needed(run.node, run.unit + 1), 4, f"{run} is cancelled though it is needed"
                )

    def _check_drop(self, spot: Spot) -> None:
        for queue in self._queues.values():
            for run in queue:
                if isinstance(run, Evaluate) or run.run in self._evaluating:
                    unit = run.unit + 1 if isinstance(run, RunUnit) else run.unit
                    self._expect((run.node, unit) != spot, 7, f"state {spot} is dropped while {run} reads it")
                else:
                    self._expect((run.source, run.unit) != spot, 7, f"state {spot} is dropped while {run} needs it")
        for trial in self._engine.trials.values():
            for node, unit in trial.open.values():
                source = self._source(trial, unit)
                self._expect(
                    source != spot or unit in node.reports, 7, f"state {spot} is dropped, but {trial} needs it"
                )
            if trial.ending == "complete":
                last = self._way(trial, trial.until * self._partitions)[-1]
                self._expect(last != spot, 7, f"state {spot} is dropped, but {trial} ended with it")

    def _check_progress(self) -> None:
        working = {partition for name in self._held if name not in self._draining for partition in self._held[name]}
        busy = any(self._queues.values())
        if not busy and len(working) == self._partitions:
            waiting = [trial for trial in self._engine.trials.values() if trial.ending is None]
            self._expect(not waiting, 8, f"{waiting} wait, all workers are idle")

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
            ahead = next(
                r for r in self._queues[run.worker]
                if isinstance(r, RunUnit) and r.node == run.node and r.unit == run.unit - 1
            )  # fmt: skip
            before = self._visits(ahead)
        return (*before, run.partition)

    def _ready_input(self, run: RunUnit) -> bool:
        if run.unit == 0 or (run.source, run.unit) in self._visited:
            return True
        return any(
            isinstance(r, RunUnit) and r.node == run.node and r.unit == run.unit - 1
            for r in self._queues[run.worker]
        )

    def _way(self, trial: Trial, units: int) -> list[Spot]:
        """Return the spots that a trial's first units lead through, from unit 1 on."""
        way = self._engine.plan.way(trial, units)
        return [(node.id, unit) for node, end in way for unit in range(node.start + 1, end + 1)]

    def _source(self, trial: Trial, unit: int) -> Spot | None:
        return next((spot for spot in reversed(self._way(trial, unit)) if spot in self._visited), None)

    def _is_needed(self, node: int, unit: int) -> bool:
        """Return whether an open request lies behind a spot, with nothing stored in between."""
        for trial in self._engine.trials.values():
            for place, end in trial.open.values():
                if end < unit or end in place.reports:
                    continue
                way = self._way(trial, end)
                if way[unit - 1] == (node, unit) and not any(spot in self._visited for spot in way[unit - 1 :]):
                    return True
        return False

    def _expect(self, holds: bool, number: int, message: str) -> None:
        if not holds:
            story = "\n".join(self._story)
            raise InvariantError(f"invariant {number} is broken: {message}\nThe story:\n{story}")

"""What events and actions alone say about an engine: what runs where, and which states are stored."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TypeAlias, final

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.trial import Trial

StateId: TypeAlias = tuple[int, int]  # node and unit of a state


@final
class Observed:
    """Records of queues and states that do not depend on the engine's own; ``InvariantChecker`` updates them.

    Of the engine, it uses trials and the plan only, to know which places a trial passes.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._partitions = engine.settings.partitions
        self.partitions_of: dict[str, tuple[int, ...]] = {}
        self.draining: set[str] = set()
        self.queues: dict[str, list[RunUnit | Evaluate]] = {}
        self.helping: dict[str, RunUnit] = {}  # by worker, the run of another one that it trains together with it
        self.broken: dict[int, str] = {}  # runs that have lost one of their workers, and who leads them
        self.evaluating: set[int] = set()
        self.visited: dict[StateId, tuple[int, ...]] = {}  # stored states, with the partitions of their epoch
        self.will_visit: dict[int, tuple[int, ...]] = {}  # by run
        self.chained: set[int] = set()  # runs that wait for the state of the run ahead of them
        self.cancelled: set[int] = set()
        self.kept: set[StateId] = set()
        self.final_states: dict[int, StateId] = {}  # by trial; one that is extended holds it until it ends again
        self.restoring: set[StateId] = set()  # lost states that trials ended with
        self.taken: set[StateId] = set()  # places from which another driver trains on
        self._paths: dict[tuple[int, tuple[str, str], int], list[StateId]] = {}

    def is_under_way(self, node: int, unit: int) -> bool:
        """Return whether a unit is being trained or queued on a worker."""
        return any(
            isinstance(run, RunUnit) and run.run not in self.evaluating and (run.node, run.unit) == (node, unit)
            for queue in self.queues.values()
            for run in queue
        )

    def under_evaluation(self) -> set[StateId]:
        """Return the states that workers evaluate or are about to evaluate."""
        found: set[StateId] = set()
        for run in (run for queue in self.queues.values() for run in queue):
            if isinstance(run, Evaluate):
                found.add((run.node, run.unit))
            elif run.run in self.evaluating:
                found.add((run.node, run.unit + 1))
        return found

    def being_restored(self) -> Iterator[tuple[Trial, StateId]]:
        """Yield complete trials whose final state was lost and has to be retrained, with that state."""
        for number, state_id in self.final_states.items():
            trial = self.engine.trials[number]
            if state_id in self.restoring and state_id not in self.visited and trial.onward is None:
                yield trial, state_id

    def end_run(self, number: int, worker: str) -> None:
        """Remove a run from its worker's queue, and release the workers that help it."""
        self.evaluating.discard(number)
        self.release(number)
        if worker in self.queues:
            self.queues[worker] = [run for run in self.queues[worker] if run.run != number]

    def release(self, number: int) -> None:
        """Let the workers that help a run be free again."""
        self.helping = {worker: run for worker, run in self.helping.items() if run.run != number}

    def lose_worker(self, worker: str) -> None:
        """Remove a worker; a run that it helped is broken, and those that it led are gone."""
        self.partitions_of.pop(worker, None)
        for run in self.queues.pop(worker, []):
            self.release(run.run)
        self.draining.discard(worker)
        helped = self.helping.pop(worker, None)
        if helped is not None:
            self.broken[helped.run] = helped.worker
            self.release(helped.run)

    def visits(self, run: RunUnit) -> tuple[int, ...]:
        """Return the partitions that the run's epoch will have visited after the run."""
        if run.unit % self._partitions == 0:
            return (run.partition,)
        before = self.visited.get((run.source, run.unit))
        if before is None:
            ahead = self.runs_ahead(run)
            assert ahead is not None
            before = self.will_visit[ahead.run]
        return (*before, run.partition)

    def would_visit(self, number: int, unit: int) -> tuple[int, ...]:
        """Return the partitions that the epoch of a place has visited, in strict order."""
        node = self.engine.plan.nodes[number]
        begin = unit - unit % self._partitions if unit % self._partitions else unit - self._partitions
        while node.start > begin and node.parent is not None:
            node = node.parent
        return tuple((node.rotation + at) % self._partitions for at in range(begin, unit))

    def is_input_stored(self, run: RunUnit) -> bool:
        """Return whether the state that a run starts from is stored."""
        return run.unit == 0 or (run.source, run.unit) in self.visited

    def runs_ahead(self, run: RunUnit) -> RunUnit | None:
        """Return the run on the same worker whose result is the input of this one."""
        for other in self.queues[run.worker]:
            if isinstance(other, RunUnit) and (other.node, other.unit) == (run.node, run.unit - 1):
                return other
        return None

    def path(self, trial: Trial, units: int) -> list[StateId]:
        """Return the states that a trial's first units pass, from unit 1 on."""
        path = self._paths.get((trial.number, trial.base, units))
        if path is None:
            nodes = self.engine.plan.path_with_ends(trial, units)
            path = [(node.id, unit) for node, end in nodes for unit in range(node.start + 1, end + 1)]
            self._paths[trial.number, trial.base, units] = path
        return path

    def live(self) -> set[int]:
        """Return the nodes of all trials that have not ended."""
        trials = (trial for trial in self.engine.trials.values() if trial.ending is None)
        return {node for trial in trials for node in self.nodes(trial)}

    def nodes(self, trial: Trial) -> set[int]:
        """Return the nodes that a trial passes within its budget."""
        return {node for node, _ in self.path(trial, trial.until * self._partitions)}

    def source(self, trial: Trial, unit: int) -> StateId | None:
        """Return the deepest stored state at or before a unit of a trial."""
        return next((state_id for state_id in reversed(self.path(trial, unit)) if state_id in self.visited), None)

    def is_needed(
        self, node: int, unit: int, coming: Set[StateId] = frozenset(), evaluated: Set[StateId] = frozenset()
    ) -> bool:
        """Return whether an open request needs a state, and no later state on its path is stored or coming.

        A request whose state is being evaluated needs no training, even if the state was lost meanwhile.
        """
        for trial in self.engine.trials.values():
            for place, end in trial.open.values():
                if end < unit or end in place.reports or (place.id, end) in evaluated:
                    continue
                path = self.path(trial, end)
                if path[unit - 1] != (node, unit) or path[unit - 1] in self.visited:
                    continue
                if not any(state_id in self.visited or state_id in coming for state_id in path[unit:]):
                    return True
        for trial, last in self.being_restored():
            if last[1] < unit:
                continue
            path = self.path(trial, last[1])
            if path[unit - 1] == (node, unit) and not any(
                s in self.visited or s in coming for s in path[unit - 1 :]
            ):
                return True
        return False

    def coming(self) -> set[StateId]:
        """Return the states that runs under path will give."""
        idle = self.chained | self.cancelled | self.evaluating
        runs = (run for queue in self.queues.values() for run in queue)
        return {(run.node, run.unit + 1) for run in runs if isinstance(run, RunUnit) and run.run not in idle}

    def waits_for_other_driver(self, trial: Trial) -> bool:
        """Return whether another driver trains on a trial's path."""
        if not self.taken:
            return False
        units = max((unit for _, unit in trial.open.values()), default=0)
        return any((node, unit - 1) in self.taken for node, unit in self.path(trial, units))

"""Dispatch: idle workers and ready cursors meet.

Every worker that has room gets the best work there is for it: an evaluation that somebody waits for, else the
first ready cursor in the policy's order, else nothing. A busy worker may be given its next unit ahead, so that it
never waits for the driver.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import final

from hoptree.core.actions import Action, Evaluate, RunUnit
from hoptree.core.barriers import Barriers
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import ActiveLineage, Node, Run, State
from hoptree.core.policies import Policy
from hoptree.core.ready import ReadyQueue
from hoptree.core.settings import Settings
from hoptree.core.states import StateBooks
from hoptree.core.workers import Worker, Workers


@final
class Dispatcher:
    """Hands out work; ``fresh`` and ``freed`` are the cursors and workers that came since the last time."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        demand: OpenWork,
        workers: Workers,
        gates: Barriers,
        states: StateBooks,
        actions: list[Action],
    ) -> None:
        self._settings = settings
        self._partitions = settings.partitions
        self._free = settings.order == "free"
        self._policy = policy
        self._demand = demand
        self._workers = workers
        self._gates = gates
        self._states = states
        self._actions = actions
        self.ready = ReadyQueue(settings.partitions, policy, free=self._free)
        self.runs: dict[int, Run] = {}
        self.issued = 0
        self.fresh: list[ActiveLineage] = []
        self.freed: list[Worker] = []
        self._offered: dict[int, None] = {}  # partitions for which something has come

    def take_in(self) -> None:
        """Line up what has come: with every event, so that no decision is long when thousands of trials begin."""
        if self.fresh:
            fresh, self.fresh = self.fresh, []
            for cursor in fresh:
                if cursor.available:
                    for partition in self.ready.push(cursor):
                        self._offered[partition] = None

    def dispatch(self) -> None:
        """Give work to all who have room."""
        evaluations = self._states.evaluations
        for state in [state for state in evaluations if state.unit not in state.node.requests]:
            evaluations.remove(state)  # nobody waits for it any more
            self._states.release(state)
        self.take_in()
        offered, self._offered = self._offered, {}
        if self._free:
            self._match()
        elif self.freed:
            freed, self.freed = self.freed, []
            for worker in freed:
                self._fill(worker)
        if self._workers.idle_count:
            if not self._free:
                for partition in offered:
                    idle = self._workers.idle[partition]
                    while idle and self._fill(next(iter(idle.values()))):
                        pass
            while evaluations and self._workers.idle_count:
                self._fill(self._workers.any_idle())

    def is_evaluating(self, node: Node, unit: int) -> bool:
        """Return whether a state's metrics are being computed, or about to be."""
        computed = (run.state for run in self.runs.values() if run.evaluating)
        return any(
            state is not None and state.node is node and state.unit == unit
            for state in (*self._states.evaluations, *computed)
        )

    # --- strict order: every unit has its partition, every worker takes its best --------------------------

    def _fill(self, worker: Worker) -> bool:
        """Give a worker work up to its room; return whether it got any."""
        if worker.draining or worker.gone:
            return False
        got = False
        if not worker.queue:
            if not self._start_best(worker):
                self._workers.set_idle(worker)
                return False
            got = True
        return self._fill_ahead(worker) or got

    def _start_best(self, worker: Worker) -> bool:
        if self._states.evaluations:
            self._start_evaluation(worker, self._next_evaluation(worker))
            return True
        best = self.ready.best(worker.partitions) if self.ready.count else None
        if best is None:
            return False
        cursor, partition = best[0].cursor, best[1]
        last = worker.last
        if last is not None and last is not cursor and last.sequence >= 0 and self._may_stay(last, cursor):
            here = self._here(last, worker)
            if here >= 0:
                cursor, partition = last, here
        self._start(worker, cursor, partition)
        return True

    # --- free order: workers and cursors choose each other ------------------------------------------------

    def _match(self) -> None:
        """Serve whoever has most left to do first, be it a worker or a cursor, with the other side's longest.

        A worker that is the bottleneck is kept busy, and a lineage that is does not wait.
        """
        workers = self._workers
        for worker in self.freed:
            if not worker.queue and not worker.gone and not worker.draining:
                if self._states.evaluations:
                    self._start_evaluation(worker, self._next_evaluation(worker))
                else:
                    workers.set_idle(worker)
        self.freed = []
        if not workers.idle_count or not self.ready.count:
            return
        offers = [offer for worker in workers.all_idle() if (offer := self._offer(worker)) is not None]
        heapify(offers)
        while offers:
            _, _, _, sequence, _, worker, cursor, partition = heappop(offers)
            if cursor.sequence == sequence:
                self._start(worker, cursor, partition)
                self._fill_ahead(worker)
            elif (offer := self._offer(worker)) is not None:
                heappush(offers, offer)

    def _offer(self, worker: Worker) -> tuple[float, float, int, int, str, Worker, ActiveLineage, int] | None:
        best = self.ready.best(worker.partitions)
        if best is None:
            return None
        (rank, distance, sequence, cursor), partition = best
        last = worker.last
        if last is not None and last is not cursor and last.sequence >= 0 and self._may_stay(last, cursor):
            here = self._here(last, worker)
            if here >= 0:
                cursor, partition, sequence = last, here, last.sequence
        load = sum(self._demand.left(p) for p in worker.partitions) / worker.speed
        return -max(-rank, load), -min(-rank, load), distance, sequence, worker.name, worker, cursor, partition

    # --- ahead and affinity -------------------------------------------------------------------------------

    def _fill_ahead(self, worker: Worker) -> bool:
        """Queue a second unit: the same lineage's next one if it may stay, else one that nobody misses."""
        if not self._settings.ahead or self._policy.selective or len(worker.queue) != 1:
            return False
        first = worker.queue[0]
        cursor = first.cursor
        if cursor is None or first.evaluating:
            return False
        best = self.ready.best(worker.partitions) if self.ready.count else None
        partition = -1 if first.cancelled else self._next_here(cursor, worker)
        if partition >= 0 and (best is None or self._may_stay(cursor, best[0].cursor)):
            self._start(worker, cursor, partition)
            return True
        plenty = self.ready.count >= len(self._workers.by_name)
        if best is not None and plenty and self._can_wait(best[0].cursor, cursor.node.cost):
            self._start(worker, best[0].cursor, best[1])
            return True
        return False

    def _next_here(self, cursor: ActiveLineage, worker: Worker) -> int:
        """Return the partition after the one under way, if the lineage surely goes on and it is here; else -1."""
        unit = cursor.unit + 1
        node = cursor.node
        ends_epoch = unit % self._partitions == 0
        if self._free or len(cursor.runs) != 1 or len(node.cursors) != 1 or (ends_epoch and self._gates.any):
            return -1
        if not node.stops or node.stops[-1] <= unit or unit in node.taken:
            return -1
        partition = ((node.rotation if ends_epoch else cursor.order) + unit) % self._partitions
        return partition if partition in worker.held else -1

    def _here(self, cursor: ActiveLineage, worker: Worker) -> int:
        """Return a partition that a ready cursor could go on with on this worker, or -1."""
        if not self._free:
            return cursor.partition if cursor.partition in worker.held else -1
        return next((p for p in worker.partitions if not cursor.order >> p & 1), -1)

    def _may_stay(self, cursor: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether going on with one lineage delays no longer path."""
        if not self._settings.affinity or self._policy.selective:
            return False
        if other.peak - other.unit * other.node.cost <= cursor.peak - cursor.unit * cursor.node.cost:
            return True
        return self._can_wait(other, cursor.node.cost)

    def _can_wait(self, cursor: ActiveLineage, time: float) -> bool:
        """Return whether a path ends in time although it waits: the backlog, shared by all workers, outlasts it."""
        path = cursor.peak - cursor.unit * cursor.node.cost
        return path + time <= self._demand.backlog / len(self._workers.by_name)

    # --- starting -----------------------------------------------------------------------------------------

    def _start(self, worker: Worker, cursor: ActiveLineage, partition: int) -> None:
        self.ready.take(cursor)
        node = cursor.node
        chained = len(cursor.runs)
        unit = cursor.unit + chained
        run = self._give(worker, Run(self.issued, worker.name, node, unit, cursor))
        run.partition = partition
        run.evaluate = unit + 1 in node.requests and unit + 1 not in node.reports
        cursor.runs.append(run)
        if self._policy.selective:
            self._policy.took(cursor, partition)
        source = node.parent if unit == node.start and node.parent is not None else node
        home = worker.name if chained else cursor.state.home if cursor.state is not None else ""
        self._actions.append(
            RunUnit(
                run.number,
                worker.name,
                node.id,
                source.id,
                unit,
                partition,
                unit // self._partitions,
                node.key,
                node.values,
                home,
                node.built_from,
                source.key,
                node.lane,
                run.evaluate,
            )
        )

    def _start_evaluation(self, worker: Worker, state: State) -> None:
        run = self._give(worker, Run(self.issued, worker.name, state.node, state.unit, None))
        run.state = state
        node = state.node
        self._actions.append(
            Evaluate(run.number, worker.name, node.id, state.unit, state.key, node.key, node.built_from)
        )

    def _give(self, worker: Worker, run: Run) -> Run:
        self.issued += 1
        self.runs[run.number] = run
        worker.queue.append(run)
        self._workers.set_busy(worker)
        return run

    def _next_evaluation(self, worker: Worker) -> State:
        for state in self._states.evaluations:
            if state.home == worker.name:
                self._states.evaluations.remove(state)
                return state
        return self._states.evaluations.popleft()

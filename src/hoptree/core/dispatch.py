"""Dispatch: assign ready lineages to idle workers.

Each worker with room gets the best work available to it: an evaluation that is due, else the first ready lineage in
the policy's order. A busy worker may get its next unit ahead of time, so that it never waits for the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, final

from hoptree.core.actions import Action, Evaluate, RunUnit
from hoptree.core.barriers import Barriers
from hoptree.core.gang_formation import GangFormation
from hoptree.core.gang_planner import GangPlanner
from hoptree.core.nodes import ActiveLineage, Node, Run, State
from hoptree.core.open_work import OpenWork
from hoptree.core.policies import Policy
from hoptree.core.ready import ReadyQueue
from hoptree.core.settings import Settings
from hoptree.core.states import StateRegistry
from hoptree.core.workers import Worker, Workers

_FEW: Final = 4  # lineages for each worker, below which dry runs decide: soon some workers may be idle


@final
class Dispatcher:
    """Assigns work; ``fresh`` and ``freed`` are lineages and workers that became available since the last step."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        open_work: OpenWork,
        workers: Workers,
        barriers: Barriers,
        states: StateRegistry,
        actions: list[Action],
    ) -> None:
        self._settings = settings
        self._partitions = settings.partitions
        self._free = settings.order == "free"
        self._policy = policy
        self._open_work = open_work
        self.workers = workers
        self._barriers = barriers
        self._states = states
        self._actions = actions
        self.ready = ReadyQueue(settings.partitions, policy, free=self._free)
        self.gangs = GangFormation(workers, free=self._free)
        self.now = 0.0
        self.runs: dict[int, Run] = {}
        self.issued = 0
        self.fresh: list[ActiveLineage] = []
        self.freed: list[Worker] = []
        self._offered: dict[int, None] = {}  # partitions for which a lineage became ready

    def take_in(self) -> None:
        """Enqueue new lineages, with every event: so no single step takes long when thousands of trials begin."""
        if self.fresh:
            fresh, self.fresh = self.fresh, []
            for lineage in fresh:
                if lineage.status == "idle":
                    for partition in self.ready.push(lineage):
                        self._offered[partition] = None

    def dispatch(self) -> None:
        """Assign work to all workers with room."""
        evaluations = self._states.evaluations
        for state in [state for state in evaluations if state.unit not in state.node.requests]:
            evaluations.remove(state)  # no trial waits for it any more
            self._states.release(state)
        self.take_in()
        offered, self._offered = self._offered, {}
        if self.gangs.planner is not None and self._follow_dry_run(self.gangs.planner):
            return
        if self._free:
            self._match()
        elif self.freed:
            freed, self.freed = self.freed, []
            if self.gangs.allotment is not None:  # those that come first may need the others
                for worker in freed:
                    if not worker.queue and not worker.draining and not worker.gone:
                        self.workers.set_idle(worker)
            for worker in freed:
                self._fill(worker)
        if self.workers.idle_count:
            if not self._free:
                for partition in offered:
                    idle = self.workers.idle[partition]
                    while idle and self._fill(next(iter(idle.values()))):
                        pass
            while evaluations and self.workers.idle_count:
                self._fill(self.workers.any_idle())
            if self.gangs.is_short and not self._free:  # workers may have left for which it waited
                for worker in self.workers.all_idle():
                    self._fill(worker)

    def is_evaluating(self, node: Node, unit: int) -> bool:
        """Return whether a state is being evaluated or queued for evaluation."""
        computed = (run.state for run in self.runs.values() if run.status == "evaluating")
        return any(
            state is not None and state.node is node and state.unit == unit
            for state in (*self._states.evaluations, *computed)
        )

    def end(self, run: Run) -> None:
        """Remove a run that has ended; its workers have room again."""
        worker = self.workers.by_name[run.worker]
        del self.runs[run.number]
        worker.queue.remove(run)
        self.freed.append(worker)
        if run.crew:
            self.release_crew(run)

    def release_crew(self, run: Run) -> None:
        """Let the workers that have trained a unit together with its leader take other runs."""
        for name in run.crew:
            member = self.workers.by_name.get(name)
            if member is not None:
                member.queue.remove(run)
                self.freed.append(member)
        run.crew = ()

    # --- gangs: few lineages are left for the workers -----------------------------------------------------

    def _follow_dry_run(self, planner: GangPlanner) -> bool:
        """Start what a dry run of the present state starts now; return whether that is all that should start.

        Workers may stay idle, because a gang waits for others; but never all of them.
        """
        workers, ready = self.workers, self.ready
        if not ready.count or ready.count + len(self.runs) >= _FEW * len(workers.by_name):
            return False
        for worker in self.freed:
            if not worker.queue and not worker.draining and not worker.gone:
                workers.set_idle(worker)
        while self._states.evaluations and workers.idle_count:
            worker = workers.any_idle()
            self._start_evaluation(worker, self._next_evaluation(worker))
        if not workers.idle_count:
            self.freed = []
            return True
        lineages = ready.lineages()
        if not all(self.gangs.is_plain(lineage) for lineage in lineages):
            return False  # the layouts of their models need a certain number of workers
        starts = planner.starts(lineages, list(self.runs.values()), self.now)
        if starts is None:
            return False
        for lineage, partition, (leader, *crew) in starts:
            self._start(leader, lineage, partition, crew)
        self._actions += planner.copies
        if not self.runs:
            return False
        self.freed = []
        return True

    # --- strict order: every unit has its partition, every worker takes its best --------------------------

    def _fill(self, worker: Worker) -> bool:
        """Assign work to a worker while it has room; return whether it got any."""
        if worker.draining or worker.gone:
            return False
        got = False
        if not worker.queue:
            if not self._start_best(worker):
                self.workers.set_idle(worker)
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
        lineage, partition = best[0].lineage, best[1]
        last = worker.last
        if last is not None and last is not lineage and last.sequence >= 0 and self._may_stay(last, lineage):
            here = self._here(last, worker)
            if here >= 0:
                lineage, partition = last, here
        gangs = self.gangs
        if not gangs.are_trivial:
            if gangs.short is not None and gangs.is_short and gangs.short[1] in worker.held:
                lineage, partition = gangs.short
            if not gangs.has_enough(worker, lineage, partition):
                gangs.short = lineage, partition  # the next worker that is free helps
                return False
        self._start(worker, lineage, partition)
        return True

    # --- free order: any worker may take any partition that a lineage has left ----------------------------

    def _match(self) -> None:
        """Match workers and lineages, those with the most work left first.

        So a worker that is the bottleneck stays busy, and a lineage that is the bottleneck does not wait.
        """
        workers = self.workers
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
            _, _, _, sequence, _, worker, lineage, partition = heappop(offers)
            if not worker.idle:  # it helps another one by now
                continue
            if lineage.sequence == sequence:
                self._start(worker, lineage, partition)
                self._fill_ahead(worker)
            elif (offer := self._offer(worker)) is not None:
                heappush(offers, offer)

    def _offer(self, worker: Worker) -> tuple[float, float, int, int, str, Worker, ActiveLineage, int] | None:
        best = self.ready.best(worker.partitions)
        if best is None:
            return None
        (rank, distance, sequence, lineage), partition = best
        last = worker.last
        if last is not None and last is not lineage and last.sequence >= 0 and self._may_stay(last, lineage):
            here = self._here(last, worker)
            if here >= 0:
                lineage, partition, sequence = last, here, last.sequence
        load = sum(self._open_work.left(p) for p in worker.partitions) / worker.speed
        return -max(-rank, load), -min(-rank, load), distance, sequence, worker.name, worker, lineage, partition

    # --- ahead and affinity -------------------------------------------------------------------------------

    def _fill_ahead(self, worker: Worker) -> bool:
        """Queue a second unit: the lineage's next one if it may stay, else one that no other worker needs now."""
        if not self._settings.ahead or self._policy.selective or len(worker.queue) != 1:
            return False
        first = worker.queue[0]
        lineage = first.lineage
        if lineage is None or first.evaluating or first.crew or self.gangs.is_short:
            return False
        plenty = self.ready.count >= len(self.workers.by_name)
        if self.gangs.allotment is not None and not plenty:
            return False  # another worker may be free for it then
        best = self.ready.best(worker.partitions) if self.ready.count else None
        partition = -1 if first.status == "cancelling" else self._next_here(lineage, worker)
        if partition >= 0 and (best is None or self._may_stay(lineage, best[0].lineage)):
            self._start(worker, lineage, partition)
            return True
        if (
            best is not None
            and plenty
            and self._can_wait(best[0].lineage, lineage.node.cost)
            and not self.gangs.layouts.needs_several(best[0].lineage.node)
        ):
            self._start(worker, best[0].lineage, best[1])
            return True
        return False

    def _next_here(self, lineage: ActiveLineage, worker: Worker) -> int:
        """Return the partition of the unit after the one under way if it is certain and held here; else -1."""
        unit = lineage.unit + 1
        node = lineage.node
        ends_epoch = unit % self._partitions == 0
        if self._free or len(lineage.runs) != 1 or len(node.active) != 1 or (ends_epoch and self._barriers.any):
            return -1
        if not node.targets or node.targets[-1] <= unit or unit in node.taken:
            return -1
        partition = ((node.rotation if ends_epoch else lineage.order) + unit) % self._partitions
        return partition if partition in worker.held else -1

    def _here(self, lineage: ActiveLineage, worker: Worker) -> int:
        """Return a partition of this worker that a ready lineage could train on next, or -1."""
        if not self._free:
            return lineage.partition if lineage.partition in worker.held else -1
        return next((p for p in worker.partitions if not lineage.order >> p & 1), -1)

    def _may_stay(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether a worker may continue with a lineage without delaying a longer path."""
        if not self._settings.affinity or self._policy.selective:
            return False
        if other.peak - other.unit * other.node.cost <= lineage.peak - lineage.unit * lineage.node.cost:
            return True
        return self._can_wait(other, lineage.node.cost)

    def _can_wait(self, lineage: ActiveLineage, time: float) -> bool:
        """Return whether a path can wait: the backlog, divided among all workers, takes longer than it does."""
        path = lineage.peak - lineage.unit * lineage.node.cost
        return path + time <= self._open_work.backlog / len(self.workers.by_name)

    # --- starting -----------------------------------------------------------------------------------------

    def _start(
        self, worker: Worker, lineage: ActiveLineage, partition: int, crew: Sequence[Worker] | None = None
    ) -> None:
        self.ready.take(lineage)
        node = lineage.node
        chained = len(lineage.runs)
        unit = lineage.unit + chained
        run = self._assign(worker, Run(self.issued, worker.name, node, unit, lineage))
        run.partition = partition
        run.evaluate = unit + 1 in node.requests and unit + 1 not in node.reports
        run.began = self.now
        if not self.gangs.are_trivial:
            candidate = self.gangs.choose(lineage, partition, alone=chained > 0)
            if crew is None:
                crew = () if chained else self.gangs.crew(worker, run, candidate, self.ready.count)
            self.gangs.form(run, candidate, crew)
        lineage.runs.append(run)
        lineage.change("start")
        if self._policy.selective:
            self._policy.took(lineage, partition)
        source = node.parent if unit == node.start and node.parent is not None else node
        home = worker.name if chained else lineage.state.home if lineage.state is not None else ""
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
                node.tree,
                run.evaluate,
                run.crew,
                run.layout,
            )
        )

    def _start_evaluation(self, worker: Worker, state: State) -> None:
        run = self._assign(worker, Run(self.issued, worker.name, state.node, state.unit, None))
        run.state = state
        node = state.node
        self._actions.append(
            Evaluate(run.number, worker.name, node.id, state.unit, state.key, node.key, node.built_from)
        )

    def _assign(self, worker: Worker, run: Run) -> Run:
        self.issued += 1
        self.runs[run.number] = run
        worker.queue.append(run)
        self.workers.set_busy(worker)
        return run

    def _next_evaluation(self, worker: Worker) -> State:
        for state in self._states.evaluations:
            if state.home == worker.name:
                self._states.evaluations.remove(state)
                return state
        return self._states.evaluations.popleft()

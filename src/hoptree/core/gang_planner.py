"""Which units begin now, with how many workers: the first starts of the best dry run from the present state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple, final

from hoptree.core.actions import CopyPartitions
from hoptree.core.allotment import Allotment
from hoptree.core.dry_run import DryRun, PlannedStart
from hoptree.core.gang_plan import GangPlan, planned_starts
from hoptree.core.gang_rules import lower_bound
from hoptree.core.gang_tasks import MOST_UNITS, GangProblem, GangSchedule, Site, Stage, Task
from hoptree.core.nodes import ActiveLineage, Node, Run
from hoptree.core.open_work import OpenWork
from hoptree.core.replication import WORTH, Replication
from hoptree.core.settings import Settings
from hoptree.core.workers import Worker, Workers

_MOST_CHOICES: Final = 64  # lineages times kinds: with more, a dry run would take too long
_MOST_COPIES: Final = 4  # idle pools for which copies are tried at a decision, for the same reason


class GangStart(NamedTuple):
    """A unit that begins now: its leader comes first."""

    lineage: ActiveLineage
    partition: int
    workers: tuple[Worker, ...]


@final
class GangPlanner:
    """Makes a problem from the state of the engine, and lets a dry run decide."""

    def __init__(
        self,
        settings: Settings,
        open_work: OpenWork,
        workers: Workers,
        allotment: Allotment,
        dry_run: DryRun,
        replication: Replication | None = None,
        plan: GangPlan = (),
    ) -> None:
        self.plan = plan  # a solved schedule, until it is adopted
        self.copies: list[CopyPartitions] = []
        self.replication = replication
        self._partitions = settings.partitions
        self._open_work = open_work
        self._workers = workers
        self._allotment = allotment
        self._dry_run = dry_run
        self._free = settings.order == "free"
        self._turn = 0  # of the idle pools, where the next decision goes on

    def starts(self, ready: Sequence[ActiveLineage], runs: Sequence[Run], now: float) -> list[GangStart] | None:
        """Return what begins now; None if there are too many choices, or if widths or holders are unknown."""
        self.copies = []
        layout = _Layout(self._workers, self._partitions)
        if self.replication is None:  # the rule that tries widths decides, also if there are too few workers
            layout.most = inf
        choices = len(layout.kinds or ()) if self._free else 1
        if layout.kinds is None or (len(ready) + len(runs)) * choices > _MOST_CHOICES:
            return None
        training = [run.lineage for run in runs if run.lineage is not None and run.lineage.runs]
        lineages = [*ready, *dict.fromkeys(training)]
        made = self._problem(layout, lineages, now)
        if made is None:
            return None
        problem, by_task = made
        if self.plan:
            self._adopt(layout, problem, lineages)
        best = self._dry_run.best(problem, layout.names)
        if self.replication is not None:
            self._copy(self.replication, layout, lineages, now, best)
        return self._begin(layout, problem, by_task, best)

    def _adopt(self, layout: _Layout, problem: GangProblem, lineages: Sequence[ActiveLineage]) -> None:
        """Begin with the solved schedule, once all its configs and nodes are there."""
        task_of: dict[str, int] = {}
        roots = [index for index, task in enumerate(problem.tasks) if not task.is_child]
        for index, lineage in zip(roots, lineages, strict=True):
            task_of.setdefault(lineage.node.origin.key, index)
        machines = list(dict.fromkeys(pool[0].machine for pool in layout.pools))
        if all(visit.config in task_of and visit.machine < len(machines) for visit in self.plan):
            starts = planned_starts(
                self.plan, problem, task_of, lambda pool: machines.index(layout.pools[pool][0].machine)
            )
            self._dry_run.adopt(starts, layout.names)
            self.plan = ()

    def _problem(
        self, layout: _Layout, lineages: Sequence[ActiveLineage], now: float
    ) -> tuple[GangProblem, dict[int, ActiveLineage]] | None:
        """Return the problem, and which tasks are ready lineages; None if too little is known about widths."""
        assert layout.kinds is not None
        quota = max(1, MOST_UNITS // max(1, len(lineages)))
        tasks: list[Task] = []
        by_task: dict[int, ActiveLineage] = {}
        for lineage in lineages:
            if lineage.runs:
                time = max((self._end(run, now) for run in lineage.runs), default=0.0)
            else:
                by_task[len(tasks)] = lineage
                time = 0.0
            if not self._add(tasks, layout, lineage, time, quota):
                return None
        free_at = tuple(tuple(sorted(self._free_at(worker, now) for worker in pool)) for pool in layout.pools)
        return GangProblem(tuple(tasks), free_at, tuple(layout.kinds)), by_task

    def _copy(
        self,
        replication: Replication,
        layout: _Layout,
        lineages: Sequence[ActiveLineage],
        now: float,
        best: GangSchedule,
    ) -> None:
        """Let a node of which all workers are idle take copies, if that shortens the rest of the run enough."""
        goal = WORTH * best.makespan
        needed: dict[int, float] = {}
        for lineage in lineages:
            work = lineage.peak - lineage.unit * lineage.node.cost
            for partition in range(self._partitions):
                needed[partition] = needed.get(partition, 0.0) + work
        idle: list[tuple[list[Worker], tuple[int, ...]]] = []
        for index, pool in enumerate(layout.pools):
            first = min((placed.begin for placed in best.placed if index in placed.site), default=inf)
            if first > 1e-9 * best.makespan and all(worker.idle for worker in pool):
                copies = replication.affordable(pool[0].name, pool[0].partitions, needed)
                idle += [(pool, copies)] if copies else []
        begin = self._turn % len(idle) if len(idle) > _MOST_COPIES else 0
        self._turn = begin + _MOST_COPIES
        for pool, copies in [*idle[begin:], *idle[:begin]][:_MOST_COPIES]:
            wider = _Layout(self._workers, self._partitions, {pool[0].name: copies})
            made = self._problem(wider, lineages, now)
            if made is None or lower_bound(made[0]) > goal:
                continue
            if DryRun().best(made[0], wider.names).makespan <= goal:
                names = tuple(worker.name for worker in pool)
                replication.ordered(names, copies)
                self.copies.append(CopyPartitions(names, copies))
                return  # others follow at the next decision, when it is known what this one changes

    def _begin(
        self, layout: _Layout, problem: GangProblem, by_task: dict[int, ActiveLineage], best: GangSchedule
    ) -> list[GangStart]:
        """Return the starts of a schedule that begin now, with their workers."""
        found: list[GangStart] = []
        soon = 1e-9 * best.makespan
        for placed in sorted(best.placed, key=lambda placed: placed.begin):
            if placed.begin > soon:
                break
            chosen = by_task.get(placed.start.task)
            start = chosen and self._choose(layout, chosen, placed.start.kind, placed.site, placed.start.width)
            if start:
                for worker in start.workers:
                    layout.taken.add(worker.name)
                found.append(start)
                key = problem.tasks[placed.start.task].key
                self._dry_run.started(PlannedStart(key, placed.start.kind, placed.start.width))
        return found

    def _choose(
        self, layout: _Layout, lineage: ActiveLineage, kind: int, site: Site, width: int
    ) -> GangStart | None:
        """Return a start with idle workers of a site; None if too few are idle, because a unit takes longer."""
        idle = [w for pool in site for w in layout.pools[pool] if w.idle and w.name not in layout.taken]
        wanted: Sequence[int] = (lineage.partition,)
        if self._free:
            turns = ((lineage.partition + turn) % self._partitions for turn in range(self._partitions))
            wanted = [p for p in turns if not lineage.order >> p & 1]
        partition = next((p for p in wanted if layout.kind_of[p] == kind), -1)
        if partition < 0 or len(idle) < width:
            return None
        home = lineage.state.home if lineage.state is not None else ""
        idle.sort(key=lambda worker: worker.name != home)
        return GangStart(lineage, partition, tuple(idle[:width]))

    # --- the problem --------------------------------------------------------------------------------------

    def _end(self, run: Run, now: float) -> float:
        """Return the expected seconds from now until a run has ended."""
        if run.evaluating or run.lineage is None:
            return 0.0
        speeds = self._allotment.speeds(run.node) or {}
        return max(0.0, run.began + run.node.cost / speeds.get(1 + len(run.crew), 1.0) - now)

    def _free_at(self, worker: Worker, now: float) -> float:
        if not worker.queue:
            return 0.0
        first, *later = worker.queue
        return self._end(first, now) + sum(run.node.cost for run in later)

    def _add(self, tasks: list[Task], layout: _Layout, lineage: ActiveLineage, time: float, quota: int) -> bool:
        """Add the task of an active lineage, and those that begin where it ends."""
        node = lineage.node
        ahead = [other.unit for other in node.active if other.unit > lineage.unit]
        begin = lineage.unit + len(lineage.runs)
        rotation = lineage.order
        if self._free and lineage.runs:
            for run in lineage.runs:
                rotation |= 1 << run.partition
        return self._add_node(tasks, layout, node, begin, min(ahead, default=None), rotation, time, quota) >= 0

    def _add_node(
        self,
        tasks: list[Task],
        layout: _Layout,
        node: Node,
        begin: int,
        limit: int | None,
        order: int,
        time: float,
        quota: int,
        *,
        is_child: bool = False,
    ) -> int:
        """Add the units of a node from one on, and its waiting children; return the task's index, or -1."""
        speeds = self._allotment.speeds(node, layout.most, hopeful=layout.hopeful)
        if speeds is None:
            return -1
        targets = [target for target in node.targets if target > begin and (limit is None or target <= limit)]
        last = targets[-1] if targets else begin
        end = min(last, begin + quota)
        index = len(tasks)
        tasks.append(Task((0, 0), 1.0, {1: 1.0}, 0.0, ()))  # children come after it
        children: list[tuple[int, int]] = []
        left = quota - (end - begin)
        for target in [begin, *targets]:
            for child in node.waiters.get(target, ()):
                if target > end or left <= 0:
                    break
                turn = 0 if self._free else _rotation(child, child.start, self._partitions)
                if self._free and child.start % self._partitions:
                    turn = order
                added = self._add_node(tasks, layout, child, child.start, None, turn, 0.0, left, is_child=True)
                if added < 0:
                    return -1
                children.append((target - begin, added))
                left -= tasks[added].units
        beyond = 0.0
        if end < last:
            beyond = self._open_work.longest(node, end)
        stages = tuple(self._stages(layout, node, begin, end, order))
        task = Task((node.id, last), node.cost, speeds, time, stages, tuple(children), beyond, is_child)
        tasks[index] = replace(task, cost=max(node.cost, 1e-9))
        return index

    def _stages(self, layout: _Layout, node: Node, begin: int, end: int, order: int) -> Iterator[Stage]:
        """Yield the units by kind: in free order an epoch is one stage, in strict order the route is fixed."""
        count = self._partitions
        if not self._free:
            for unit in range(begin, end):
                turn = order if unit < begin - begin % count + count else node.rotation
                yield ((layout.kind_of[(turn + unit) % count], 1),)
            return
        unit = begin
        while unit < end:
            inside = unit % count
            units = [p for p in range(count) if not (inside and order >> p & 1)]
            if len(units) != count - inside:  # a branch in mid-epoch, whose parent is not there yet
                units = list(range(count - inside))
            units = units[: end - unit]
            kinds: dict[int, int] = {}
            for partition in units:
                kinds[layout.kind_of[partition]] = kinds.get(layout.kind_of[partition], 0) + 1
            yield tuple(kinds.items())
            unit += len(units)


@final
class _Layout:
    """Workers by pool, and partitions by kind; ``kinds`` is None if nobody holds some partition."""

    def __init__(
        self, workers: Workers, partitions: int, copies: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """With ``copies``, the pool of a worker is taken to hold more partitions than it does.

        Then a width that cannot be tried without them is expected to pay: else it would never be tried.
        """
        grouped: dict[tuple[str, tuple[int, ...]], list[Worker]] = {}
        for worker in workers.by_name.values():
            if not worker.draining and worker.partitions:
                grouped.setdefault((worker.machine, worker.partitions), []).append(worker)
        self.pools = list(grouped.values())
        self.names = tuple(tuple(worker.name for worker in pool) for pool in self.pools), tuple(grouped)
        held_by = [set(held) for _, held in grouped]
        for pool, more in zip(self.pools, held_by, strict=True):
            more.update((copies or {}).get(pool[0].name, ()))
        self.taken: set[str] = set()
        self.hopeful = copies is not None
        self.most: float = 0  # workers of the largest site
        self.kind_of: list[int] = []
        self.kinds: list[tuple[Site, ...]] | None = []
        numbers: dict[tuple[Site, ...], int] = {}
        for partition in range(partitions):
            machines: dict[str, list[int]] = {}
            for index, (machine, _) in enumerate(grouped):
                if partition in held_by[index]:
                    machines.setdefault(machine, []).append(index)
            if not machines:
                self.kinds = None
                return
            sites = tuple(tuple(site) for site in machines.values())
            self.most = max(self.most, *(sum(len(self.pools[pool]) for pool in site) for site in sites))
            self.kind_of.append(numbers.setdefault(sites, len(numbers)))
        self.kinds = list(numbers)


def _rotation(node: Node, unit: int, partitions: int) -> int:
    """Return the rotation of the epoch that contains a unit, in strict order."""
    begin = unit - unit % partitions
    while node.start > begin and node.parent is not None:
        node = node.parent
    return node.rotation

"""Schedules for dry runs in which every worker trains its part of every task, one worker for each unit.

It is what hopping does if each worker holds a part of the partitions: all workers have the same load. With many
tasks that is hard to beat, and the rules of ``gang_rules.py`` do not find it, because they do not look at which
worker of a site is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias, final

from hoptree.core.gang_rules import Chance
from hoptree.core.gang_tasks import GangProblem, GangSchedule, Placed, Start, rate

_Worker: TypeAlias = tuple[int, int]  # a pool and a place in it


def rotations(problem: GangProblem, chance: Chance) -> Iterator[GangSchedule]:
    """Yield such schedules: the longest task goes first, and then with a little chance in what counts as longest.

    There are none if tasks begin where others end, or if several sites hold the same partitions.
    """
    if any(task.children for task in problem.tasks) or any(len(sites) != 1 for sites in problem.kinds):
        return
    spread = sum(task.cost for task in problem.tasks) / max(1, len(problem.tasks)) / 2
    yield _Rotation(problem, lambda: 0.0).run()
    while True:
        yield _Rotation(problem, lambda: spread * chance(1024) / 1024).run()


@final
class _Rotation:
    """One simulation, in the order of events: a free worker takes the longest task of which it has a part left."""

    def __init__(self, problem: GangProblem, extra: Callable[[], float]) -> None:
        self._problem = problem
        self._extra = extra
        self._left = [task.units * task.cost + task.beyond for task in problem.tasks]
        self._stage = [0] * len(problem.tasks)
        self._todo = [dict(task.stages[0]) if task.stages else {} for task in problem.tasks]
        self._parts: dict[tuple[int, int, _Worker], int] = {}  # by task, kind and worker
        self._free: list[_Worker] = []
        self._ready: list[int] = []
        self._events: list[tuple[float, int, _Worker | None, int]] = []
        self._placed: list[Placed] = []

    def run(self) -> GangSchedule:
        for index, task in enumerate(self._problem.tasks):
            self._divide(index)
            self._at(task.ready, None, index)
        for pool, times in enumerate(self._problem.free_at):
            for place, time in enumerate(times):
                self._at(time, (pool, place), -1)
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] <= now * (1 + 1e-12):
                _, _, worker, index = heappop(self._events)
                if worker is not None:
                    self._free.append(worker)
                if index >= 0 and self._todo[index]:
                    self._ready.append(index)
            self._give_out(now)
        return rate(self._problem, self._placed)

    def _at(self, time: float, worker: _Worker | None, task: int) -> None:
        heappush(self._events, (time, len(self._placed) * 2 + len(self._events), worker, task))

    def _divide(self, index: int) -> None:
        """Give every worker its part of the units of a stage, rounded up."""
        for kind, count in self._todo[index].items():
            site = self._problem.kinds[kind][0]
            part = -(-count // self._problem.capacity(site))
            for pool in site:
                for place in range(len(self._problem.free_at[pool])):
                    self._parts[index, kind, (pool, place)] = part

    def _give_out(self, now: float) -> None:
        for worker in sorted(self._free):
            choices = [
                (-self._left[index] - self._extra(), index, kind)
                for index in self._ready
                for kind in self._todo[index]
                if self._parts.get((index, kind, worker))
            ]
            if choices:
                _, index, kind = min(choices)
                self._begin(index, kind, worker, now)

    def _begin(self, index: int, kind: int, worker: _Worker, now: float) -> None:
        task = self._problem.tasks[index]
        self._free.remove(worker)
        self._ready.remove(index)
        self._parts[index, kind, worker] -= 1
        self._left[index] -= task.cost
        todo = self._todo[index]
        todo[kind] -= 1
        if not todo[kind]:
            del todo[kind]
        if not todo and self._stage[index] + 1 < len(task.stages):
            self._stage[index] += 1
            todo.update(task.stages[self._stage[index]])
            self._divide(index)
        end = now + task.cost
        self._placed.append(Placed(Start(index, kind, 1), self._problem.kinds[kind][0], now, end))
        self._at(end, worker, index)

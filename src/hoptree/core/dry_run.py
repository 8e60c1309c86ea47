"""Dry runs: try several rules and widths on the present state, and return the best schedule that was found.

It is a pure function of the problem and of what earlier dry runs have found: ``DryRun`` remembers the starts of its
best schedule, and improves them at every decision by a local search. Its effort is bounded by the number of units
that it simulates, not by a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, final

from hoptree.core.gang_rotation import rotations
from hoptree.core.gang_rules import follow, lower_bound, rules_of
from hoptree.core.gang_tasks import GangProblem, GangSchedule, Placed, Site, Start, better, rate

_FIRST, _LATER = 4_000, 400  # units that are simulated for rules, at the first decision and at others
_ROTATED = 3_500  # units of schedules in which every worker trains its part of every task, at the first decision
_CHANGED = 2_000  # units that are placed by the local search, at every decision
_ROLLOUTS = 16  # random schedules of Monte-Carlo averaging, at every decision
_CLOSE = 1 + 1e-9  # a schedule that is no longer than this times the lower bound is optimal
_MASK = (1 << 64) - 1


class PlannedStart(NamedTuple):
    """A start as it is remembered from one decision to the next: its task's key, partitions and width."""

    key: tuple[int, int]
    kind: int
    width: int


@final
class DryRun:
    """Finds schedules, each no worse than what is left of the one before; with ``random`` by rollouts only."""

    def __init__(self, *, random: bool = False) -> None:
        self._random = random
        self._state = 0
        self._turn = 0  # rules that were tried at earlier decisions
        self._plan: list[PlannedStart] = []
        self._made_for: object = None
        self.simulated = 0  # units at the last decision, to see its effort

    def best(self, problem: GangProblem, pools: object) -> GangSchedule:
        """Return the best schedule found; ``pools`` identifies the workers, and a plan for others is dropped."""
        self.simulated = 0
        best = self._continued(problem) if pools == self._made_for else None
        goal = lower_bound(problem) * _CLOSE
        is_new = pools != self._made_for
        for schedule in () if best is not None and best.makespan <= goal else self._fresh(problem, first=is_new):
            self.simulated += len(schedule.placed)
            if better(schedule, best):
                best = schedule
            if best is not None and best.makespan <= goal:
                break
        assert best is not None, "there is at least one rule"
        if best.makespan > goal and not self._random:
            best = self._improved(problem, best, goal)
        self._made_for = pools
        self._plan = [
            PlannedStart(problem.tasks[start.task].key, start.kind, start.width) for start in starts_of(best)
        ]
        return best

    def started(self, start: PlannedStart) -> None:
        """Take note that a unit of the plan has begun."""
        for index, each in enumerate(self._plan):
            if each.key == start.key and each.kind == start.kind:
                del self._plan[index]
                return

    def adopt(self, plan: Iterable[PlannedStart], pools: object) -> None:
        """Use a plan from elsewhere at the next decision, as long as nothing better is found."""
        self._plan, self._made_for = list(plan), pools
        self._turn = 0

    def chance(self, below: int) -> int:
        """Return the next number of a SplitMix64 stream, reduced to a range."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % below

    def _continued(self, problem: GangProblem) -> GangSchedule | None:
        """Place what is left of the last plan; what it lacks comes at the end, as wide as the task was before."""
        left = {task.key: task.units for task in problem.tasks}
        index_of = {task.key: index for index, task in enumerate(problem.tasks)}
        width_of: dict[tuple[int, int], int] = {}
        order: list[Start] = []
        for each in self._plan:
            if left.get(each.key, 0) and each.kind < len(problem.kinds):
                left[each.key] -= 1
                width_of[each.key] = each.width
                order.append(Start(index_of[each.key], each.kind, each.width))
        for index, task in enumerate(problem.tasks):
            order += [Start(index, 0, width_of.get(task.key, 1))] * left[task.key]
        return place(problem, order)

    def _fresh(self, problem: GangProblem, *, first: bool) -> Iterator[GangSchedule]:
        """Simulate rules, in turns from one decision to the next, until enough units were simulated."""
        rules = list(rules_of(problem))
        if self._random:
            for _ in range(_ROLLOUTS):
                yield follow(problem, rules[0]._replace(narrow=False, widen=False), self.chance)
            return
        begin = 0 if first else self._turn % len(rules)
        effort = _FIRST if first else _LATER
        for rule in islice(rules + rules, begin, begin + len(rules)):
            if self.simulated >= effort:
                break
            self._turn += 1
            yield follow(problem, rule)
        for schedule in rotations(problem, self.chance) if first else ():
            if self.simulated >= effort + _ROTATED:
                return
            yield schedule

    def _improved(self, problem: GangProblem, best: GangSchedule, goal: float) -> GangSchedule:
        """Change the width or the turn of one start at a time, and keep what makes the schedule no worse."""
        order = list(starts_of(best))
        for _ in range(_CHANGED // len(order) if len(order) > 1 else 0):
            tried = self._changed(problem, order)
            schedule = place(problem, tried)
            self.simulated += len(tried)
            if schedule is not None and not better(best, schedule):
                best, order = schedule, list(starts_of(schedule))
                if best.makespan <= goal:
                    break
        return best

    def _changed(self, problem: GangProblem, order: list[Start]) -> list[Start]:
        tried = list(order)
        position = self.chance(len(tried))
        start = tried.pop(position)
        task = problem.tasks[start.task]
        largest = max(problem.capacity(site) for site in problem.kinds[start.kind])
        widths = [width for width in task.speeds if width <= largest and width != start.width]
        what = self.chance(10)
        if widths and what < 6:
            start = Start(start.task, start.kind, widths[self.chance(len(widths))])
        if what > 2:
            position = self.chance(len(order))
        tried.insert(position, start)
        return tried


def starts_of(schedule: GangSchedule) -> Sequence[Start]:
    """Return the starts of a schedule in the order of their times."""
    return [placed.start for placed in sorted(schedule.placed, key=lambda placed: placed.begin)]


def place(problem: GangProblem, order: Sequence[Start]) -> GangSchedule | None:
    """Start every unit as soon as its task and enough workers have finished everything before it in the order.

    A unit of a kind that its task does not have to train then becomes one of another kind. Return None if the
    order does not have all units of all tasks.
    """
    free = [sorted(times) for times in problem.free_at]
    ready = [task.ready for task in problem.tasks]
    waiting = {child for task in problem.tasks for _, child in task.children}
    done = [0] * len(problem.tasks)
    stage = [0] * len(problem.tasks)
    todo = [dict(task.stages[0]) if task.stages else {} for task in problem.tasks]
    for index in range(len(problem.tasks)):
        _release(problem, index, 0, ready[index], ready, waiting)
    placed: list[Placed] = []
    delayed: list[Start] = []
    left = list(order)
    while left:
        for start in left:
            index = start.task
            task, units = problem.tasks[index], todo[start.task]
            if index in waiting:
                delayed.append(start)
                continue
            if not units:
                return None
            kind = start.kind if start.kind in units else next(iter(units))
            width = start.width
            while width not in task.speeds:  # it does not pay any more
                width //= 2
            begin, site, width = _earliest(problem, free, ready[index], kind, width)
            end = begin + task.cost / task.speeds[width]
            _occupy(free, site, width, end)
            placed.append(Placed(Start(index, kind, width), site, begin, end))
            ready[index] = end
            done[index] += 1
            if units[kind] == 1:
                del units[kind]
            else:
                units[kind] -= 1
            if not units and stage[index] + 1 < len(task.stages):
                stage[index] += 1
                todo[index] = dict(task.stages[stage[index]])
            if task.children:
                _release(problem, index, done[index], end, ready, waiting)
        if len(delayed) == len(left):
            return None
        left, delayed = delayed, []
    return None if any(todo) else rate(problem, placed)


def _release(
    problem: GangProblem, index: int, done: int, time: float, ready: list[float], waiting: set[int]
) -> None:
    """Let the children begin that wait for so many units of a task."""
    if index in waiting:
        return
    for after, child in problem.tasks[index].children:
        if after == done and child in waiting:
            waiting.discard(child)
            ready[child] = time
            _release(problem, child, 0, time, ready, waiting)


def _earliest(
    problem: GangProblem, free: list[list[float]], ready: float, kind: int, width: int
) -> tuple[float, Site, int]:
    """Return when and where a unit can begin first, and its width: not more than the site has."""
    best: tuple[float, Site, int] | None = None
    for site in problem.kinds[kind]:
        times = free[site[0]] if len(site) == 1 else sorted(time for pool in site for time in free[pool])
        wide = width
        while wide > len(times):
            wide //= 2
        begin = max(ready, times[wide - 1])
        if best is None or begin < best[0]:
            best = begin, site, wide
    assert best is not None, "a kind has a site"
    return best


def _occupy(free: list[list[float]], site: Site, width: int, end: float) -> None:
    """Let the workers of a site that are free first be busy until a time."""
    if len(site) == 1:
        times = free[site[0]]
        times[:width] = [end] * width
        times.sort()
        return
    first = sorted((time, pool) for pool in site for time in free[pool])[:width]
    for time, pool in first:
        free[pool].remove(time)
        free[pool].append(end)
    for pool in site:
        free[pool].sort()

"""Rules that give out workers in a dry run: which widths they prefer, and when they rather wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple, TypeAlias

from hoptree.core.gang_tasks import GangProblem, GangSchedule, Placed, Site, Start, Task, rate

Preferred: TypeAlias = tuple[tuple[int, ...], ...]  # by task and kind, a width
Chance: TypeAlias = Callable[[int], int]  # returns a whole number below its argument
_DEADLINES = (1.0, 1.07, 1.2, 1.5)  # as multiples of the lower bound


class Rule(NamedTuple):
    """How free workers are given out.

    ``narrow``: a unit begins with fewer workers if those preferred are not free; otherwise it waits for them.
    ``widen``: workers that stay free go to the longest paths among the units that begin now. ``by_path``: the
    longest path goes first, also if another site has more left to do.
    """

    preferred: Preferred
    narrow: bool
    widen: bool
    by_path: bool = False


def rules_of(problem: GangProblem) -> Iterator[Rule]:
    """Yield the rules of a dry run, those first that are best most often."""
    preferences = list(dict.fromkeys(_preferences(problem)))
    for (narrow, widen), preferred, by_path in product(
        ((True, True), (False, False), (False, True), (True, False)), preferences, (False, True)
    ):
        yield Rule(preferred, narrow, widen, by_path)


def _preferences(problem: GangProblem) -> Iterator[Preferred]:
    widest = max((max(task.speeds) for task in problem.tasks), default=1)
    yield at_most(problem, widest)
    yield at_most(problem, 1)
    bound = lower_bound(problem)
    for factor in _DEADLINES:
        yield _within(problem, bound * factor)
    width = 2
    while width < widest:
        yield at_most(problem, width)
        width *= 2
    yield _longest_wide(problem)


def at_most(problem: GangProblem, width: int) -> Preferred:
    """Prefer the widest gangs that pay and have at most so many workers."""
    largest = [max(problem.capacity(site) for site in sites) for sites in problem.kinds]
    return tuple(
        tuple(max(w for w in task.speeds if w == 1 or w <= min(width, devices)) for devices in largest)
        for task in problem.tasks
    )


def _longest_wide(problem: GangProblem) -> Preferred:
    """Give the longest path whole sites, and each of the others one worker."""
    whole = at_most(problem, 1 << 30)
    paths = [_path(problem, index) for index in range(len(problem.tasks))]
    longest = max(paths, default=0.0)
    return tuple(row if path == longest else (1,) * len(row) for row, path in zip(whole, paths, strict=True))


def _path(problem: GangProblem, index: int) -> float:
    task = problem.tasks[index]
    tails = [_path(problem, child) for _, child in task.children]
    return task.units * task.cost + task.beyond + max(tails, default=0.0)


def _within(problem: GangProblem, deadline: float) -> Preferred:
    """Prefer narrow gangs with which every task ends by a deadline; where that is impossible, the widest."""
    whole = at_most(problem, 1 << 30)
    rows: list[tuple[int, ...]] = []
    for task, widest in zip(problem.tasks, whole, strict=True):
        counts = units_by_kind(task, len(problem.kinds))
        row = [1] * len(counts)

        def length(row: list[int] = row, task: Task = task, counts: list[int] = counts) -> float:
            return (
                task.ready
                + task.beyond
                + sum(count * task.cost / task.speeds[width] for count, width in zip(counts, row, strict=True))
            )

        while length() > deadline:
            wider = [
                (_price(task, row[kind]), kind)
                for kind, count in enumerate(counts)
                if count and row[kind] < widest[kind] and 2 * row[kind] in task.speeds
            ]
            if not wider:
                break
            row[min(wider)[1]] *= 2
        rows.append(tuple(row))
    return tuple(rows)


def _price(task: Task, width: int) -> float:
    """Return the time of workers that twice the width costs, for each second that it saves."""
    now, then = 1 / task.speeds[width], 1 / task.speeds[2 * width]
    return (2 * width * then - width * now) / (now - then)


def units_by_kind(task: Task, kinds: int) -> list[int]:
    """Return the number of units of a task by kind."""
    counts = [0] * kinds
    for stage in task.stages:
        for kind, count in stage:
            counts[kind] += count
    return counts


def lower_bound(problem: GangProblem) -> float:
    """Return a time before which not everything can be trained: the longest task, and the load of each site."""
    longest, loads = 0.0, [0.0] * len(problem.kinds)
    whole = at_most(problem, 1 << 30)
    for task, widest in zip(problem.tasks, whole, strict=True):
        counts = units_by_kind(task, len(problem.kinds))
        path = sum(n * task.cost / task.speeds[w] for n, w in zip(counts, widest, strict=True))
        longest = max(longest, task.ready + path + task.beyond / max(task.speeds.values()))
        best = max(speed / width for width, speed in task.speeds.items())
        for kind, count in enumerate(counts):
            loads[kind] += count * task.cost / best
    shares = [
        load / sum(problem.capacity(site) for site in sites)
        for load, sites in zip(loads, problem.kinds, strict=True)
    ]
    return max([longest, *shares])


def follow(problem: GangProblem, rule: Rule, chance: Chance | None = None) -> GangSchedule:
    """Simulate a rule to the end; with ``chance`` it gives sites to tasks at random."""
    return _Simulation(problem, rule, chance).run()


class _Starting(NamedTuple):
    """A unit that begins now, with the pool of each of its workers."""

    task: int
    kind: int
    site: Site
    pools: tuple[int, ...]


class _Simulation:
    """One dry run, in the order of events."""

    def __init__(self, problem: GangProblem, rule: Rule, chance: Chance | None) -> None:
        self._problem = problem
        self._rule = rule
        self._chance = chance
        self._free = [0] * len(problem.free_at)
        self._now = 0.0
        self._count = 0
        # events: a worker of a pool becomes free, or a task becomes ready (pool -1)
        self._events: list[tuple[float, int, tuple[int, ...], int]] = []
        self._stage = [0] * len(problem.tasks)
        self._todo = [dict(task.stages[0]) if task.stages else {} for task in problem.tasks]
        self._done = [0] * len(problem.tasks)
        self._ready: list[int] = []
        self._placed: list[Placed] = []
        self._tails = [0.0] * len(problem.tasks)
        self._load: dict[Site, float] = {site: 0.0 for sites in problem.kinds for site in sites}
        self._path = [0.0] * len(problem.tasks)
        for index in reversed(range(len(problem.tasks))):
            self._prepare(index)
        for pool, times in enumerate(problem.free_at):
            for time in times:
                self._at(time, (pool,), -1)

    def _prepare(self, index: int) -> None:
        problem, task = self._problem, self._problem.tasks[index]
        for kind, count in enumerate(units_by_kind(task, len(problem.kinds))):
            seconds = count * self._seconds(task, self._rule.preferred[index][kind])
            self._path[index] += seconds
            self._share(kind, seconds * self._rule.preferred[index][kind])
        self._tails[index] = max((self._path[child] for _, child in task.children), default=0.0)
        self._path[index] += task.beyond + self._tails[index]
        if not task.is_child:
            self._at(task.ready, (), index)

    def _share(self, kind: int, device_seconds: float) -> None:
        sites = self._problem.kinds[kind]
        for site in sites:
            self._load[site] += device_seconds / len(sites) / self._problem.capacity(site)

    @staticmethod
    def _seconds(task: Task, width: int) -> float:
        return task.cost / task.speeds[width]

    def _at(self, time: float, pools: tuple[int, ...], task: int) -> None:
        self._count += 1
        heappush(self._events, (time, self._count, pools, task))

    def run(self) -> GangSchedule:
        events = self._events
        while events:
            self._now = events[0][0]
            last = self._now * (1 + 1e-12)
            while events and events[0][0] <= last:
                _, _, pools, task = heappop(events)
                for pool in pools:
                    self._free[pool] += 1
                if task >= 0:
                    self._make_ready(task)
            if self._ready:
                self._give_out()
        return rate(self._problem, self._placed)

    def _make_ready(self, index: int) -> None:
        for after, child in self._problem.tasks[index].children:
            if after == self._done[index]:
                self._make_ready(child)
        if self._todo[index]:
            self._ready.append(index)

    def _give_out(self) -> None:
        starting: list[_Starting] = []
        while self._ready:
            offers = [offer for task in self._ready for offer in self._offers(task)]
            if not offers:
                break
            chosen = offers[self._chance(len(offers))] if self._chance else min(offers)
            _, _, _, task, kind, width, site = chosen
            self._ready.remove(task)
            self._subtract(task, kind)
            starting.append(_Starting(task, kind, site, self._take(site, width)))
        if self._rule.widen:
            starting = self._widened(starting)
        for each in starting:
            self._begin(each)

    def _offers(self, index: int) -> Iterator[tuple[float, float, int, int, int, int, Site]]:
        rule = self._rule
        path = self._path[index]
        for kind in self._todo[index]:
            for number, site in enumerate(self._problem.kinds[kind]):
                free = sum(self._free[pool] for pool in site)
                preferred = rule.preferred[index][kind]
                if free < preferred:
                    if not rule.narrow or not free:
                        preferred = min(preferred, _pow2(self._problem.capacity(site)))
                        if free < preferred:
                            continue
                    else:
                        preferred = _pow2(free)
                load = self._load[site]
                first, second = (path, load) if rule.by_path else (max(path, load), min(path, load))
                turn = 0 if rule.by_path else (kind + number - index) % len(self._problem.kinds)
                yield (
                    -first,
                    -second,
                    turn,
                    index,
                    kind,
                    preferred,
                    site,
                )

    def _take(self, site: Site, width: int) -> tuple[int, ...]:
        """Take free workers of a site; return the pool of each, which gets it back."""
        taken: list[int] = []
        for pool in site:
            count = min(width - len(taken), self._free[pool])
            self._free[pool] -= count
            taken += [pool] * count
        return tuple(taken)

    def _subtract(self, index: int, kind: int) -> None:
        seconds = self._seconds(self._problem.tasks[index], self._rule.preferred[index][kind])
        self._path[index] -= seconds
        self._share(kind, -seconds * self._rule.preferred[index][kind])
        todo = self._todo[index]
        if todo[kind] == 1:
            del todo[kind]
        else:
            todo[kind] -= 1

    def _widened(self, starting: list[_Starting]) -> list[_Starting]:
        order = sorted(range(len(starting)), key=lambda at: -self._path[starting[at].task])
        for at in order:
            task, kind, site, pools = starting[at]
            speeds = self._problem.tasks[task].speeds
            while 2 * len(pools) in speeds and sum(self._free[pool] for pool in site) >= len(pools):
                pools += self._take(site, len(pools))
            starting[at] = _Starting(task, kind, site, pools)
        return starting

    def _begin(self, starting: _Starting) -> None:
        index, kind, site, pools = starting
        task = self._problem.tasks[index]
        end = self._now + self._seconds(task, len(pools))
        self._placed.append(Placed(Start(index, kind, len(pools)), site, self._now, end))
        self._done[index] += 1
        if not self._todo[index] and self._stage[index] + 1 < len(task.stages):
            self._stage[index] += 1
            self._todo[index] = dict(task.stages[self._stage[index]])
        self._at(end, pools, index)


def _pow2(count: int) -> int:
    return 1 << (count.bit_length() - 1)

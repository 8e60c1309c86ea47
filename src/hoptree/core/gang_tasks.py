"""The present state of a study as a small scheduling problem: what a dry run starts from.

A *task* is an active lineage with all that is behind it, or a lineage that begins where another one ends. A *pool*
is a group of workers of one machine that hold the same partitions. A *kind* is a group of partitions that the same
pools hold; the pools of one machine that hold a kind are a *site*, and a gang comes from one site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Site: TypeAlias = tuple[int, ...]  # indices of pools
Stage: TypeAlias = tuple[tuple[int, int], ...]  # kinds with the number of units, which may be trained in any order
MOST_UNITS = 320  # that a dry run simulates; of the others only their time counts


@dataclass(frozen=True, slots=True)
class Task:
    """Units that follow each other; ``children`` are tasks that begin after so many of them.

    ``speeds`` are the widths that pay with their speed-ups, from 1 on. ``ready`` is the time at which the first
    unit may begin. ``beyond`` is the time on one worker of what is behind the last unit listed here.
    """

    key: tuple[int, int]
    cost: float
    speeds: Mapping[int, float]
    ready: float
    stages: tuple[Stage, ...]
    children: tuple[tuple[int, int], ...] = ()
    beyond: float = 0.0
    is_child: bool = False

    @property
    def units(self) -> int:
        """The number of units."""
        return sum(count for stage in self.stages for _, count in stage)


@dataclass(frozen=True, slots=True)
class GangProblem:
    """Tasks and workers; ``free_at`` has, by pool, when each of its workers is free, in seconds from now."""

    tasks: tuple[Task, ...]
    free_at: tuple[tuple[float, ...], ...]
    kinds: tuple[tuple[Site, ...], ...]  # by kind, the sites that hold it

    def capacity(self, site: Site) -> int:
        """Return the number of workers of a site."""
        return sum(len(self.free_at[pool]) for pool in site)


@dataclass(frozen=True, slots=True)
class Start:
    """A task trains its next unit: a unit of a kind, with so many workers of a site."""

    task: int
    kind: int
    width: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A start with its site and its time."""

    start: Start
    site: Site
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class GangSchedule:
    """What a dry run has found: starts in the order of time, and an estimate of when everything is trained."""

    placed: tuple[Placed, ...]
    makespan: float
    total: float  # sum of the ends of all tasks, which decides between equal makespans


def better(one: GangSchedule, other: GangSchedule | None) -> bool:
    """Return whether a schedule is shorter than another, or as long with tasks that end earlier."""
    if other is None or one.makespan < other.makespan * (1 - 1e-9):
        return True
    return one.makespan <= other.makespan * (1 + 1e-9) and one.total < other.total * (1 - 1e-9)


def rate(problem: GangProblem, placed: Sequence[Placed]) -> GangSchedule:
    """Return a schedule with its estimated makespan: its end, and the time of what was not simulated."""
    ends = [task.ready for task in problem.tasks]
    for each in placed:
        ends[each.start.task] = max(ends[each.start.task], each.end)
    finish = [end + task.beyond / max(task.speeds.values()) for end, task in zip(ends, problem.tasks, strict=True)]
    devices = sum(map(len, problem.free_at))
    work = sum(task.beyond for task in problem.tasks)
    busy = sum((each.end - each.begin) * each.start.width for each in placed)
    waiting = sum(min(time, 1e300) for pool in problem.free_at for time in pool)
    makespan = max(max(finish, default=0.0), (busy + waiting + work) / devices if work else 0.0)
    return GangSchedule(tuple(placed), makespan, sum(finish))

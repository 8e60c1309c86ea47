"""Rotations: every worker trains its part of every task, and dry runs are no slower than that."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import pytest

from hoptree.core.dry_run import DryRun, place, starts_of
from hoptree.core.gang_rotation import rotations
from hoptree.core.gang_rules import lower_bound
from hoptree.core.gang_tasks import GangProblem, Task

SPEEDS = {1: 1.0, 2: 1.5, 4: 2.1, 8: 2.6}


def node(costs: list[float], devices: int = 8, epochs: int = 2) -> GangProblem:
    """Return configs that each visit as many partitions as there are devices, on one node."""
    stages = (((0, devices),),) * epochs
    tasks = tuple(Task((number, 0), cost, SPEEDS, 0.0, stages) for number, cost in enumerate(costs))
    return GangProblem(tasks, ((0.0,) * devices,), (((0,),),))


def test_every_unit_is_placed_once_and_tasks_follow_themselves() -> None:
    problem = node([1.0, 0.7, 1.3] * 4)
    for schedule in islice(rotations(problem, lambda below: below // 2), 3):
        assert Counter(placed.start.task for placed in schedule.placed) == dict.fromkeys(range(12), 16)
        for task in range(12):
            own = [placed for placed in schedule.placed if placed.start.task == task]
            assert all(one.end <= other.begin + 1e-9 for one, other in pairwise(own))
        again = place(problem, starts_of(schedule))
        assert again is not None
        assert again.makespan <= schedule.makespan * (1 + 1e-9)


def test_a_dry_run_is_no_slower_than_any_of_them() -> None:
    # 14 unlike configs on 8 devices: all devices end together if each trains every config twice
    costs = [0.61, 1.42, 0.97, 1.18, 0.83, 1.35, 0.54, 1.07, 1.21, 0.76, 0.92, 1.49, 0.68, 1.11]
    problem = node(costs)
    best = DryRun().best(problem, "workers").makespan
    run = DryRun()
    assert best <= min(each.makespan for each in islice(rotations(problem, run.chance), 16)) * (1 + 1e-9)
    assert best == pytest.approx(lower_bound(problem), rel=5e-3)


def test_there_are_none_for_tasks_that_begin_where_others_end() -> None:
    problem = node([1.0, 1.0], devices=2)
    parent, child = problem.tasks
    parent = Task(parent.key, 1.0, SPEEDS, 0.0, parent.stages, ((2, 1),))
    child = Task(child.key, 1.0, SPEEDS, 0.0, child.stages, is_child=True)
    assert not list(rotations(GangProblem((parent, child), problem.free_at, problem.kinds), lambda below: 0))

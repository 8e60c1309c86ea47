"""Dry runs: what they return is feasible, no worse than the simple rules, and the same every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.dry_run import DryRun, PlannedStart, place, starts_of
from hoptree.core.gang_rules import Rule, at_most, follow, lower_bound, rules_of
from hoptree.core.gang_tasks import GangProblem, GangSchedule, Task, rate

SPEEDS = [{1: 1.0}, {1: 1.0, 2: 2.0, 4: 4.0}, {1: 1.0, 2: 1.8, 4: 3.1}, {1: 1.0, 2: 1.5, 4: 2.1}]
PLACES = [  # workers by pool, and the sites of each kind
    ((4,), (((0,),),)),
    ((4, 2, 2), (((0,),), ((1,),), ((2,),))),
    ((1, 1), (((0, 1),),)),  # a site of two pools
    ((2, 2), (((0,), (1,)), ((1,),))),  # a kind that two nodes hold
    ((1, 1), (((0,),), ((0, 1),))),  # a pool that has a site of its own, and shares another
    ((2, 1, 1), (((0, 1),), ((0,),), ((1, 2),))),
]


@st.composite
def problems(draw: st.DrawFn) -> GangProblem:
    sizes, kinds = draw(st.sampled_from(PLACES))
    times = st.sampled_from([0.0, 0.5, 3.0])
    free_at = tuple(tuple(sorted(draw(times) for _ in range(size))) for size in sizes)
    stage = st.dictionaries(st.integers(0, len(kinds) - 1), st.integers(1, 3), min_size=1)
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 4))):
        stages = tuple(tuple(each.items()) for each in draw(st.lists(stage, min_size=1, max_size=3)))
        speeds = draw(st.sampled_from(SPEEDS))
        index, cost = len(tasks), draw(st.sampled_from([0.3, 1.0, 2.5]))
        units = sum(count for each in stages for _, count in each)
        children = ((draw(st.integers(0, units)), index + 1),) if draw(st.booleans()) else ()
        tasks.append(
            Task((number, 0), cost, speeds, draw(times), stages, children, draw(st.sampled_from([0.0, 9.0])))
        )
        if children:
            tasks.append(Task((number, 1), cost, speeds, 0.0, stages, is_child=True))
    return GangProblem(tuple(tasks), free_at, kinds)


def check(problem: GangProblem, schedule: GangSchedule) -> None:
    """Fail unless a schedule has all units, in order, and never uses more workers of a site than there are."""
    last = [task.ready for task in problem.tasks]
    left = [[dict(stage) for stage in task.stages] for task in problem.tasks]
    count = [0] * len(problem.tasks)
    begun: dict[int, float] = {}
    order = sorted(schedule.placed, key=lambda placed: (placed.begin, placed.end))
    for placed in order:
        index, kind, width = placed.start.task, placed.start.kind, placed.start.width
        task = problem.tasks[index]
        assert placed.begin >= last[index] - 1e-9
        assert placed.site in problem.kinds[kind]
        assert placed.end == pytest.approx(placed.begin + task.cost / task.speeds[width])
        last[index] = placed.end
        begun.setdefault(index, placed.begin)
        count[index] += 1
        stage = next(stage for stage in left[index] if stage)
        stage[kind] -= 1
        if not stage[kind]:
            del stage[kind]
        for after, child in task.children:
            if after == count[index]:
                last[child] = placed.end
    assert not any(stage for stages in left for stage in stages)
    for moment in {placed.begin for placed in order}:
        for site in {placed.site for placed in order}:
            pools = set(site)
            used = sum(
                placed.start.width
                for placed in order
                if set(placed.site) <= pools and placed.begin <= moment < placed.end - 1e-9
            )
            busy = sum(time > moment + 1e-9 for pool in site for time in problem.free_at[pool])
            assert used + busy <= problem.capacity(site)


@given(problems())
def test_every_rule_gives_a_feasible_schedule(problem: GangProblem) -> None:
    for rule in rules_of(problem):
        schedule = follow(problem, rule)
        check(problem, schedule)
        assert schedule.makespan >= lower_bound(problem) * (1 - 1e-9)


@given(problems())
def test_the_best_is_feasible_and_no_worse_than_one_each_and_whole_nodes(problem: GangProblem) -> None:
    best = DryRun().best(problem, "workers")
    check(problem, best)
    for width in (1, 4):
        simple = follow(problem, Rule(at_most(problem, width), narrow=True, widen=width > 1))
        assert best.makespan <= simple.makespan * (1 + 1e-9)


@given(problems())
def test_a_dry_run_is_a_function_of_the_problem(problem: GangProblem) -> None:
    assert DryRun().best(problem, "workers") == DryRun().best(problem, "workers")
    assert DryRun(random=True).best(problem, "workers") == DryRun(random=True).best(problem, "workers")


@given(problems())
def test_the_next_decision_is_no_worse_than_the_plan(problem: GangProblem) -> None:
    dry_run = DryRun()
    first = dry_run.best(problem, "workers")
    again = dry_run.best(problem, "workers")
    assert again.makespan <= first.makespan * (1 + 1e-9)


@given(problems())
def test_an_order_is_placed_no_later_than_it_was(problem: GangProblem) -> None:
    for rule in rules_of(problem):
        schedule = follow(problem, rule)
        placed = place(problem, starts_of(schedule))
        assert placed is not None
        check(problem, placed)


def test_a_plan_with_other_tasks_is_completed() -> None:
    task = Task((1, 0), 1.0, {1: 1.0, 2: 2.0}, 0.0, (((0, 3),),))
    problem = GangProblem((task,), ((0.0, 0.0),), (((0,),),))
    dry_run = DryRun()
    dry_run.adopt([PlannedStart((9, 9), 0, 1), PlannedStart((1, 0), 0, 2)], "workers")
    assert dry_run.best(problem, "workers").makespan == 1.5


def test_holding_a_worker_back_can_be_the_best() -> None:
    """Two workers, one free at once and the other soon: a long unit waits for both."""
    task = Task((1, 0), 10.0, {1: 1.0, 2: 2.0}, 0.0, (((0, 1),),))
    problem = GangProblem((task,), ((0.0, 1.0),), (((0,),),))
    best = DryRun().best(problem, "workers")
    assert [placed.start.width for placed in best.placed] == [2]
    assert best.makespan == 6.0


def test_the_effort_of_a_decision_is_bounded() -> None:
    tasks = tuple(Task((n, 0), 1.0 + n / 7, SPEEDS[3], 0.0, (((0, 10),),)) for n in range(30))
    problem = GangProblem(tasks, ((0.0,) * 8,), (((0,),),))
    dry_run = DryRun()
    for _ in range(3):
        dry_run.best(problem, "workers")
        assert dry_run.simulated <= 10_500


def test_work_beyond_the_horizon_counts() -> None:
    task = Task((1, 0), 1.0, {1: 1.0, 2: 2.0}, 0.0, (), beyond=8.0)
    problem = GangProblem((task,), ((0.0, 0.0),), (((0,),),))
    assert rate(problem, ()).makespan == 4.0

"""The controller of nodes: how many there are to be, which are given back, and when the rest is planned again."""

from __future__ import annotations

import math

import pytest

from hoptree.elastic.controller import NodeController, NodeDecision, RunningNode, reserve_for
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage

INSTANCE = Instance("four", devices=4, price=3.6, minimum=60.0, provision=20.0, start=10.0)
STAGES = (JobStage(32, 60.0), JobStage(8, 120.0), JobStage(2, 240.0))


def job(*stages: JobStage, **terms: object) -> Job:
    return Job(stages, {1: 1.0, 2: 1.8, 4: 3.1}, **terms)  # type: ignore[arg-type]


def nodes(*names: str, started: float = 20.0, joined: float | None = 30.0) -> dict[str, RunningNode]:
    return {name: RunningNode(4, started, joined) for name in names}


def controller(deadline: float | None = 600.0, budget: float | None = None, **terms: object) -> NodeController:
    return NodeController(INSTANCE, deadline=deadline, budget=budget, **terms)  # type: ignore[arg-type]


def begin(each: NodeController, *stages: JobStage) -> tuple[NodeDecision, dict[str, RunningNode]]:
    """Let a controller plan, and return its first decision and the nodes that come of it."""
    first = each.decide(0.0, [job(*(stages or STAGES))], {}, 0)
    return first, nodes(*(f"n{number}" for number in range(first.nodes)))


def test_it_plans_at_the_start_and_requests_the_nodes_of_the_first_stage() -> None:
    first, _ = begin(controller())
    assert first.plan is not None
    assert first.reason == "start"
    assert first.nodes == first.plan.allocations[0].stages[0].nodes > 1
    assert first.plan.seconds.expected <= 600.0
    assert not first.release


def test_nothing_changes_while_all_goes_as_planned() -> None:
    each = controller()
    first, running = begin(each)
    assert first.plan is not None
    stage = first.plan.allocations[0].stages[0]
    middle = (stage.begins + stage.ends) / 2
    half = job(JobStage(32, 30.0), *STAGES[1:])
    later = each.decide(middle, [half], running, 0)
    assert (later.plan, later.nodes, later.release) == (None, first.nodes, ())
    assert middle < later.until


def test_a_new_stage_is_planned_and_nodes_are_given_back() -> None:
    each = controller(deadline=420.0)
    first, running = begin(each)
    later = each.decide(200.0, [job(*STAGES[1:])], running, 1)
    assert later.reason == "stage"
    assert later.plan is not None
    assert later.nodes == first.nodes - len(later.release)
    assert later.nodes == later.plan.allocations[0].stages[0].nodes < first.nodes
    # What it has given back is no loss, and is not given back twice.
    again = each.decide(203.0, [job(*STAGES[1:])], running, 1)
    assert (again.plan, again.release, again.nodes) == (None, (), later.nodes)
    left = {name: node for name, node in running.items() if name not in later.release}
    assert each.decide(205.0, [job(*STAGES[1:])], left, 1).plan is None


def test_idle_nodes_are_given_back_before_busy_ones() -> None:
    each = controller(deadline=420.0)
    _, running = begin(each)
    busy = {name: RunningNode(4, 20.0, 30.0, {f"trial {name}": 4} if name != "n1" else {}) for name in running}
    later = each.decide(200.0, [job(*STAGES[1:])], busy, 1)
    assert later.release[0] == "n1"


@pytest.mark.parametrize("again", [True, False])
def test_a_node_whose_minimum_is_not_over_stays_as_long_as_it_helps(again: bool) -> None:
    each = controller(again=again)
    _, running = begin(each)
    young = {name: RunningNode(4, 170.0, 180.0) for name in running}
    later = each.decide(200.0, [job(JobStage(32, 60.0), JobStage(2, 1.0))], young, 1)
    assert later.nodes + len(later.release) == len(running)
    assert not later.release
    if later.until < math.inf and later.nodes > 1:
        assert later.until <= 230.0


def test_a_lost_node_is_planned_for_at_once() -> None:
    each = controller()
    first, running = begin(each)
    each.decide(40.0, [job(*STAGES)], running, 0)
    del running["n0"]
    later = each.decide(41.0, [job(*STAGES)], running, 0)
    assert later.reason == "node lost"
    assert later.nodes >= first.nodes
    assert each.decide(42.0, [job(*STAGES)], running, 0).plan is None


def test_a_late_node_is_planned_for_once() -> None:
    each = controller()
    first, running = begin(each)
    del running["n0"]
    soon = each.decide(35.0, [job(*STAGES)], running, 0)
    assert soon.plan is None
    assert soon.until < math.inf
    late = each.decide(soon.until, [job(*STAGES)], running, 0)
    assert late.reason == "node late"
    assert late.nodes >= first.nodes
    assert each.decide(soon.until + 1.0, [job(*STAGES)], running, 0).plan is None


@pytest.mark.parametrize(("part", "planned"), [(0.5, False), (0.45, False), (0.9, True), (0.1, True)])
def test_a_deviation_is_planned_for(part: float, planned: bool) -> None:
    each = controller()
    first, running = begin(each)
    assert first.plan is not None
    stage = first.plan.allocations[0].stages[0]
    rest = job(JobStage(32, 60.0 * part), *STAGES[1:])
    later = each.decide((stage.begins + stage.ends) / 2, [rest], running, 0)
    assert (later.reason == "deviation") == planned
    assert (later.plan is not None) == planned


def test_planned_once_it_follows_the_plan_by_its_stages() -> None:
    each = controller(again=False)
    first, running = begin(each)
    assert first.plan is not None
    planned = [stage.nodes for stage in first.plan.allocations[0].stages]
    for index in (1, 2):
        later = each.decide(1000.0 * index, [job(*STAGES[index:])], running, index)
        assert later.plan is None
        assert later.nodes == planned[index]
        running = {name: node for name, node in running.items() if name not in later.release}
    del running[next(iter(running))]
    assert each.decide(3000.0, [job(*STAGES[2:])], running, 2).plan is None


def test_nodes_are_requested_ahead_of_the_stage_that_needs_them() -> None:
    stages = JobStage(2, 600.0), JobStage(40, 60.0)
    each = controller(deadline=900.0, again=False)
    first, running = begin(each, *stages)
    assert first.plan is not None
    one, two = first.plan.allocations[0].stages
    assert two.nodes > one.nodes
    before = each.decide(60.0, [job(*stages)], running, 0)
    assert before.nodes == one.nodes
    assert one.ends - 40.0 < before.until < one.ends - 30.0
    ahead = each.decide(before.until, [job(*stages)], running, 0)
    assert ahead.nodes == two.nodes


def test_trials_that_are_left_keep_no_more_nodes_than_they_can_use() -> None:
    each = controller()
    first, running = begin(each)
    assert first.nodes > 1
    last = each.decide(100.0, [job(JobStage(1, 60.0), JobStage(1, 1.0))], running, 0)
    assert last.nodes == 1


def test_brackets_have_nodes_of_their_own_and_share_them_if_there_are_too_few() -> None:
    brackets = [job(*STAGES), job(JobStage(6, 200.0))]
    each = controller(deadline=700.0)
    first = each.decide(0.0, [*brackets, job()], {}, 0)
    assert first.plan is not None
    assert first.nodes == sum(allocation.stages[0].nodes for allocation in first.plan.allocations)
    running = nodes(*(f"n{number}" for number in range(first.nodes)))
    later = each.decide(400.0, [job(), brackets[1], job()], running, 3)
    assert later.plan is not None
    assert len(later.plan.allocations) == 1
    narrow = NodeController(
        Instance("one", devices=4, price=3.6, provision=20.0, start=10.0, max_count=1), deadline=3000.0, budget=None
    )
    alone = narrow.decide(0.0, brackets, {}, 0)
    assert alone.nodes == 1
    assert narrow.decide(500.0, [job(*STAGES[1:]), brackets[1]], nodes("n0"), 1).nodes == 1


def test_without_work_all_stays_as_it_is() -> None:
    each = controller()
    assert each.decide(0.0, [job()], nodes("n0"), 0) == NodeDecision(1)


def test_a_deadline_that_cannot_be_met_is_refused_at_the_start_only() -> None:
    with pytest.raises(DeadlineError):
        controller(deadline=100.0).decide(0.0, [job(*STAGES)], {}, 0)
    each = controller()
    _, running = begin(each)
    late = each.decide(550.0, [job(*STAGES[1:])], running, 1)
    assert late.plan is not None
    assert late.plan.seconds.expected > 50.0


def test_a_budget_is_what_is_left_after_what_was_spent() -> None:
    with pytest.raises(BudgetError):
        controller(deadline=None, budget=0.1).decide(0.0, [job(*STAGES)], {}, 0)
    each = controller(deadline=None, budget=2.0)
    first, running = begin(each)
    assert first.plan is not None
    assert first.plan.cost.expected <= 2.0
    later = each.decide(90.0, [job(*STAGES[1:])], running, 1)
    assert later.plan is not None
    spent = len(running) * 70.0 * 3.6 / 3600
    assert later.plan.cost.expected <= 2.0 - spent + 1e-9
    overspent = each.decide(2000.0, [job(*STAGES[2:])], running, 2)
    assert overspent.nodes == 1


def test_a_reserve_is_kept_until_a_node_is_lost() -> None:
    each = controller(reserve=100.0)
    first, running = begin(each)
    assert first.plan is not None
    assert first.plan.seconds.expected <= 500.0
    each.decide(40.0, [job(*STAGES)], running, 0)
    del running["n0"]
    later = each.decide(41.0, [job(*STAGES)], running, 0)
    assert later.plan is not None
    assert later.plan.deadline == pytest.approx(600.0 - 41.0)


def test_only_instances_that_may_be_taken_away_need_a_reserve() -> None:
    assert reserve_for(INSTANCE, 60.0) == 0.0
    spot = Instance("spot", devices=4, price=3.6, provision=20.0, start=10.0, spot=True)
    assert reserve_for(spot, 60.0) == 1.5 * 30.0 + 60.0


def test_what_was_spent_follows_the_billing() -> None:
    by_function = Instance("f", devices=4, price=3600.0, provision=20.0, start=10.0, billing="function")
    each = NodeController(by_function, deadline=None, budget=2000.0)
    first = each.decide(0.0, [job(*STAGES)], {}, 0)
    assert first.plan is not None
    used = {"n0": RunningNode(4, 20.0, 30.0, busy=4000.0)}  # 1,000 dollars
    later = each.decide(500.0, [job(*STAGES[1:])], used, 1)
    assert later.plan is not None
    assert later.plan.budget is None or later.plan.budget == pytest.approx(1000.0)


def test_a_reserve_is_kept_for_spot_instances_unless_it_is_given() -> None:
    spot = Instance("spot", devices=4, price=3.6, minimum=60.0, provision=20.0, start=10.0, spot=True)
    plan = NodeController(spot, deadline=600.0, budget=None).decide(0.0, [job(*STAGES)], {}, 0).plan
    assert plan is not None
    assert plan.deadline == pytest.approx(600.0 - reserve_for(spot, 60.0))
    plan = NodeController(spot, deadline=600.0, budget=None, reserve=0.0).decide(0.0, [job(*STAGES)], {}, 0).plan
    assert plan is not None
    assert plan.deadline == 600.0

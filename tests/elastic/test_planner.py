"""The planner: within 1 % of the best of all plans, never dearer than the best static one, and in time."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.elastic.errors import DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.planner import Planner
from tests.elastic.plans import CASES, every_plan, random_case


@pytest.mark.parametrize("block", range(5))
def test_plans_are_within_one_percent_of_the_best_of_all(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        generator = random.Random(seed)
        job, instance = random_case(generator)
        ahead, running = generator.random() < 0.7, generator.choice([0, 0, 1, 4])
        every = every_plan(job, instance, running=running, ahead=ahead)
        earliest, latest = min(every)[0], max(every)[0]
        deadline = earliest + generator.choice([0.0, 0.05, 0.2, 0.5, 1.0]) * (latest - earliest)
        best = min(cost for seconds, cost, _ in every if seconds <= deadline)
        planner = Planner([job], instance, running=running, ahead=ahead)
        plan = planner.cheapest(deadline * (1 + 1e-9))
        assert plan.cost.expected <= best * 1.01 + 1e-9, seed
        budget = best * generator.choice([1.0, 1.1, 2.0]) * (1 + 1e-9)
        fastest = min(seconds for seconds, cost, _ in every if cost <= budget)
        assert planner.fastest(budget).seconds.expected <= fastest * 1.01 + 1e-9, seed


@given(case=CASES, share=st.floats(0.0, 1.2), ahead=st.booleans())
@settings(deadline=None)
def test_no_plan_is_late_or_dearer_than_the_best_static_one(
    case: tuple[Job, Instance], share: float, ahead: bool
) -> None:
    planner = Planner([case[0]], case[1], ahead=ahead)
    front = planner.front()
    first, last = front[0].seconds.expected, front[-1].seconds.expected
    deadline = (first + share * (last - first)) * (1 + 1e-9)
    plan = planner.cheapest(deadline)
    assert plan.seconds.expected <= deadline
    for other in (planner.static, planner.naive, planner.algorithm_2):
        try:
            compared = other(deadline)
        except DeadlineError:
            continue
        assert compared.seconds.expected <= deadline
        assert plan.cost.expected <= compared.cost.expected * (1 + 1e-9)


@given(case=CASES)
@settings(deadline=None)
def test_the_front_is_monotone(case: tuple[Job, Instance]) -> None:
    front = Planner([case[0]], case[1]).front()
    for before, after in itertools.pairwise(front):
        assert before.seconds.expected < after.seconds.expected
        assert before.cost.expected > after.cost.expected

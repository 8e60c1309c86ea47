"""The planner: within 1 % of the best of all plans, never dearer than the best static one, and in time."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.elastic.errors import DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.job_planner import upper
from hoptree.elastic.planner import Planner
from hoptree.elastic.samples import StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, timeline
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


def test_plans_are_near_the_best_of_all_where_trials_differ() -> None:
    ratios = []
    for seed in range(60):
        generator = random.Random(seed)
        job, instance = random_case(generator, spread=generator.choice([0.1, 0.2, 0.4]))
        model, terms = StageModel(job, instance), Terms(instance, job.data_gb, ahead=True)
        sampler = StageSampler(model, seed=0)
        figures = []
        for counts in itertools.product(range(1, 7), repeat=3):
            line = timeline(counts, sampler.times(counts), model, terms, longer=np.maximum)
            figures.append((upper(np.atleast_1d(line.seconds), 0.95), float(np.mean(line.cost))))
        earliest, latest = min(figures)[0], max(figures)[0]
        deadline = earliest + generator.choice([0.0, 0.02, 0.1, 0.3, 0.6]) * (latest - earliest)
        plan = Planner([job], instance).cheapest(deadline)
        assert plan.risk <= 0.05
        ratios.append(plan.cost.expected / min(cost for late, cost in figures if late <= deadline))
    assert sum(ratio < 1.01 for ratio in ratios) >= 57
    assert max(ratios) < 1.2


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

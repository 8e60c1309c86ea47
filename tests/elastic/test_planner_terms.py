"""The planner with jobs side by side, risk, limits on nodes, and what it refuses."""

import random
import re

import numpy as np
import pytest

from hoptree.core.errors import WorkloadError
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.planner import Planner
from hoptree.elastic.samples import StageSampler
from hoptree.elastic.stage_model import StageModel
from hoptree.elastic.timeline import Terms, timeline
from tests.elastic.plans import every_plan, random_case

SPEED_UPS = {1: 1.0, 2: 1.9, 4: 3.4, 8: 6.0}
INSTANCE = Instance("made-up", devices=4, price=12.0, provision=15.0, start=15.0)


def halving(trials: int, seconds: float, *, spread: float = 0.0) -> Job:
    stages = []
    while trials:
        stages.append(JobStage(trials, seconds, spread * seconds))
        trials, seconds = trials // 3, seconds * 3
    return Job(tuple(stages), SPEED_UPS)


BRACKETS = [halving(27, 60.0), halving(9, 180.0), halving(3, 540.0)]


def nodes_of(plan: AllocationPlan) -> list[list[int]]:
    return [[stage.nodes for stage in each.stages] for each in plan.allocations]


def test_jobs_side_by_side_are_all_in_time_and_their_costs_add_up() -> None:
    together = Planner(BRACKETS, INSTANCE).cheapest(3600.0)
    alone = [Planner([job], INSTANCE).cheapest(3600.0) for job in BRACKETS]
    assert nodes_of(together) == [nodes_of(each)[0] for each in alone]
    assert together.cost.expected == pytest.approx(sum(each.cost.expected for each in alone))
    assert together.seconds.expected == max(each.seconds.expected for each in alone) <= 3600.0


def test_the_fastest_of_several_jobs_keeps_to_the_budget() -> None:
    planner = Planner(BRACKETS, INSTANCE)
    front = planner.front()
    budget = (front[0].cost.expected + front[-1].cost.expected) / 2
    plan = planner.fastest(budget)
    assert plan.cost.expected <= budget
    assert plan.budget == budget
    assert planner.cheapest(plan.seconds.expected).cost.expected <= plan.cost.expected + 1e-9
    faster = [each for each in front if each.seconds.expected < plan.seconds.expected]
    assert all(each.cost.expected > budget for each in faster)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_jobs_never_have_more_nodes_than_there_may_be(most: int) -> None:
    instance = Instance("made-up", devices=4, price=12.0, max_count=most)
    planner = Planner(BRACKETS, instance)
    for plan in (planner.front()[0], planner.front()[-1], planner.cheapest(7200.0)):
        ends = [stage.ends for each in plan.allocations for stage in each.stages]
        assert max(plan.nodes_at(end - 1e-6) for end in ends) <= most
        assert sum(len(each.stages) for each in plan.allocations) == sum(len(job.stages) for job in BRACKETS)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("running", [0, 6])
def test_the_earliest_end_on_limited_nodes_can_be_met(most: int, running: int) -> None:
    instance = Instance("made-up", devices=4, price=12.0, max_count=most)
    planner = Planner(BRACKETS, instance, running=running)
    with pytest.raises(DeadlineError) as error:
        planner.cheapest(60.0)
    plan = planner.cheapest(error.value.earliest)
    assert plan.cost.expected <= error.value.cost * (1 + 1e-9)
    assert max(plan.nodes_at(stage.ends - 1e-6) for each in plan.allocations for stage in each.stages) <= most
    assert all(each.instance == instance for each in plan.allocations)
    assert planner.front()[0].seconds.expected >= error.value.earliest * 0.999


def test_running_nodes_are_used_and_not_paid_for_again() -> None:
    fresh = Planner([BRACKETS[0]], INSTANCE).cheapest(2000.0)
    again = Planner([BRACKETS[0]], INSTANCE, running=3).cheapest(2000.0)
    assert again.cost.expected < fresh.cost.expected
    assert again.allocations[0].stages[0].begins == 0.0
    shared = Planner(BRACKETS, INSTANCE, running=5).cheapest(2000.0)
    assert shared.cost.expected < Planner(BRACKETS, INSTANCE).cheapest(2000.0).cost.expected


def test_running_nodes_belong_to_the_jobs_that_need_them() -> None:
    long = Job((JobStage(1, 3000.0),), {1: 1.0})
    wide = Job((JobStage(30, 1000.0),), {1: 1.0})
    apart = [Planner([job], INSTANCE, running=have).cheapest(3100.0) for job, have in ((long, 1), (wide, 3))]
    together = Planner([long, wide], INSTANCE, running=4).cheapest(3100.0)
    assert together.cost.expected == pytest.approx(sum(each.cost.expected for each in apart))


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_late_in_few_samples_that_it_has_not_seen(seed: int) -> None:
    job = halving(27, 60.0, spread=0.2)
    first = Planner([job], INSTANCE, seed=seed)
    deadline = 1.3 * first.front()[0].seconds.most
    plan = first.cheapest(deadline)
    assert plan.risk <= 0.05
    (counts,) = nodes_of(plan)
    model = StageModel(job, INSTANCE)
    times = StageSampler(model, seed=seed + 1000, samples=2000).times(counts)
    unseen = timeline(counts, times, model, Terms(INSTANCE, 0.0, ahead=True), longer=np.maximum)
    assert np.mean(unseen.seconds > deadline) <= 0.1
    assert plan.seconds.least < plan.seconds.expected < plan.seconds.most <= deadline
    assert plan.cost.least <= plan.cost.expected <= plan.cost.most
    assert plan.cost.expected <= first.static(deadline).cost.expected
    bold = Planner([job], INSTANCE, seed=seed, risk=0.5).cheapest(deadline)
    assert bold.cost.expected <= plan.cost.expected


def test_the_risk_of_several_jobs_is_that_of_any() -> None:
    jobs = [halving(27, 60.0, spread=0.2), halving(9, 180.0, spread=0.2)]
    jobs = [*jobs, halving(3, 540.0, spread=0.2), halving(3, 540.0, spread=0.2)]
    planner = Planner(jobs, INSTANCE, risk=0.2)
    first = planner.front()[0].seconds.most
    for times in (1.1, 1.3, 1.5, 1.8):
        assert planner.cheapest(times * first).risk <= 0.2


def test_an_early_deadline_is_refused_with_the_earliest_and_its_cost() -> None:
    planner = Planner([BRACKETS[0]], INSTANCE)
    with pytest.raises(DeadlineError) as error:
        planner.cheapest(100.0)
    assert str(error.value).startswith("deadline: 100 s; expected at least ")
    earliest, cost = (float(said) for said in re.findall(r"(?:at least|be met for) ([\d.]+)", str(error.value)))
    assert error.value.earliest <= earliest < error.value.earliest + 1
    assert error.value.cost <= cost < error.value.cost + 0.01
    assert planner.cheapest(earliest).cost.expected <= cost
    assert planner.cheapest(error.value.earliest).cost.expected <= error.value.cost
    with pytest.raises(DeadlineError):
        planner.cheapest(error.value.earliest * 0.999)


def test_the_earliest_of_trials_that_differ_can_be_met() -> None:
    planner = Planner([halving(27, 60.0, spread=0.2)], INSTANCE)
    with pytest.raises(DeadlineError) as error:
        planner.cheapest(100.0)
    assert planner.cheapest(error.value.earliest).risk <= 0.05


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_a_small_budget_is_refused_with_the_least(spread: float) -> None:
    planner = Planner([halving(27, 60.0, spread=spread)], INSTANCE)
    with pytest.raises(BudgetError) as error:
        planner.fastest(0.0005)
    assert str(error.value).startswith("budget: 0.0005 dollars; expected at least ")
    (least,) = (float(said) for said in re.findall(r"at least ([\d.]+)", str(error.value)))
    assert error.value.least <= least < error.value.least + 0.01
    assert planner.fastest(least).risk <= 0.05
    assert planner.fastest(error.value.least).risk <= 0.05
    with pytest.raises(BudgetError):
        planner.fastest(error.value.least * 0.9)


def test_impossible_terms_are_refused() -> None:
    with pytest.raises(WorkloadError, match="jobs"):
        Planner([], INSTANCE)
    with pytest.raises(WorkloadError, match="running"):
        Planner(BRACKETS, INSTANCE, running=-1)
    with pytest.raises(WorkloadError, match="risk"):
        Planner(BRACKETS, INSTANCE, risk=1.0)
    with pytest.raises(WorkloadError, match="deadline"):
        Planner(BRACKETS, INSTANCE).cheapest(0.0)
    with pytest.raises(WorkloadError, match="budget"):
        Planner(BRACKETS, INSTANCE).fastest(float("nan"))


def test_the_same_seed_gives_the_same_plan() -> None:
    job = halving(27, 60.0, spread=0.3)
    plans = [Planner([job], INSTANCE, seed=3).cheapest(2500.0) for _ in range(2)]
    assert plans[0] == plans[1]


def test_algorithm_2_goes_to_factors_and_multiples_of_the_trials() -> None:
    # Eight nodes are needed for the last trial. Twelve trials take two turns on eight as on six.
    stages = (JobStage(12, 60.0), JobStage(5, 60.0), JobStage(1, 600.0))
    job = Job(stages, {1: 1.0, 8: 4.0}, divisible=False)
    planner = Planner([job], Instance("made-up", devices=1, price=3.6, max_count=8))
    assert nodes_of(planner.static(400.0)) == [[8, 8, 8]]
    assert nodes_of(planner.algorithm_2(400.0)) == [[6, 5, 8]]
    with pytest.raises(DeadlineError):
        planner.algorithm_2(100.0)


def test_blocking_scale_ups_cost_more_than_those_asked_for_ahead() -> None:
    cheaper = 0
    for seed in range(40):
        job, instance = random_case(random.Random(seed))
        deadline = float(np.median([seconds for seconds, _, _ in every_plan(job, instance, ahead=False)]))
        ahead = Planner([job], instance).cheapest(deadline).cost.expected
        blocking = Planner([job], instance, ahead=False).cheapest(deadline).cost.expected
        assert ahead <= blocking * (1 + 1e-9), seed
        cheaper += ahead < blocking * 0.999
    assert cheaper


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_free_nodes_and_any_amount_of_time_give_a_plan(seconds: float) -> None:
    job = Job((JobStage(8, seconds, seconds / 4), JobStage(1, seconds)), {1: 1.0, 2: 1.5})
    planner = Planner([job, job], Instance("made-up", devices=2, price=0.0, start=5.0), running=1)
    for plan in (planner.cheapest(float("inf")), planner.fastest(1e-9), planner.fastest(float("inf"))):
        assert plan.cost.expected == 0.0
        assert plan.risk == 0.0

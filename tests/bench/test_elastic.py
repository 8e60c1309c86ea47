"""The bench of money: the workloads of the paper, and what has to come out of its tables."""

import pytest
from bench.elastic.figures import resnet50
from bench.elastic.policies import POLICIES, compare
from bench.elastic.workloads import figure_12, halving, p3, table_2


def test_stages_are_those_of_the_paper() -> None:
    assert halving(32, 1, 50, 3) == [(32, 1), (10, 3), (3, 9), (1, 37)]
    assert halving(64, 4, 508) == [(64 >> n, 4 << n) for n in range(7)]
    assert halving(512, 4, 508)[-1] == (8, 256)
    for arguments in ((512, 4, 4096), (16, 4, 508), (128, 4, 508)):
        stages = halving(*arguments)
        assert sum(units for _, units in stages) == arguments[2]


def test_ours_costs_least_and_static_much_more_where_time_is_short() -> None:
    for job, instance in (table_2(), figure_12(10.0)):
        deadline = 1200.0 if len(job.stages) == 4 else 5400.0
        case = compare("tightest", job, instance, deadline)
        assert case.cost("ours") <= min(case.cost(policy) for policy in POLICIES) * (1 + 1e-9)
        assert case.cost("static") >= 1.6 * case.cost("ours")


def test_static_times_of_table_2_are_near_those_of_the_paper() -> None:
    job, instance = table_2()
    for minutes, seconds in ((20, 1164), (30, 1749), (40, 2213)):
        static = compare(f"{minutes}", job, instance, 60.0 * minutes).plans["static"]
        assert static is not None
        assert static.seconds.expected == pytest.approx(seconds, rel=0.07)


def test_stragglers_cost_less_if_functions_are_billed() -> None:
    costs = [
        compare("", resnet50(spread=10.0), p3(function=function), 600.0).cost("ours") for function in (False, True)
    ]
    assert costs[1] < 0.7 * costs[0]

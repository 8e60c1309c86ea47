"""The plan of a study: fixed and elastic nodes over a range of deadlines, with ranges and sources."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import pytest

import hoptree as ht
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.job import Job, JobStage
from hoptree.estimate import WIDE
from hoptree.forecast.study_plan import FigureSource, StudyPlan, plan_nodes
from tests.docs.pages import DOCS

INSTANCE = ht.Instance("large", devices=4, price=36.0, minimum=60.0, provision=30.0, start=10.0)
HALVING = Job(
    (JobStage(64, 120.0), JobStage(16, 480.0), JobStage(4, 1920.0), JobStage(1, 3000.0)),
    {1: 1.0, 2: 1.8, 4: 3.0},
)
SOURCES = [FigureSource("price", "$36.00 per hour", "given"), FigureSource("time of a unit", "1 s", "measured")]


def planned(deadline: float | None = None, budget: float | None = None, **options: Any) -> StudyPlan:
    given: dict[str, Any] = {"doubt": 0.1, "sources": SOURCES, "simulated": False, **options}
    return plan_nodes("digits", [HALVING], INSTANCE, deadline=deadline, budget=budget, **given)


def test_a_tight_deadline_is_cheaper_with_nodes_that_come_and_go() -> None:
    plan = planned(deadline=3000.0)
    assert plan.seconds <= 3000.0
    assert plan.static is not None
    assert plan.cost < plan.static.cost
    assert len(plan.stages) == 4
    assert plan.stages[0].nodes > plan.stages[-1].nodes
    assert all(row.saving is None or row.saving >= -1e-9 for row in plan.by_deadline)


def test_the_front_is_monotone_and_within_the_range_of_deadlines() -> None:
    plan = planned()
    assert [each.seconds for each in plan.front] == sorted(each.seconds for each in plan.front)
    assert [each.cost for each in plan.front] == sorted((each.cost for each in plan.front), reverse=True)
    assert plan.cost == plan.front[-1].cost
    deadlines = [row.deadline for row in plan.by_deadline]
    assert deadlines == sorted(deadlines)
    assert deadlines[0] >= plan.front[0].seconds


def test_a_budget_gives_the_fastest_plan_that_it_pays() -> None:
    cheapest = planned()
    plan = planned(budget=2 * cheapest.cost)
    assert plan.cost <= 2 * cheapest.cost
    assert plan.seconds < cheapest.seconds
    with pytest.raises(BudgetError) as caught:
        planned(budget=0.01)
    assert caught.value.least == pytest.approx(cheapest.cost, rel=0.05)


def test_a_deadline_that_cannot_be_met_says_the_earliest() -> None:
    with pytest.raises(DeadlineError) as caught:
        planned(deadline=60.0)
    assert planned(deadline=1.01 * caught.value.earliest).seconds <= 1.01 * caught.value.earliest


def test_ranges_hold_the_doubt_about_the_time_of_units() -> None:
    sure, unsure = planned(deadline=4000.0, doubt=0.0), planned(deadline=4000.0, doubt=0.3)
    assert sure.cost == unsure.cost
    assert unsure.chosen.cost_range[1] == pytest.approx(sure.chosen.cost_range[1] * math.exp(0.3 * WIDE))
    assert unsure.chosen.seconds_range[0] < sure.chosen.seconds_range[0] <= sure.seconds


def test_neither_latencies_nor_the_minimum_depend_on_the_time_of_units() -> None:
    short = Job((JobStage(4, 1.0),), {1: 1.0})
    plan = plan_nodes(
        "short", [short], INSTANCE, deadline=None, budget=None, doubt=1.0, sources=SOURCES, simulated=False
    )
    assert plan.cost == plan.chosen.cost_range[0] == pytest.approx(0.6)  # the minimum of one node
    assert 40.0 < plan.chosen.seconds_range[0] < plan.seconds


def test_the_text_has_both_clusters_the_stages_and_where_figures_come_from() -> None:
    plan = planned(deadline=3000.0, simulated=True)
    text = str(plan)
    for part in ("fixed nodes", "elastic nodes", "chosen", "devices of a trial", "given", "measured", "simulation"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_dictionary_follows_the_schema() -> None:
    rules = json.loads((DOCS / "json" / "plan.schema.json").read_text())
    found = json.loads(json.dumps(planned(deadline=3000.0).to_dict()))
    jsonschema.validators.validator_for(rules)(rules).validate(found)

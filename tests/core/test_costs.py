"""Learned costs: a formula over values, and books that agree with it."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core import repricing
from hoptree.core.costs import CostFormula, Feature
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import CostsLearned, WorkerDrained
from hoptree.core.keys import encode
from hoptree.core.lineage import Values, history, segments
from hoptree.core.nodes import Node
from hoptree.core.schedules import Config, linear, multistep
from tests.core.books import books_of
from tests.core.driver import Driver
from tests.histories import History
from tests.history_inputs import formula

WIDE = CostFormula(0.0, (Feature("width", "log", math.log(8), 1.0),), ((1.0, (0,)),), 0.01, 100.0)


def values_of(config: Config) -> Values:
    return segments(history(config), partitions=1, units=1)[0].values


@pytest.mark.parametrize(
    ("config", "seconds"),
    [({"width": 8}, 1.0), ({"width": 16}, 2.0), ({"width": 4}, 0.5), ({"lr": 1.0}, 1.0), ({"width": "wide"}, 1.0)],
)
def test_a_number_is_read_on_a_log_scale(config: Config, seconds: float) -> None:
    assert WIDE.of(values_of(config)) == seconds


def test_far_outside_of_what_was_measured_it_grows_no_further() -> None:
    assert WIDE.of(values_of({"width": 10**9})) == WIDE.of(values_of({"width": 10**6})) == 20.1


def test_categories_and_products_of_features() -> None:
    adam, deep = encode("adam").hex(), encode(True).hex()
    features = (
        Feature("optimizer", "is", level=adam),
        Feature("deep", "is", level=deep),
    )
    formula = CostFormula(0.0, features, ((math.log(2), (0,)), (math.log(3), (0, 1))))
    assert formula.of(values_of({"optimizer": "sgd", "deep": True})) == 1.0
    assert formula.of(values_of({"optimizer": "adam", "deep": False})) == 2.0
    assert formula.of(values_of({"optimizer": "adam", "deep": True})) == 6.0
    assert formula.of(values_of({"optimizer": "adam", "deep": 1})) == 2.0  # 1 is not True


def test_changes_of_values_within_a_unit_do_not_affect_the_cost() -> None:
    assert WIDE.of(values_of({"width": linear(8, 64, over=1)})) == 1.0


@given(st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_a_formula_never_leaves_its_bounds(base: float, weight: float) -> None:
    formula = CostFormula(base, (Feature("width", "linear"),), ((weight, (0, 0)),), 0.5, 50.0)
    assert 0.5 <= formula.of(values_of({"width": 3})) <= 50.0


def longest(engine: Engine, node: Node, unit: int) -> float:
    """The longest way from a place, the slow way: over all stops, through all children that wait."""
    ways = [0.0]
    for stop in node.targets:
        if stop > unit:
            ways.append((stop - unit) * node.cost)
            ways += [(stop - unit) * node.cost + longest(engine, c, stop) for c in node.waiters.get(stop, ())]
    return max(ways)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**63), st.integers(1, 80))
def test_after_costs_are_learned_all_counters_agree_with_them(seed: int, steps: int) -> None:
    past = History(Random(seed), steps)
    past.begin()
    for _ in range(steps):
        past.move()
    past.step(CostsLearned(formula(past.random)))
    books_agree(past)
    for node in past.engine.plan.nodes:
        for lineage in node.active:
            left = past.engine.open_work.longest(node, lineage.unit)
            assert lineage.peak - lineage.unit * node.cost == pytest.approx(left)
    past.calm()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**63), st.integers(1, 80), st.integers(1, 5))
def test_many_nodes_are_priced_in_parts_while_work_continues(seed: int, steps: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repricing, "AT_ONCE", at_once)
        past = History(Random(seed), steps)
        past.begin()
        for _ in range(steps):
            past.move()
        past.step(CostsLearned(formula(past.random)))
        while past.engine._repricing.under_way and past.random.random() < 0.9:
            past.move()
        past.step(CostsLearned(formula(past.random)))
        while past.engine._repricing.under_way:
            past.step(WorkerDrained("nobody"))  # which asks for nothing
        books_agree(past)
        past.calm()


def books_agree(past: History) -> None:
    engine = past.engine
    formula = engine.plan.formula
    assert formula is not None
    nodes = engine.plan.nodes
    assert all(node.cost == formula.of(node.values) for node in engine.plan.walk())
    assert engine.open_work.backlog == pytest.approx(sum(node.todo * node.cost for node in nodes))
    done = [0.0] * engine.settings.partitions
    for run in past.trained:
        done[run.partition] += nodes[run.node].cost
    assert engine.open_work.done == pytest.approx(done)
    for node in nodes:
        for lineage in node.active:
            assert engine.open_work.longest(node, lineage.unit) == pytest.approx(
                longest(engine, node, lineage.unit)
            )


def test_learned_costs_decide_the_order_also_for_new_nodes() -> None:
    driver = Driver(partitions=1, ahead=False)
    driver.ask(0, {"width": 8}, until=3)
    driver.ask(1, {"width": 64}, until=2)
    driver.step(CostsLearned(WIDE))
    driver.ask(2, {"width": 80}, until=2)
    driver.join("w0")
    first = driver.busy("w0")
    assert first is not None
    assert driver.engine.plan.nodes[first.node].values.constants() == {"width": 80}
    driver.finish()


def test_without_costs_the_most_units_go_first() -> None:
    driver = Driver(partitions=1, ahead=False)
    driver.ask(0, {"width": 8}, until=3)
    driver.ask(1, {"width": 64}, until=2)
    driver.join("w0")
    first = driver.busy("w0")
    assert first is not None
    assert driver.engine.plan.nodes[first.node].values.constants() == {"width": 8}


def test_a_formula_that_gives_no_times_is_refused_and_changes_nothing() -> None:
    driver = Driver(partitions=1)
    driver.ask(0, {"width": multistep(8, at=[1], gamma=2)}, until=2)
    before = books_of(driver.engine)
    with pytest.raises(WorkloadError, match="cost: .*expected a finite time"):
        driver.engine.step(CostsLearned(CostFormula(0.0, least=math.nan, most=math.nan)), 0.0)
    assert books_of(driver.engine) == before

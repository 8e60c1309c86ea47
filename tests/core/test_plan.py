"""The plan: append-only, independent of order, with stages on open_work and an exact merge rate."""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import config_items, history
from hoptree.core.nodes import Node, Place, State
from hoptree.core.plan import Plan, Stage, Work
from hoptree.core.schedules import (
    Config,
    Value,
    as_schedule,
    constant,
    cosine,
    cyclic,
    exponential,
    multistep,
    piecewise,
    warmup,
)
from hoptree.core.settings import Settings
from hoptree.core.trial import Trial
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload
from tests.core.strategies import configs

quick = settings(max_examples=80, deadline=None)
trials_ = st.lists(st.tuples(configs(), st.integers(1, 4)), min_size=1, max_size=6)
partitions_ = st.sampled_from([1, 2, 3, 4])


def store(node: Node, unit: int) -> None:
    node.states[unit] = State(node, unit, "somewhere", 0)


def add(plan: Plan, config: Config, epochs: int) -> Place:
    return plan.places(history(config), plan.root(""), [epochs])[0]


def snapshot(plan: Plan) -> list[tuple[int, int, str, int | None]]:
    return [(n.id, n.start, n.key, None if n.parent is None else n.parent.id) for n in plan.nodes]


def trial(number: int, config: Config, epochs: int, root: str = "") -> Trial:
    made = Trial(number, history(config), root, "", 0)
    made.until = epochs
    return made


# --- the tree ---------------------------------------------------------------------------------------------


@quick
@given(trials_, partitions_)
def test_adding_trials_changes_no_node(trials: list[tuple[Config, int]], partitions: int):
    plan = Plan(partitions)
    before: list[tuple[int, int, str, int | None]] = []
    for config, epochs in trials:
        add(plan, config, epochs)
        after = snapshot(plan)
        assert after[: len(before)] == before
        add(plan, config, epochs)
        assert snapshot(plan) == after
        before = after
    assert [node.id for node in plan.nodes] == list(range(len(plan.nodes)))
    assert [node.id for node in plan.walk()] == [node.id for node in plan.nodes if node.parent is not None]


@quick
@given(trials_, partitions_, st.randoms(use_true_random=False))
def test_places_do_not_depend_on_the_order_of_arrival(
    trials: list[tuple[Config, int]], partitions: int, shuffle: random.Random
):
    def places(order: list[int]) -> tuple[dict[int, tuple[str, int]], set[str]]:
        plan = Plan(partitions)
        found = {index: add(plan, *trials[index]) for index in order}
        return {i: (place.node.key, place.unit) for i, place in found.items()}, {n.key for n in plan.nodes}

    order = list(range(len(trials)))
    shuffle.shuffle(order)
    assert places(order) == places(list(range(len(trials))))


@quick
@given(configs(), partitions_, st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True).map(sorted))
def test_a_place_after_some_epochs_is_the_end_of_that_many(config: Config, partitions: int, epochs: list[int]):
    plan = Plan(partitions)
    together = plan.places(history(config), plan.root(""), epochs)
    assert together == [add(plan, config, epoch) for epoch in epochs]
    for place, epoch in zip(together, epochs, strict=True):
        assert place.unit == epoch * partitions
        assert place.node.start < place.unit


def test_no_epochs_are_no_places():
    plan = Plan(2)
    assert plan.places(history({"lr": 0.1}), plan.root(""), []) == []


def test_an_unshared_trial_has_a_private_tree_with_the_same_keys():
    plan = Plan(2)
    shared = plan.path(history({"lr": 0.1}), plan.root("r"), 4)
    alone = plan.path(history({"lr": 0.1}), plan.root("r", "tiny/7"), 4)
    assert shared != alone
    assert [node.key for node in shared] == [node.key for node in alone]
    assert shared[0].state_key(1) != alone[0].state_key(1)


def test_a_plan_refuses_an_epoch_of_no_partitions_and_costs_that_cannot_be():
    with pytest.raises(WorkloadError, match=r"^partitions: 0; an epoch needs at least one"):
        Plan(0)
    for cost in (-1.0, float("nan"), float("inf")):
        with pytest.raises(WorkloadError, match=r"^cost: "):
            add(Plan(1, lambda values, cost=cost: cost), {"lr": 0.1}, 1)


# --- the deepest stored ancestor --------------------------------------------------------------------------


@quick
@given(trials_, partitions_, st.data())
def test_the_source_is_the_deepest_stored_state_on_the_way(
    trials: list[tuple[Config, int]], partitions: int, data: st.DataObject
):
    plan = Plan(partitions)
    ways = [_way(plan, config, epochs) for config, epochs in trials]
    states = sorted({(node.id, unit) for way in ways for node, unit in way})
    for number, unit in data.draw(st.lists(st.sampled_from(states), max_size=6)):
        store(plan.nodes[number], unit)
    for way in ways:
        for end in range(len(way)):
            stored = [Place(node, unit) for node, unit in way[: end + 1] if unit in node.states]
            assert plan.source(*way[end]) == (stored[-1] if stored else None)


def _way(plan: Plan, config: Config, epochs: int) -> list[Place]:
    """Return the places of all units of a trial, in order."""
    way = plan.path_with_ends(trial(0, config, epochs), epochs * plan.partitions)
    return [Place(node, unit) for node, end in way for unit in range(node.start + 1, end + 1)]


# --- stages -----------------------------------------------------------------------------------------------

# Figure 1.1 of the stage-tree paper: 100 steps are one epoch of two units.
A, B, C, D, E, F = 0.1, 0.05, 0.02, 0.01, 0.005, 0.2
FIGURE_1_1: list[Config] = [
    {"lr": piecewise([A, C], at=[2])},
    {"lr": piecewise([A, B], at=[1])},
    {"lr": piecewise([A, B, D], at=[1, 2])},
    {"lr": piecewise([A, B, E], at=[1, 2])},
]
TRIAL_5: Config = {"lr": piecewise([A, F], at=[1.5])}


def named(plan: Plan, stages: list[Stage]) -> set[tuple[float, int, int, tuple[float, int, int] | None]]:
    """Return stages as (value, first unit, last unit, the stage before)."""

    def name(stage: Stage) -> tuple[float, int, int]:
        value = plan.nodes[stage.node].values.at(stage.first / plan.partitions)["lr"]
        assert isinstance(value, float)
        return value, stage.first, stage.last

    return {(*name(s), None if s.after is None else name(stages[s.after])) for s in stages}


def test_stages_of_figure_3_1():
    plan = Plan(2)
    requests = [add(plan, config, 3) for config in FIGURE_1_1]
    a1, b1 = (A, 0, 2), (B, 2, 4)
    assert named(plan, plan.stages(requests)) == {
        (*a1, None),
        (A, 2, 4, a1),
        (C, 4, 6, (A, 2, 4)),
        (*b1, a1),
        (B, 4, 6, b1),
        (D, 4, 6, b1),
        (E, 4, 6, b1),
    }


def test_stages_of_figure_3_2_are_split_and_the_plan_is_only_added_to():
    plan = Plan(2)
    requests = [add(plan, config, 3) for config in FIGURE_1_1]
    before = snapshot(plan)
    requests.append(add(plan, TRIAL_5, 3))
    assert snapshot(plan)[:-1] == before
    a1, a3, a4, b1 = (A, 0, 2), (A, 2, 3), (A, 3, 4), (B, 2, 4)
    assert named(plan, plan.stages(requests)) == {
        (*a1, None),
        (*a3, a1),
        (*a4, a3),
        (F, 3, 6, a3),
        (C, 4, 6, a4),
        (*b1, a1),
        (B, 4, 6, b1),
        (D, 4, 6, b1),
        (E, 4, 6, b1),
    }


def test_stages_begin_at_the_deepest_stored_states():
    plan = Plan(2)
    requests = [add(plan, config, 3) for config in [*FIGURE_1_1, TRIAL_5]]
    node_a = plan.path(history({"lr": A}), plan.root(""), 1)[0]
    node_b = requests[1].node
    store(node_a, 3)  # A3: trials 1 and 5 go on from here
    store(node_b, 5)  # trial 2 goes on from here, trials 3 and 4 begin at the beginning
    store(*requests[3])  # trial 4 has nothing left to train
    a1, a4, b1 = (A, 0, 2), (A, 3, 4), (B, 2, 4)
    assert named(plan, plan.stages(requests)) == {
        (*a1, None),
        (*a4, None),
        (C, 4, 6, a4),
        (F, 3, 6, None),
        (*b1, a1),
        (B, 5, 6, None),
        (D, 4, 6, b1),
    }
    store(node_b, 4)
    assert named(plan, plan.stages(requests)) == {
        (*a4, None),
        (C, 4, 6, a4),
        (F, 3, 6, None),
        (B, 5, 6, None),
        (D, 4, 6, None),
    }


@quick
@given(trials_, partitions_, st.data())
def test_stages_are_exactly_what_is_missing_cut_where_something_ends(
    trials: list[tuple[Config, int]], partitions: int, data: st.DataObject
):
    plan = Plan(partitions)
    ways = [_way(plan, config, epochs) for config, epochs in trials]
    states = sorted({(node.id, unit) for way in ways for node, unit in way})
    for number, unit in data.draw(st.lists(st.sampled_from(states), max_size=6)):
        store(plan.nodes[number], unit)
    missing: set[tuple[int, int]] = set()
    ends: set[tuple[int, int]] = set()
    for way in ways:
        stored = [index for index, (node, unit) in enumerate(way) if unit in node.states]
        rest = way[stored[-1] + 1 if stored else 0 :]
        missing |= {(node.id, unit) for node, unit in rest}
        for (node, unit), (after, _) in pairwise(rest):
            if after is not node:
                ends.add((node.id, unit))
        if rest:
            ends.add((rest[-1].node.id, rest[-1].unit))
    stages = plan.stages([way[-1] for way in ways])
    trained = [(stage.node, unit) for stage in stages for unit in range(stage.first + 1, stage.last + 1)]
    assert sorted(trained) == sorted(missing)
    assert {(stage.node, stage.last) for stage in stages} == ends
    for index, stage in enumerate(stages):
        node = plan.nodes[stage.node]
        begin = node.parent if stage.first == node.start else node
        assert begin is not None
        if stage.after is None:
            assert stage.first == 0 or stage.first in begin.states
        else:
            before = stages[stage.after]
            assert stage.after < index
            assert (before.node, before.last) == (begin.id, stage.first)


# --- the merge rate ---------------------------------------------------------------------------------------


def unique_units(trials: list[tuple[Config, int]], partitions: int) -> int:
    """Count by brute force the different prefixes of the values of units, seen at four moments of each unit."""
    seen: set[tuple[object, ...]] = set()
    for config, epochs in trials:
        prefix: list[object] = []
        for unit in range(epochs * partitions):
            moments = [(unit + (2 * quarter + 1) / 8) / partitions for quarter in range(4)]
            prefix.append(tuple((n, as_schedule(v)(t)) for n, v in sorted(config.items()) for t in moments))
            seen.add(tuple(prefix))
    return len(seen)


@quick
@given(trials_, partitions_)
def test_the_merge_rate_counts_equal_prefixes_once(trials: list[tuple[Config, int]], partitions: int):
    plan = Plan(partitions)
    work = plan.work([trial(number, *asked) for number, asked in enumerate(trials)])
    assert work.asked == sum(epochs for _, epochs in trials) * partitions
    forms: set[tuple[object, ...]] = set()
    for config, epochs in trials:
        way = plan.path_with_ends(trial(0, config, epochs), epochs * partitions)
        units = [(n.start, n.values) for n, end in way for _ in range(n.start, end)]
        forms |= {tuple(units[: end + 1]) for end in range(len(units))}
    assert work.unique == len(forms)
    assert work.merge_rate == work.asked / work.unique


@pytest.mark.parametrize("count", [1, 2, 7])
def test_identical_trials_merge_into_one(count: int):
    work = Plan(3).work([trial(number, {"lr": cosine(0.1, period=2)}, 4) for number in range(count)])
    assert work == Work(asked=12 * count, unique=12)
    assert work.merge_rate == count


def test_no_work_has_a_merge_rate_of_one():
    assert Plan(3).work([]).merge_rate == 1.0


def test_the_merge_rate_of_several_studies_is_that_of_all_their_trials():
    engine = Engine(Settings(2))
    grid: list[Config] = [{"lr": 0.1}, {"lr": multistep(0.1, at=[2], gamma=0.1)}]
    asked = [
        ("one", "data", grid[0]),
        ("one", "data", grid[1]),
        ("two", "data", grid[0]),
        ("two", "other", grid[0]),
    ]
    for number, (study, root, config) in enumerate(asked):
        engine.step(TrialAsked(number, config_items(config), 4, study=study, root=root), 0.0)
    trials = list(engine.trials.values())
    studies = [[t for t in trials if t.study == name] for name in ("one", "two")]
    assert engine.plan.work(studies[0]) == Work(16, 12)
    assert engine.plan.work(studies[1]) == Work(16, 16)
    assert engine.plan.work(trials) == Work(32, 20)  # trial 2 is trial 0; trial 3 has other data


# The kinds of sequences of table 6.1 of the stage-tree paper.
RATES: list[Value] = [
    multistep(0.1, at=[3, 5], gamma=0.1),
    multistep(0.1, at=[3, 4], gamma=0.1),
    cyclic(0.01, 0.1, up=1, down=1),
    cyclic(0.01, 0.1, up=1, down=2),
    warmup(0.01, 1, multistep(0.1, at=[2], gamma=0.1)),
    warmup(0.01, 1, multistep(0.1, at=[3], gamma=0.1)),
    warmup(0.01, 1, exponential(0.1, 0.9)),
    warmup(0.01, 1, exponential(0.1, 0.95)),
    warmup(0.01, 1, cosine(0.1, period=5)),
    warmup(0.01, 1, cosine(0.1, period=2.3, gamma=2.0)),
]
BATCH_SIZES: list[Value] = [constant(64), multistep(64, at=[4], gamma=2), multistep(64, at=[2.6], gamma=2)]
MOMENTA: list[Value] = [0.9, multistep(0.9, at=[3], gamma=0.5)]
GRID: list[Config] = [
    {"lr": lr, "batch_size": size, "momentum": momentum, "weight_decay": 1e-4, "optimizer": "sgd"}
    for lr, size, momentum in product(RATES, BATCH_SIZES, MOMENTA)
]


@pytest.mark.parametrize("partitions", [1, 3, 4])
def test_the_merge_rate_of_a_grid_over_sequences_is_exact(partitions: int):
    trials = [(config, 6) for config in GRID]
    work = Plan(partitions).work([trial(number, *asked) for number, asked in enumerate(trials)])
    assert work.asked == len(GRID) * 6 * partitions
    assert work.unique == unique_units(trials, partitions)
    assert work.merge_rate > 1.5


@pytest.mark.parametrize("order", ["strict", "free"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_simulated_work_is_the_total_over_the_merge_rate(order: str, workers: int):
    workload = Workload(configs=GRID[::3], epochs=5, partitions=3)
    result = simulate(workload, Cluster(workers=workers), order=order)
    assert result.units == result.work.unique == unique_units([(config, 5) for config in GRID[::3]], 3)
    assert result.units == round(result.work.asked / result.work.merge_rate)
    alone = simulate(Workload(configs=GRID[::3], epochs=5, partitions=3, share=False), Cluster(workers=workers))
    assert alone.units == alone.work.asked == alone.work.unique == result.work.asked


@settings(max_examples=25, deadline=None)
@given(st.lists(configs(), min_size=1, max_size=8), st.sampled_from([1, 2, 4]), st.integers(1, 3))
def test_any_simulated_grid_trains_every_unique_unit_once(some: list[Config], partitions: int, epochs: int):
    result = simulate(Workload(configs=some, epochs=epochs, partitions=partitions), Cluster(workers=2))
    assert result.units == result.work.unique
    assert {t.ending for t in result.engine.trials.values()} == {"complete"}

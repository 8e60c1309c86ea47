"""Lineage: how a history is cut into units, what two histories share, and what a key depends on."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import History, branched, config_items, history, segments
from hoptree.core.nodes import Node, State
from hoptree.core.plan import Plan
from hoptree.core.schedules import Config, as_schedule, constant, cyclic, linear, multistep, piecewise, warmup
from tests.core.strategies import configs

quick = settings(max_examples=120, deadline=None)
partitions_ = st.sampled_from([1, 2, 4, 8])


def way(plan: Plan, phases: History, units: int, root: str = "") -> list[Node]:
    """Return the node of each unit of a history."""
    path = plan.path(phases, plan.root(root), units)
    ends = [*(node.start for node in path[1:]), units]
    return [node for node, end in zip(path, ends, strict=True) for _ in range(node.start, end)]


def unit_forms(phases: History, partitions: int, units: int) -> list[dict[str, list[object]]]:
    """Return by brute force, for every unit and name, the forms in it and where they change."""
    found: list[dict[str, list[object]]] = []
    for unit in range(units):
        first, last = unit / partitions, (unit + 1) / partitions
        phase = [phase for phase in phases if phase.start <= first][-1]
        values: dict[str, list[object]] = {}
        for name, value in phase.config:
            inside: list[object] = []
            for piece in as_schedule(value).pieces():
                if piece.start >= last:
                    break
                if piece.start <= first:
                    inside = [piece.form]
                else:
                    inside += [piece.start, piece.form]
            values[name] = inside
        found.append(values)
    return found


def starts(value: object, partitions: int, units: int) -> list[int]:
    return [segment.start for segment in segments(history({"lr": value}), partitions, units)]


# --- cutting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "partitions", "units", "expected"),
    [
        (0.1, 4, 12, [0]),
        (multistep(0.1, at=[2], gamma=0.1), 4, 8, [0]),  # the milestone comes after the last unit
        (multistep(0.1, at=[2], gamma=0.1), 4, 9, [0, 8]),
        (multistep(0.1, at=[1.1], gamma=0.1), 2, 6, [0, 2, 3]),  # unit 2 stands alone
        (multistep(0.1, at=[1.1, 1.2, 1.3], gamma=0.1), 2, 6, [0, 2, 3]),  # with all that happens in it
        (multistep(0.1, at=[1.1, 1.5], gamma=0.1), 2, 6, [0, 2, 3]),
        (multistep(0.1, at=[1.1, 1.6], gamma=0.1), 2, 6, [0, 2, 3, 4]),
        (multistep(0.1, at=[0.1], gamma=0.1), 1, 1, [0]),
        (multistep(0.1, at=[2.9], gamma=0.1), 2, 6, [0, 5]),  # the last unit stands alone
        (warmup(0.0, 1.5, constant(0.1)), 2, 8, [0, 3]),
        (cyclic(0.0, 1.0, up=1, down=1), 2, 8, [0, 2, 4, 6]),
        (piecewise([0.1, 0.2, 0.1], at=[1.1, 1.4]), 2, 6, [0, 2, 3]),
    ],
)
def test_segments_begin_where_forms_change(value: object, partitions: int, units: int, expected: list[int]):
    assert starts(value, partitions, units) == expected


@pytest.mark.parametrize(
    ("at", "partitions", "unit"), [(0.3, 10, 3), (0.29, 100, 29), (1.1, 10, 11), (33.3, 30, 999)]
)
def test_a_decimal_milestone_on_an_edge_does_not_cut_a_unit(at: float, partitions: int, unit: int):
    assert starts(multistep(0.1, at=[at], gamma=0.1), partitions, unit + 5) == [0, unit]


@given(st.integers(1, 300), st.data())
def test_a_milestone_at_a_unit_boundary_may_be_any_nearby_float(partitions: int, data: st.DataObject):
    edge = data.draw(st.integers(1, 200 * partitions))
    for at in (edge / partitions, float(f"{edge / partitions:.15g}"), (1 / partitions) * edge):
        assert starts(multistep(0.1, at=[at], gamma=0.1), partitions, edge + 1) == [0, edge]
        assert starts(multistep(0.1, at=[at], gamma=0.1), partitions, edge) == [0]


@quick
@given(configs(), partitions_, st.integers(1, 40))
def test_segments_cover_the_units_with_the_forms_of_each(config: Config, partitions: int, units: int):
    cut = segments(history(config), partitions, units)
    assert cut[0].start == 0
    assert all(one.start < two.start for one, two in itertools.pairwise(cut))
    expected = [
        {name: tuple(forms) for name, forms in unit.items()}
        for unit in unit_forms(history(config), partitions, units)
    ]
    ends = [*(segment.start for segment in cut[1:]), units]
    found = [dict(s.values.items) for s, end in zip(cut, ends, strict=True) for _ in range(s.start, end)]
    assert found == expected


@quick
@given(configs(), partitions_, st.integers(1, 24), st.floats(0, 1, exclude_max=True))
def test_values_within_a_unit_are_the_schedules_values(config: Config, partitions: int, units: int, within: float):
    for segment in segments(history(config), partitions, units):
        assume(segment.start + within < segment.start + 1)  # the sum may be rounded up to the next unit
        progress = (segment.start + within) / partitions
        expected = {name: as_schedule(value)(progress) for name, value in sorted(config.items())}
        assert segment.values.at(progress) == expected


def test_values_change_in_the_middle_of_a_unit():
    cut = segments(history({"lr": multistep(8.0, at=[1.25, 1.375], gamma=0.5), "seed": 3}), partitions=2, units=6)
    assert [segment.start for segment in cut] == [0, 2, 3]
    middle = cut[1].values
    assert middle.at(1.0) == {"lr": 8.0, "seed": 3}
    assert middle.at(math.nextafter(1.25, 0)) == {"lr": 8.0, "seed": 3}
    assert middle.at(1.25) == {"lr": 4.0, "seed": 3}
    assert middle.at(1.375) == {"lr": 2.0, "seed": 3}
    assert middle.at(1.49) == {"lr": 2.0, "seed": 3}


@quick
@given(configs(), partitions_, st.integers(1, 20), st.integers(0, 20))
def test_a_longer_history_begins_with_the_shorter_one(config: Config, partitions: int, units: int, more: int):
    short = segments(history(config), partitions, units)
    assert segments(history(config), partitions, units + more)[: len(short)] == short


# --- sharing ----------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(configs(), configs(), partitions_)
def test_two_histories_share_the_units_before_the_first_in_which_a_value_differs(
    one: Config, two: Config, partitions: int
):
    units = 5 * partitions
    forms = [unit_forms(history(config), partitions, units) for config in (one, two)]
    differ = [a != b for a, b in zip(*forms, strict=True)]
    expected = differ.index(True) if True in differ else units
    plan = Plan(partitions)
    ways = [way(plan, history(config), units) for config in (one, two)]
    shared = [a is b for a, b in zip(*ways, strict=True)]
    assert shared == [unit < expected for unit in range(units)]


def test_trials_that_diverge_within_a_unit_share_the_units_before_it():
    plan = Plan(4)
    ways = [way(plan, history({"lr": multistep(0.1, at=[at], gamma=0.1)}), 12) for at in (1.3, 1.35, 1.6)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert [sum(a is b for a, b in zip(ways[i], ways[j], strict=True)) for i, j in pairs] == [5, 5, 5]


# --- keys -------------------------------------------------------------------------------------------------


@quick
@given(st.lists(configs(), min_size=2, max_size=6), partitions_, st.randoms(use_true_random=False))
def test_keys_depend_on_the_own_history_only(some: list[Config], partitions: int, shuffle: random.Random):
    units = 4 * partitions

    def keys(order: list[Config]) -> dict[int, list[str]]:
        plan = Plan(partitions)
        return {id(config): [node.key for node in way(plan, history(config), units)] for config in order}

    together = keys(some)
    mixed = some.copy()
    shuffle.shuffle(mixed)
    assert keys(mixed) == together
    for config in some:
        assert keys([config])[id(config)] == together[id(config)]


@quick
@given(configs(), configs(), partitions_)
def test_equal_keys_are_equal_units_and_the_root_is_part_of_them(one: Config, two: Config, partitions: int):
    units = 3 * partitions
    plan = Plan(partitions)
    ways = [way(plan, history(config), units) for config in (one, two)]
    states = [[State(node, unit + 1, "", 0).key for unit, node in enumerate(nodes)] for nodes in ways]
    assert len(set(states[0])) == units
    for unit in range(units):
        assert (states[0][unit] == states[1][unit]) == (ways[0][unit] is ways[1][unit])
    other = way(plan, history(one), units, root="another dataset")
    assert not {node.key for node in other} & {node.key for node in plan.nodes if node not in other}


def test_partitions_are_part_of_the_key():
    assert Plan(2).root("").key != Plan(3).root("").key


# --- branches ---------------------------------------------------------------------------------------------


@quick
@given(configs(), partitions_, st.integers(1, 4), st.integers(0, 4))
def test_a_branch_into_the_same_config_is_the_same_lineage(config: Config, partitions: int, at: int, again: int):
    phases = branched(history(config), at, config)
    if again:
        phases = branched(phases, at + again, config)
    units = 8 * partitions
    assert segments(phases, partitions, units) == segments(history(config), partitions, units)


@quick
@given(configs(), configs(), partitions_, st.integers(1, 3))
def test_a_branch_has_the_forms_of_each_phase(one: Config, two: Config, partitions: int, at: int):
    phases = branched(history(one), at, two)
    units = 5 * partitions
    cut = segments(phases, partitions, units)
    ends = [*(segment.start for segment in cut[1:]), units]
    found = [dict(s.values.items) for s, end in zip(cut, ends, strict=True) for _ in range(s.start, end)]
    expected = unit_forms(phases, partitions, units)
    assert found == [{name: tuple(forms) for name, forms in unit.items()} for unit in expected]


def test_a_branch_counts_progress_from_the_beginning():
    phases = branched(history({"lr": 0.5}), 2, {"lr": linear(0.0, 1.0, over=4)})
    assert segments(phases, 1, 4)[-1].values.at(3.0) == {"lr": 0.75}


def test_a_second_branch_at_an_earlier_epoch_replaces_the_first():
    once = branched(history({"lr": 0.5}), 4, {"lr": 0.1})
    assert branched(once, 2, {"lr": 0.2}) == branched(history({"lr": 0.5}), 2, {"lr": 0.2})


def test_a_name_may_come_and_go():
    phases = branched(history({"lr": 0.5, "cutout": 8}), 1, {"lr": 0.5, "mixup": 0.2})
    cut = segments(phases, 1, 2)
    assert [(s.start, s.values.at(s.start)) for s in cut] == [
        (0, {"lr": 0.5, "cutout": 8}),
        (1, {"lr": 0.5, "mixup": 0.2}),
    ]


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "config: it is empty"),
        ({"": 1}, "config: the name ''; expected"),
        ({3: 1}, "config: the name 3; expected"),
        ({"lr": math.nan}, "config['lr']: value: nan; expected"),
        ({"lr": 0.1, "layers": [1, 2]}, "config['layers']: value: [1, 2]; expected"),
    ],
)
def test_impossible_configs_are_refused_by_name(config: Config, message: str):
    with pytest.raises(WorkloadError) as caught:
        config_items(config)
    assert str(caught.value).startswith(message)


def test_the_order_of_names_does_not_matter():
    assert config_items({"b": 1, "a": 2}) == config_items({"a": 2, "b": 1}) == (("a", 2), ("b", 1))

"""Rules: what each of them prefers, and a dry run is at least as good as all of them."""

import pytest
from hypothesis import HealthCheck, given, settings

from hoptree.optimize.joint.bounds import joint_bound, load_bound
from hoptree.optimize.joint.dry_run import dry_run
from hoptree.optimize.joint.improve import improve
from hoptree.optimize.joint.problem import grid_of, parse_joint
from hoptree.optimize.joint.randomized import monte_carlo, random_order
from hoptree.optimize.joint.rules import follow, rules_of, strict_rotation
from hoptree.optimize.joint.schedule import makespan_of, order_of, place
from hoptree.optimize.joint.widths import at_most, whole_nodes, within
from tests.optimize.joint.problems import problems


def prepare(problem):
    parsed = parse_joint(*problem)
    bound = joint_bound(parsed)
    return parsed, grid_of(parsed, bound), bound


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems())
def test_a_dry_run_is_never_worse_than_a_rule(problem):
    parsed, grid, bound = prepare(problem)
    best = makespan_of(dry_run(parsed, grid, bound, 60, 1))
    orders = [follow(parsed, grid, rule) for rule in rules_of(parsed, bound)]
    orders += [strict_rotation(parsed), random_order(parsed, grid, 1)]
    for order in orders:
        assert best <= makespan_of(place(parsed, grid, order)) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_every_rule_makes_every_visit_that_takes_time(problem):
    parsed, grid, bound = prepare(problem)
    wanted = {(i, n) for i, row in enumerate(parsed.options) for n, o in enumerate(row) if o[-1].seconds > 0}
    for rule in rules_of(parsed, bound):
        order = follow(parsed, grid, rule)
        assert len(order) == len(wanted)
        assert {(config, node) for config, node, _ in order} == wanted


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_local_search_and_monte_carlo_never_lengthen(problem):
    parsed, grid, bound = prepare(problem)
    start = place(parsed, grid, random_order(parsed, grid, 2))
    better = place(parsed, grid, improve(parsed, grid, order_of(parsed, start), bound, float("inf"), 0))
    assert makespan_of(better) <= makespan_of(start) * (1 + 1e-9)
    assert makespan_of(monte_carlo(parsed, grid, bound, 60, 2)) <= makespan_of(start) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_a_schedule_survives_its_order(problem):
    parsed, grid, _ = prepare(problem)
    visits = place(parsed, grid, random_order(parsed, grid, 0))
    again = place(parsed, grid, order_of(parsed, visits))
    assert makespan_of(again) <= makespan_of(visits) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_shared_weights_give_at_least_the_bound_of_one_load(problem):
    parsed, grid, bound = prepare(problem)
    assert (
        load_bound(parsed) <= bound <= makespan_of(place(parsed, grid, random_order(parsed, grid, 0))) * (1 + 1e-12)
    )


def test_the_bound_weighs_configs_against_nodes():
    # Narrow visits take 4 + 4 for a config, wide ones 5 device seconds each on a node: no choice is good for both.
    parsed = parse_joint([[{1: 4, 2: 2.5}, {1: 4, 2: 2.5}]] * 3, [2, 2])
    assert load_bound(parsed) == 6
    assert joint_bound(parsed) == pytest.approx(6.75, rel=0.02)


@pytest.mark.parametrize(("configs", "nodes"), [(6, 8), (6, 3), (10, 3), (3, 3), (2, 5)])
def test_equal_configs_that_scale_linearly_rotate_through_whole_nodes(configs, nodes):
    parsed, grid, bound = prepare(([[{1: 4.0, 2: 2.0}] * nodes] * configs, [2] * nodes))
    assert makespan_of(place(parsed, grid, strict_rotation(parsed))) == bound == 2 * max(configs, nodes)


def test_preferences():
    parsed = parse_joint([[{1: 8, 2: 5, 4: 3}, {2: 6}, {1: 4, 2: 3}]], [4, 2, 2])
    assert whole_nodes(parsed) == ((2, 0, 1),)
    assert at_most(parsed, 1) == ((0, 0, 0),)
    assert at_most(parsed, 2) == ((1, 0, 1),)
    assert within(parsed, 18) == ((0, 0, 0),)
    assert within(parsed, 15) == ((1, 0, 0),)
    assert within(parsed, 1) == ((2, 0, 1),)


def test_free_devices_go_to_the_longest_path():
    # Config 0 has more left, so it gets three of the four devices and config 1 one.
    times = [[{1: 9, 3: 3}, {1: 9}], [{1: 3, 3: 1}, {1: 1}]]
    parsed, grid, bound = prepare((times, [4, 1]))
    assert makespan_of(dry_run(parsed, grid, bound, 60, 0)) == 12

"""The problems of figures 4.1 to 4.3, and charts of their schedules."""

import pytest
from bench.decisions.joint import timeline
from bench.decisions.joint_figures import FIGURES, SCALINGS

from hoptree.optimize import joint_lower_bound, solve_joint

DEVICES = [(2,) * 8, (4, 2, 2), (4, 2, 2)]


def test_figures_have_the_tasks_and_nodes_of_the_thesis():
    assert [figure.devices for figure in FIGURES] == DEVICES
    assert [figure.tasks for figure in FIGURES] == [6, 6, 10]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_a_node_has_as_many_shards_as_devices(figure):
    shards = figure.shards(0)
    assert all(750 <= seconds <= 1000 for seconds in shards)
    for scaling, speeds in SCALINGS.items():
        for row, seconds in zip(figure.times(scaling, 0), shards, strict=True):
            for visit, count in zip(row, figure.devices, strict=True):
                assert visit == {
                    width: seconds * count / speed for width, speed in speeds.items() if width <= count
                }


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_linear_scaling_meets_the_bound(figure):
    for seed in range(5):
        times = figure.times("linear", seed)
        solution = solve_joint(times, figure.devices, method="dry-run", seed=seed)
        assert solution.makespan <= 1.01 * joint_lower_bound(times, figure.devices)


def test_a_chart_has_a_row_for_each_device():
    figure = FIGURES[1]
    solution = solve_joint(figure.times("poor", 0), figure.devices, method="dry-run")
    drawn = timeline(figure, solution)
    assert len(drawn.workers) == sum(figure.devices)
    assert drawn.makespan == solution.makespan

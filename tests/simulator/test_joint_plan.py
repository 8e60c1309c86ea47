"""A solved joint schedule is followed by the engine, until dry runs find something better."""

from __future__ import annotations

import pytest
from bench.decisions.joint import AIMS
from bench.decisions.joint_engine import run
from bench.decisions.joint_figures import FIGURES

from hoptree.core.errors import WorkloadError
from hoptree.forecast.simulation import simulate
from hoptree.optimize import solve_joint
from hoptree.optimize.joint.bounds import load_bound
from hoptree.optimize.joint.problem import parse_joint
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
@pytest.mark.parametrize("scaling", ["linear", "sublinear", "poor"])
def test_the_engine_meets_the_aims_of_the_figures(figure, scaling):
    bound = load_bound(parse_joint(figure.times(scaling, 0), figure.devices))
    assert run(figure, scaling, 0).makespan <= AIMS[scaling] * bound


@pytest.mark.parametrize("method", ["random", "dry-run"])
@pytest.mark.parametrize("scaling", ["sublinear", "poor"])
def test_a_run_is_hardly_longer_than_the_solution_that_it_follows(method, scaling):
    figure = FIGURES[1]
    solution = solve_joint(figure.times(scaling, 1), figure.devices, method=method, seed=1)
    assert run(figure, scaling, 1, policy=solution).makespan <= solution.makespan * 1.005


def test_a_solution_of_another_shape_is_refused():
    solution = solve_joint([[{1: 1.0}, {1: 1.0}]], [1, 1], method="dry-run")
    cluster = Cluster(nodes=[2, 2], scaling={"data": "linear"})
    with pytest.raises(WorkloadError, match="^policy: a joint solution of 1 configs on 2 nodes; expected 3"):
        simulate(Workload(configs=3, partitions=4), cluster, policy=solution, order="free")
    with pytest.raises(WorkloadError, match="^policy: a joint solution with order 'strict'"):
        simulate(Workload(configs=1, partitions=4), cluster, policy=solution)

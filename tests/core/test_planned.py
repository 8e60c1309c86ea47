"""A solved schedule as a policy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import multistep
from hoptree.forecast.simulation import simulate
from hoptree.optimize import solve
from hoptree.simulator import Cluster, WorkerSpec, Workload
from tests.core.test_policies import Budgets, Given

shops = st.integers(1, 4).flatmap(
    lambda workers: st.tuples(
        st.lists(st.sampled_from([0.5, 1.0, 1.3, 2.0, 3.7]), min_size=1, max_size=5),
        st.lists(st.sampled_from([0.5, 1.0, 1.7]), min_size=workers, max_size=workers),
    )
)


def shop(costs: list[float], speeds: list[float], epochs: int = 1) -> tuple[Workload, Cluster]:
    """Return the workload and the cluster that a matrix of costs over speeds stands for."""
    workers = [WorkerSpec(name=f"w{j}", speed=speed, partitions=(j,)) for j, speed in enumerate(speeds)]
    workload = Workload(configs=len(costs), epochs=epochs, partitions=len(speeds), seconds=costs)
    return workload, Cluster(workers=workers)


@settings(max_examples=40, deadline=None)
@given(shops, st.sampled_from(["longest-path", "random"]), st.integers(1, 3), st.integers(0, 9))
def test_planned_gives_every_partition_its_lineages_in_the_solved_order(
    problem: tuple[list[float], list[float]], method: str, epochs: int, seed: int
):
    costs, speeds = problem
    starts = solve([[c / s for s in speeds] for c in costs], method=method, seed=seed).starts
    watch = Given()
    result = simulate(*shop(costs, speeds, epochs), policy=starts, watches=[watch.see], check=True)
    assert result.units == len(costs) * len(speeds) * epochs
    for partition in range(len(speeds)):
        turns = [run.values.at(run.epoch)["config"] for run in watch.runs if run.partition == partition]
        assert turns == sorted(range(len(costs)), key=lambda i: starts[i][partition]) * epochs


@pytest.mark.parametrize(
    ("costs", "speeds", "starts", "makespan"),
    [
        ([1.0], [1.0], [[0.0]], 1.0),
        ([2.0, 1.0], [1.0, 1.0], [[0.0, 2.0], [2.0, 0.0]], 4.0),
        ([2.0, 1.0], [1.0, 1.0], [[1.0, 3.0], [0.0, 1.0]], 5.0),  # a schedule that waits is waited for
        ([3.0, 1.0, 1.0], [1.0, 2.0], [[0.0, 3.0], [3.0, 0.0], [4.0, 0.5]], 5.0),
    ],
)
def test_planned_takes_as_long_as_the_schedule(
    costs: list[float], speeds: list[float], starts: list[list[float]], makespan: float
):
    assert simulate(*shop(costs, speeds), policy=starts, check=True).makespan == makespan


def test_lineages_that_are_not_in_the_schedule_are_trained_too():
    workload, cluster = shop([1.0, 2.0], [1.0, 1.0])
    late = Budgets([(config, 1) for config in [{"config": 0}, {"lr": 0.5}, {"config": 1}]])
    landscape = Workload(configs=3).landscape()
    result = simulate(
        workload, cluster, policy=[[0.0, 2.0], [2.0, 0.0]], search=late, landscape=landscape, check=True
    )
    assert result.units == 6


@pytest.mark.parametrize("starts", [[], [[0.0, 1.0]], [[0.0], [1.0]], [[0.0, 1.0], [1.0]]])
def test_a_schedule_of_another_shape_is_refused(starts: list[list[float]]):
    with pytest.raises(WorkloadError, match=r"^policy: starts of"):
        simulate(Workload(configs=2, partitions=2), Cluster(workers=2), policy=starts)


def test_shared_prefixes_do_not_stop_a_planned_run():
    configs_ = [{"lr": 0.1}, {"lr": multistep(0.1, at=[1], gamma=0.1)}, {"lr": 0.1}]
    workload = Workload(configs=configs_, epochs=3, partitions=2)
    result = simulate(workload, Cluster(workers=2), policy=[[0, 1], [1, 0], [2, 2]], check=True)
    assert result.units == result.work.unique

"""Idle nodes take copies of partitions within a budget, and then help."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import CopyPartitions
from hoptree.core.errors import WorkloadError
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.faults import Crash
from hoptree.simulator.workload import Workload

LINEAR = {"data": "linear"}


def run(
    cluster: Cluster, configs: int = 1, epochs: int = 4, order: str = "strict"
) -> tuple[Simulation, list[CopyPartitions]]:
    seen: list[CopyPartitions] = []

    def watch(step: Step) -> None:
        seen.extend(action for action in step.actions if isinstance(action, CopyPartitions))

    workload = Workload(configs=configs, epochs=epochs, partitions=8)
    return simulate(workload, cluster, order=order, check=True, watches=[watch]), seen  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["strict", "free"])
def test_the_last_config_moves_to_the_largest_node(order: str) -> None:
    alone, none = run(Cluster(nodes=[4, 2, 2], scaling=LINEAR), order=order)
    helped, copies = run(Cluster(nodes=[4, 2, 2], scaling=LINEAR, replicate_idle=8.0), order=order)
    assert not none
    assert copies
    assert helped.makespan < 0.8 * alone.makespan


@pytest.mark.parametrize("budget", [1.0, 2.5, 4.0])
def test_copies_stay_within_the_budget(budget: float) -> None:
    _, copies = run(Cluster(nodes=[4, 2, 2], scaling=LINEAR, replicate_idle=budget))
    held: dict[str, int] = {}
    for copy in copies:
        for worker in copy.workers:
            held[worker] = held.get(worker, 0) + len(copy.partitions)
    assert held
    assert max(held.values()) <= budget


def test_no_copies_where_they_do_not_pay() -> None:
    """Equal nodes, and one config: another node trains a partition no faster than the one that holds it."""
    _, copies = run(Cluster(nodes=[2, 2], scaling=LINEAR, replicate_idle=100.0))
    assert not copies


def test_no_copies_while_all_nodes_are_busy() -> None:
    _, copies = run(Cluster(nodes=[2, 2], scaling=LINEAR, replicate_idle=100.0), configs=12, epochs=1, order="free")
    assert not copies


@pytest.mark.parametrize("at", [0.1, 0.6, 1.7])
def test_a_node_that_crashes_has_lost_its_copies(at: float) -> None:
    faults = [Crash(f"n0.{device}", at, back=at + 2) for device in range(4)]
    cluster = Cluster(nodes=[4, 2, 2], scaling=LINEAR, replicate_idle=8.0, bandwidth=10.0, faults=faults)  # type: ignore[arg-type]
    result, _ = run(cluster)
    assert result.to_dict()["failed_trials"] == 0


def test_a_wrong_budget_is_refused() -> None:
    with pytest.raises(WorkloadError, match="^replicate_idle: -1"):
        Cluster(nodes=[2], replicate_idle=-1)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.sampled_from(["strict", "free"]), st.floats(0.5, 9), st.sampled_from([0.0, 2.0, 50.0]))
def test_copies_keep_all_invariants(configs: int, order: str, budget: float, bandwidth: float) -> None:
    cluster = Cluster(
        nodes=[4, 2, 1], scaling={"data": {2: 1.8, 4: 3.1}}, replicate_idle=budget, bandwidth=bandwidth,
        faults=[Crash("n0.0", 2.2, back=3.0), Crash("n2.0", 0.7, back=1.5)],
    )  # fmt: skip
    result, _ = run(cluster, configs, epochs=2, order=order)
    assert result.to_dict()["failed_trials"] == 0
    assert len(result.engine.trials) == configs

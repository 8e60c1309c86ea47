"""Nodes with several devices, and gangs on them, in simulation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report, RunUnit
from hoptree.core.errors import WorkloadError
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.search import Stop, Train
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.faults import Crash, FlakyUnits
from hoptree.simulator.scaling import share, speed_up, widest
from hoptree.simulator.workload import Workload
from hoptree.ui.workload_file import read

POOR = {"data": {2: 1.5, 4: 2.1}}


@given(st.integers(1, 40), st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_nodes_hold_partitions_in_proportion_to_their_devices(partitions: int, nodes: list[int]) -> None:
    counts = Counter(share(partitions, nodes))
    assert sum(counts.values()) == partitions
    for node, devices in enumerate(nodes):
        exact = partitions * devices / sum(nodes)
        if partitions >= len(nodes):
            assert counts[node] >= 1
        assert counts[node] <= exact + 1


def test_every_device_of_a_node_holds_the_partitions_of_the_node() -> None:
    placed = Cluster(nodes=[4, 2, 2]).placed(8)
    assert [spec.machine for spec in placed] == ["n0"] * 4 + ["n1"] * 2 + ["n2"] * 2
    assert {spec.machine: spec.partitions for spec in placed} == {"n0": (0, 1, 2, 3), "n1": (4, 5), "n2": (6, 7)}


def test_speed_ups_by_layout() -> None:
    scaling = {"data": "linear", "sharded": {2: 1.5}}
    assert speed_up(scaling, "data", 4) == 4.0
    assert speed_up(scaling, "sharded+offload", 2) == 1.5
    assert speed_up(scaling, "single", 1) == 1.0
    assert (widest(POOR, 8), widest({"data": "linear"}, 8), widest({}, 8)) == (4, 8, 1)


@pytest.mark.parametrize("order", ["strict", "free"])
@pytest.mark.parametrize("scaling", ["linear", {2: 1.8, 4: 3.1}, {2: 1.1}])
def test_one_config_gets_all_devices_that_pay(order: str, scaling: object) -> None:
    result = run(1, Cluster(nodes=[4], scaling={"data": scaling}), order=order)  # type: ignore[dict-item]
    fastest = 4.0 if scaling == "linear" else max([1.0, *(s for s in scaling.values() if s > 1.11)])  # type: ignore[attr-defined]
    assert result.makespan == pytest.approx(8 / fastest)
    assert result.bound <= result.makespan * (1 + 1e-9)


@pytest.mark.parametrize("order", ["strict", "free"])
@pytest.mark.parametrize("configs", [1, 3, 5, 8, 11])
def test_gangs_are_never_slower_than_one_device_for_each_config(order: str, configs: int) -> None:
    nodes = [4, 2, 2] if order == "free" else [8]  # fixed routes through different nodes cost a little more
    hopping = run(configs, Cluster(nodes=nodes), order=order)
    ours = run(configs, Cluster(nodes=nodes, scaling=POOR), order=order)
    assert ours.makespan <= hopping.makespan * (1 + 1e-9)
    assert ours.bound <= ours.makespan * (1 + 1e-9)


@pytest.mark.parametrize("member", [0, 1, 2, 3])
def test_a_crash_of_a_member_repeats_the_unit_and_fails_no_trial(member: int) -> None:
    cluster = Cluster(nodes=[4], scaling={"data": "linear"}, faults=[Crash(f"n0.{member}", 0.3, back=5.0)])
    result = run(1, cluster)
    assert result.to_dict()["failed_trials"] == 0
    assert result.units == 8
    assert result.makespan > 2.0


def test_flaky_gangs_are_repeated() -> None:
    result = run(2, Cluster(nodes=[2, 2], scaling=POOR, faults=[FlakyUnits(0.2)]), retries=50)
    assert result.to_dict()["failed_trials"] == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["strict", "free"]), st.integers(1, 6), st.booleans())
def test_random_clusters_keep_all_invariants(seed: int, order: str, configs: int, every: bool) -> None:
    cluster = Cluster(
        nodes=[1 + seed % 4, 2], scaling={"data": {2: 1.7, 4: 2.5}}, noise=0.3,
        faults=[FlakyUnits(0.05), Crash("n1.1", seed % 7, back=20.0)],
    )  # fmt: skip
    workload = Workload(configs=configs, epochs=2, partitions=5, every=int(every), evaluation_seconds=0.2)
    result = simulate(workload, cluster, order=order, seed=seed, check=True, retries=50)  # type: ignore[arg-type]
    assert result.to_dict()["failed_trials"] == 0


@pytest.mark.parametrize("policy", ["random", "breadth-first", "most-children", "monte-carlo"])
def test_every_policy_forms_gangs(policy: str) -> None:
    result = run(2, Cluster(nodes=[4], scaling={"data": "linear"}), policy=policy)
    assert result.makespan < 8.0


def test_all_members_are_busy_in_the_chart() -> None:
    seen: list[RunUnit] = []

    def watch(step: Step) -> None:
        seen.extend(action for action in step.actions if isinstance(action, RunUnit))

    result = run(1, Cluster(nodes=[4], scaling={"data": "linear"}), watches=[watch])
    assert {len(action.crew) for action in seen} == {3}
    assert result.utilisation == pytest.approx(1.0)
    assert len(result.timeline.spans) == 4 * 8


def run(configs: int, cluster: Cluster, **details: object) -> Simulation:
    workload = Workload(configs=configs, partitions=8, state_bytes=1.0)
    return simulate(workload, cluster, check=True, **details)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "field"),
    [
        ({"nodes": [4, 0]}, "nodes[1]: 0"),
        ({"nodes": [True]}, "nodes[0]: True"),
        ({"nodes": [4], "workers": 3}, "nodes: "),
        ({"scaling": {"data": {3: 2.0}}}, "scaling['data']: 3"),
        ({"scaling": {"data": {4: 2.0}}}, "scaling['data']: 4"),
        ({"scaling": {"data": {2: 0.0}}}, "scaling['data'][2]: 0.0"),
        ({"scaling": {"data": {1: 2.0, 2: 3.0}}}, "scaling['data'][1]: 2.0"),
        ({"scaling": {"data": "quick"}}, "scaling['data']: 'quick'"),
        ({"scaling": {"data+fast": "linear"}}, "scaling['data+fast']: "),
    ],
)
def test_wrong_nodes_and_scaling_are_refused(cluster: dict[str, object], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        Cluster(**cluster)  # type: ignore[arg-type]
    assert str(caught.value).startswith(field)


def test_a_workload_file_has_nodes_and_scaling(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(
        "[cluster]\nnodes = [4, 2, 2]\n[cluster.scaling]\ndata = {2 = 1.8, 4 = 3.1}\nsharded = 'linear'\n"
    )
    _, cluster = read(file)
    assert cluster.nodes == [4, 2, 2]
    assert cluster.scaling == {"data": {2: 1.8, 4: 3.1}, "sharded": "linear"}


class StopsTheOther:
    """Trains two configs; when the first has ended, it stops the other, and trains a third."""

    def start(self) -> list[Train]:
        return [Train({"config": 0}, 1), Train({"config": 1}, 9)]

    def tell(self, update: Report | EndTrial) -> list[Train | Stop]:
        return [Stop(1), Train({"config": 2}, 2)] if isinstance(update, EndTrial) and not update.trial else []


def test_a_gang_whose_unit_is_cancelled_is_free() -> None:
    result = simulate(
        Workload(configs=3, partitions=2),
        Cluster(nodes=[4], scaling={"data": {2: 1.8, 4: 3.1}}, noise=0.3),
        search=StopsTheOther(),
        check=True,
    )
    assert [trial.ending for trial in result.engine.trials.values()] == ["complete", "stopped", "complete"]

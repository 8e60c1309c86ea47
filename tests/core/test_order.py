"""The order in which a lineage visits partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import RunUnit
from hoptree.core.events import (
    UnitFinished,
)
from hoptree.core.policies import POLICIES
from hoptree.core.schedules import Config, multistep
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, Workload
from tests.core.steps import LATER
from tests.core.strategies import configs


class Order:
    """A watch that remembers which units were trained."""

    def __init__(self) -> None:
        self.trained: list[RunUnit] = []

    def see(self, step: Step) -> None:
        if isinstance(step.event, UnitFinished) and isinstance(step.run, RunUnit):
            self.trained.append(step.run)

    def lineages(self, result: Simulation) -> list[list[tuple[str, int, int, int]]]:
        """Return for every trial the key, unit, partition and seed of its units, in order."""
        at: dict[tuple[int, int], set[tuple[str, int, int, int]]] = {}
        for run in self.trained:
            what = (run.key, run.unit, run.partition, run.seed)
            at.setdefault((run.node, run.unit), set()).add(what)
        assert all(len(same) == 1 for same in at.values()), "a unit that was trained twice was not the same"
        partitions = result.workload.partitions
        return [
            [
                next(iter(at[node.id, unit]))
                for node, end in result.engine.plan.path_with_ends(trial, trial.until * partitions)
                for unit in range(node.start, end)
            ]
            for trial in result.engine.trials.values()
        ]


MIXED: list[Config] = [
    {"lr": 0.1},
    {"lr": LATER},
    {"lr": multistep(0.1, at=[1.4], gamma=0.1)},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": multistep(0.1, at=[2], gamma=0.5), "momentum": 0.9},
    {"lr": 0.3},
]


def lineages(some: list[Config], cluster: Cluster, *, share: bool = True, epochs: int = 3, **more: Any):
    watch = Order()
    workload = Workload(configs=some, epochs=epochs, partitions=4, share=share)
    return watch.lineages(simulate(workload, cluster, watches=[watch.see], **more))


CRASHES = [Crash("w0", 2.5, 4.0), Crash("w1", 3.0, 9.5, True), StateLoss(0.05)]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(workers=1),
        Cluster(workers=2),
        Cluster(workers=3),
        Cluster(workers=8),
        Cluster(workers=3, replicas=2, noise=0.3, stragglers=0.2),
        Cluster(workers=3, replicas=2, faults=CRASHES),
        Cluster(workers=2, faults=[*CRASHES, FlakyUnits(0.1)]),
    ],
)
def test_in_strict_order_every_lineage_is_the_same_on_any_cluster(cluster: Cluster, share: bool):
    for seed, policy in ((0, "longest-path"), (0, "first-come"), (5, "random")):
        reference = lineages(MIXED, Cluster(workers=1), share=False, seed=seed)
        found = lineages(MIXED, cluster, share=share, policy=policy, seed=seed, check=True, retries=9)
        assert found == reference


@settings(max_examples=30, deadline=None)
@given(st.lists(configs(), min_size=1, max_size=5), st.integers(1, 8), st.booleans(), st.integers(0, 99))
def test_a_lineage_does_not_depend_on_workers_sharing_or_other_drivers(
    some: list[Config], workers: int, share: bool, seed: int
):
    found = lineages(some, Cluster(workers=workers, noise=0.5), share=share, seed=seed)
    for config, lineage in zip(some, found, strict=True):
        assert lineages([config], Cluster(workers=1), seed=seed) == [lineage]


@pytest.mark.parametrize("order", ["strict", "free"])
@settings(max_examples=30, deadline=None)
@given(
    some=st.lists(configs(), min_size=1, max_size=6),
    workers=st.integers(1, 5),
    policy=st.sampled_from(POLICIES),
)
def test_an_epoch_visits_every_partition_once(order: str, some: list[Config], workers: int, policy: str):
    found = lineages(some, Cluster(workers=workers), order=order, policy=policy, check=True, epochs=2)
    for lineage in found:
        partitions = [partition for _, _, partition, _ in lineage]
        assert [sorted(partitions[epoch : epoch + 4]) for epoch in (0, 4)] == [[0, 1, 2, 3]] * 2


def test_in_strict_order_an_epoch_is_a_rotation_and_siblings_begin_at_different_partitions():
    found = lineages([{"lr": 0.1 * i} for i in range(1, 33)], Cluster(workers=4), epochs=1)
    begins = set()
    for lineage in found:
        partitions = [partition for _, _, partition, _ in lineage]
        begins.add(partitions[0])
        assert partitions == [(partitions[0] + step) % 4 for step in range(4)]
    assert begins == {0, 1, 2, 3}


def test_seeds_differ_from_unit_to_unit_and_fit_63_bits():
    seeds = [seed for lineage in lineages(MIXED, Cluster(), share=False) for _, _, _, seed in lineage]
    keyed = {(key, unit) for lineage in lineages(MIXED, Cluster(), share=False) for key, unit, _, _ in lineage}
    assert len(set(seeds)) == len(keyed)
    assert all(0 <= seed < 2**63 for seed in seeds)

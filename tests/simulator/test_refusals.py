"""Invalid workloads, clusters and fault scripts raise errors, and the message starts with the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import Values
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload
from hoptree.simulator.workload import Landscape


def refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"configs": 0}, "configs: 0; expected at least one"),
        ({"configs": -3}, "configs: -3; expected at least one"),
        ({"configs": []}, "configs: an empty list; expected at least one config"),
        ({"configs": [{"lr": 0.1}, {}]}, "configs[1]: config: it is empty"),
        ({"configs": [{"lr": math.nan}]}, "configs[0]: config['lr']: value: nan"),
        ({"configs": [{"lr": 0.1}, {"lr": [1, 2]}]}, "configs[1]: config['lr']: value: [1, 2]"),
        ({"configs": [{"": 1}]}, "configs[0]: config: the name ''"),
        ({"epochs": 0}, "epochs: 0; expected"),
        ({"partitions": 0}, "partitions: 0; expected"),
        ({"every": -1}, "every: -1; expected"),
        ({"seconds": -1.0}, "seconds: -1.0; expected"),
        ({"seconds": math.nan}, "seconds: nan; expected"),
        ({"seconds": math.inf}, "seconds: inf; expected"),
        ({"configs": 2, "seconds": [1.0]}, "seconds: 1 times for 2 configs; expected one for each"),
        ({"configs": 2, "seconds": [1.0, -2.0]}, "seconds[1]: -2.0; expected"),
        ({"configs": [{"lr": 0.1}], "seconds": [1.0]}, "seconds: a list of times for configs that may share"),
        ({"factors": {"batch_size": {"32": -2.0}}}, "factors['batch_size']['32']: -2.0; expected"),
        ({"factors": {"batch_size": {"32": math.nan}}}, "factors['batch_size']['32']: nan; expected"),
        ({"evaluation_seconds": -0.1}, "evaluation_seconds: -0.1; expected"),
        ({"state_bytes": math.inf}, "state_bytes: inf; expected"),
        ({"barrier": True}, "barrier: a barrier needs reports to wait at; set every"),
    ],
)
def test_impossible_workloads_are_refused(fields: dict[str, Any], message: str):
    refused(lambda: Workload(**fields), message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": 0}, "workers: 0; expected at least one"),
        ({"workers": -1}, "workers: -1; expected at least one"),
        ({"workers": []}, "workers: an empty list; expected at least one worker"),
        ({"workers": [WorkerSpec(name="a"), WorkerSpec(name="a")]}, "workers: two are named 'a'"),
        ({"replicas": 0}, "replicas: 0 on 8 workers; expected 1 to 8"),
        ({"workers": 2, "replicas": 3}, "replicas: 3 on 2 workers; expected 1 to 2"),
        ({"bandwidth": -1.0}, "bandwidth: -1.0; expected"),
        ({"bandwidth": math.nan}, "bandwidth: nan; expected"),
        ({"latency": -1.0}, "latency: -1.0; expected"),
        ({"noise": -0.1}, "noise: -0.1; expected"),
        ({"noise": math.inf}, "noise: inf; expected"),
        ({"provisioning": -5.0}, "provisioning: -5.0; expected"),
        ({"stragglers": -0.1}, "stragglers: -0.1; expected"),
        ({"stragglers": 1.0}, "stragglers: 1.0; expected"),
        ({"stragglers": math.nan}, "stragglers: nan; expected"),
        ({"straggling": 0.5}, "straggling: 0.5; expected"),
        ({"straggling": math.inf}, "straggling: inf; expected"),
    ],
)
def test_impossible_clusters_are_refused(fields: dict[str, Any], message: str):
    refused(lambda: Cluster(**fields), message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorkerSpec(name="a", speed=0.0), "workers: a has speed 0.0; expected"),
        (lambda: WorkerSpec(name="a", speed=math.nan), "workers: a has speed nan; expected"),
        (lambda: WorkerSpec(name="a", speed=math.inf), "workers: a has speed inf; expected"),
        (lambda: WorkerSpec(name="a", joins=-1.0), "workers: a joins at -1.0; expected"),
        (lambda: WorkerSpec(name="a", joins=math.inf), "workers: a joins at inf; expected"),
        (lambda: Crash("a", -1.0), "faults: crash of a at -1.0; expected"),
        (lambda: Crash("a", math.nan), "faults: crash of a at nan; expected"),
        (lambda: Crash("a", 2.0, 2.0), "faults: a crashes at 2.0 and comes back at 2.0; expected a later time"),
        (lambda: Crash("a", 2.0, math.nan), "faults: a crashes at 2.0 and comes back at nan; expected"),
        (lambda: FlakyUnits(1.0), "faults: flaky units: probability 1.0; expected"),
        (lambda: FlakyUnits(math.nan), "faults: flaky units: probability nan; expected"),
        (lambda: StateLoss(-0.5), "faults: state loss: probability -0.5; expected"),
    ],
)
def test_impossible_workers_and_faults_are_refused(make: Callable[[], object], message: str):
    refused(make, message)


SMALL = Workload(configs=2, partitions=2)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster(workers=[WorkerSpec(name="a", partitions=(0,))]), "partitions: no worker holds partition 1"),
        (Cluster(workers=[WorkerSpec(name="a", partitions=(0, 1, 2))]), "workers: a holds partition 2; expected 0"),
        (Cluster(workers=[WorkerSpec(name="a", partitions=(-1, 0, 1))]), "workers: a holds partition -1; expected"),
        (
            Cluster(workers=2, faults=[Crash("nobody", 1.0)]),
            "faults: 'nobody' crashes, but no worker has that name",
        ),
    ],
)
def test_clusters_that_can_never_train_the_workload(cluster: Cluster, message: str):
    refused(lambda: simulate(SMALL, cluster), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "fastest"}, "policy: 'fastest'; expected one of first-come, longest-path, random"),
        ({"policy": [[0.0, 1.0]]}, "policy: starts of 1 configs; expected 2 rows of 2"),
        ({"order": "loose"}, "order: 'loose'; expected 'strict' or 'free'"),
        ({"retries": -1}, "retries: -1; expected 0 or more"),
        ({"patience": -1}, "patience: -1; expected 0 or more"),
        ({"speed": 2}, "details: Unexpected keyword argument 'speed'; expected ahead, affinity, retries"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str):
    refused(lambda: simulate(SMALL, Cluster(workers=2), **options), message)


@pytest.mark.parametrize("cost", [-1.0, math.nan, math.inf])
def test_a_landscape_with_impossible_costs(cost: float):
    def seconds(values: Values) -> float:
        return cost

    landscape = Landscape(seconds, SMALL.landscape().metrics)
    refused(lambda: simulate(SMALL, Cluster(workers=2), landscape=landscape), f"cost: {cost!r}")


@pytest.mark.parametrize("order", ["strict", "free"])
def test_a_permanently_lost_partition_is_named(order: str):
    cluster = Cluster(workers=2, faults=[Crash("w1", 0.5)])
    message = "partitions: no worker holds [1] and none will, with 2 trials to train; place them on a worker"
    refused(lambda: simulate(SMALL, cluster, order=order), message)


def test_a_permanently_lost_cluster_is_named():
    cluster = Cluster(workers=2, faults=[Crash("w0", 0.5), Crash("w1", 0.75)])
    message = "workers: none is left and none will join, with 2 trials to train"
    refused(lambda: simulate(SMALL, cluster), message)

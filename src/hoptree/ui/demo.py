"""The study that ``hoptree demo`` shows."""

from __future__ import annotations

from hoptree.core.schedules import Config, Value, multistep, warmup
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload


def demo_workload() -> tuple[Workload, Cluster]:
    """Return eight configs that begin alike, and four workers with a quarter of the data each."""
    configs: list[Config] = []
    for size in (64, 128):
        rates: list[Value] = [
            0.1,
            multistep(0.1, at=[4], gamma=0.1),
            multistep(0.1, at=[8], gamma=0.1),
            warmup(0.0, 2, multistep(0.1, at=[6], gamma=0.1)),
        ]
        configs += [{"lr": rate, "batch_size": size} for rate in rates]
    workload = Workload(
        configs=configs,
        epochs=12,
        partitions=4,
        every=4,
        factors={"batch_size": {"64": 1.5}},
        evaluation_seconds=0.5,
        state_bytes=50e6,
    )
    return workload, Cluster(workers=4, bandwidth=1e9)

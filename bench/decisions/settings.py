"""The eight settings of section 5.4 of the model-hopper paper, for the engine and for the solvers."""

from __future__ import annotations

from itertools import product

from hoptree.forecast.simulation import Simulation, simulate
from hoptree.optimize.settings import paper_setting
from hoptree.simulator import Cluster, WorkerSpec, Workload

SETTINGS = list(product((16, 256), (8, 16), (False, True)))
SEEDS = range(5)


def name(configs: int, workers: int, heterogeneous: bool) -> str:
    """Return how a setting is called in the tables."""
    return f"{configs} configs, {workers} workers, {'heterogeneous' if heterogeneous else 'homogeneous'}"


def run(setting: tuple[int, int, bool], seed: int, *, epochs: int = 1, **options: object) -> Simulation:
    """Simulate a setting: one worker per partition, costs and speeds recovered from the unit times."""
    configs, workers, _ = setting
    times = paper_setting(*setting, seed)
    speeds = [times[0][0] / times[0][j] for j in range(workers)]
    workload = Workload(configs=configs, epochs=epochs, partitions=workers, seconds=[row[0] for row in times])
    cluster = Cluster(workers=[WorkerSpec(name=f"w{j}", speed=speed) for j, speed in enumerate(speeds)])
    return simulate(workload, cluster, seed=seed, **options)  # type: ignore[arg-type]

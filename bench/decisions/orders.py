"""Strict against free order over more epochs, and a barrier at every epoch against none."""

from __future__ import annotations

from bench.decisions.settings import SEEDS, SETTINGS, name, run
from bench.results import record, spread, table
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload

EPOCHS = 10
COLUMNS = (("strict", 1), ("strict", 5), ("strict", 10), ("free", 1), ("free", 10))


def main() -> None:
    rows = []
    means: dict[tuple[str, int], list[float]] = {}
    for setting in SETTINGS:
        cells = []
        for order, epochs in COLUMNS:
            if setting[0] == 256 and order == "free" and epochs > 1:
                cells.append("")  # minutes of simulation, to find 1.0000
                continue
            results = [run(setting, seed, epochs=epochs, order=order) for seed in SEEDS]
            ratios = [result.makespan / result.bound for result in results]
            means.setdefault((order, epochs), []).extend(ratios)
            cells.append(spread(ratios))
        rows.append([name(*setting), *cells])
    rows.append(["mean", *(f"**{sum(means[column]) / len(means[column]):.4f}**" for column in COLUMNS)])
    text = (
        "## Strict order against free order\n\nMakespan over the lower bound, 5 seeds. What strict order loses, it "
        "loses where lineages first meet; after that they follow each other around the partitions, so longer "
        "training loses less (the paper's workloads have 5 and 10 epochs).\n\n"
        + table(["setting", *(f"{order}, {epochs} epochs" for order, epochs in COLUMNS)], rows)
    )
    record("orders", "python -m bench.decisions orders", text)
    barriers = []
    for configs, workers in ((16, 8), (20, 8), (64, 16)):
        for noise in (0.0, 0.3):
            spans = {}
            for barrier in (False, True):
                workload = Workload(configs=configs, epochs=EPOCHS, partitions=workers, every=1, barrier=barrier)
                cluster = Cluster(workers=workers, noise=noise)
                spans[barrier] = [simulate(workload, cluster, seed=seed).makespan for seed in SEEDS]
            ratios = [
                with_barrier / without for with_barrier, without in zip(spans[True], spans[False], strict=True)
            ]
            barriers.append([f"{configs} configs, {workers} workers, noise {noise}", spread(ratios, 3)])
    text = (
        "## A barrier at every epoch against none\n\n"
        f"{EPOCHS} epochs, strict order, the default policy, 5 seeds: makespan with the barrier over makespan "
        "without.\n\n" + table(["setting", "barrier / none"], barriers)
    )
    record("barrier", "python -m bench.decisions orders", text)

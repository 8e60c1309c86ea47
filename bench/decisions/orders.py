"""Strict against free order over more epochs, and a barrier at every epoch against none."""

from __future__ import annotations

from bench.decisions.settings import SEEDS, SETTINGS, name, run
from bench.results import record, spread, table
from hoptree.simulation import simulate
from hoptree.simulator import Cluster, Workload

EPOCHS = 10


def main() -> None:
    rows = []
    for setting in SETTINGS:
        if setting[0] == 256:
            continue
        cells = []
        for order in ("strict", "free"):
            results = [run(setting, seed, epochs=EPOCHS, order=order) for seed in SEEDS]
            cells.append(spread([result.makespan / result.bound for result in results]))
        rows.append([name(*setting), *cells])
    text = (
        f"## Strict order against free order\n\n{EPOCHS} epochs, 5 seeds, makespan over the lower bound. What "
        "strict order loses, it loses where lineages first meet; after that they follow each other around.\n\n"
        + table(["setting", "strict", "free"], rows)
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
        f"{EPOCHS} epochs, strict order, 5 seeds: makespan with the barrier over makespan without.\n\n"
        + table(["setting", "barrier / none"], barriers)
    )
    record("barrier", "python -m bench.decisions orders", text)

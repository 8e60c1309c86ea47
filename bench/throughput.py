"""The speed of the engine: simulated unit events per second on one core, and how it grows with the trials."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from statistics import median

from bench.memory import peak_memory
from bench.results import record, spread, table
from hoptree.forecast.simulation import simulate
from hoptree.simulator import Cluster, Workload

SIZES = ((1_000, 1_000), (10_000, 1_000))
REPEATS = 3


def measure(trials: int, workers: int) -> None:
    gc.collect()
    began = time.perf_counter()
    result = simulate(Workload(configs=trials, epochs=20, partitions=16), Cluster(workers=workers))
    seconds = time.perf_counter() - began
    memory = peak_memory()
    print(result.units / seconds, seconds, memory, result.makespan / result.bound)


def main() -> None:
    figures: dict[tuple[int, int], list[list[float]]] = {size: [] for size in SIZES}
    for _ in range(REPEATS):
        for size in SIZES:
            command = [sys.executable, "-m", "bench.throughput", *map(str, size)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            figures[size].append([float(number) for number in output.split()])
    rows = []
    for (trials, workers), runs in figures.items():
        rows.append(
            [
                f"{trials:,} trials x 20 epochs x 16 partitions on {workers:,} workers",
                f"{trials * 320:,}",
                f"{median(run[1] for run in runs):.1f} s",
                spread([run[0] for run in runs], 0),
                f"{max(run[2] for run in runs) / 2**20:,.0f} MiB",
                f"{runs[0][3]:.4f}",
            ]
        )
    small, large = (median(run[0] for run in figures[size]) for size in SIZES)
    columns = [
        "workload",
        "unit events",
        "time (median)",
        "unit events per second",
        "peak memory",
        "makespan / bound",
    ]
    text = (
        "## Throughput of engine, loop and simulator on one core\n\n"
        f"{REPEATS} interleaved repeats in fresh processes. Cost per event from 1,000 to 10,000 trials grows "
        f"**{small / large:.2f} x**.\n\n" + table(columns, rows)
    )
    record("throughput", "python -m bench.throughput", text)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()

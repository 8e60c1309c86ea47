"""W1 with Ray Tune: ``python -m bench.cluster.contestants.ray_tune_w1 DATA OUT ADDRESS``, on a cluster."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import ray

from bench.speed.contestants.ray_tune import accuracies_of, tuner
from bench.speed.settings import finish


def main(data: Path, out: Path, address: str) -> None:
    began = time.perf_counter()
    ray.init(address=address, log_to_driver=False)
    w1 = tuner(data, out)
    fitted = time.perf_counter()
    results = w1.fit()
    ended = time.perf_counter()
    accuracies = accuracies_of(results)
    ray.shutdown()
    finish(out, accuracies, run=ended - began, fit=ended - fitted)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])

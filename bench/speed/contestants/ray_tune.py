"""Ray Tune at its best: the bare bound's loop as a function, the data in the object store, actors used again."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import ray
from ray import tune

from bench.speed.settings import LEARNING_RATES, WEIGHT_DECAYS, WORKERS, finish, label, load


def trainable(config: dict[str, float], arrays: Any) -> None:
    import torch

    from bench.speed import workload

    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is mapped, for all
    torch.set_num_threads(1)
    data = workload.Data.of(arrays)
    workload.train(data, config, lambda loss, accuracy: tune.report({"loss": loss, "accuracy": accuracy}))


def tuner(data: Path, out: Path) -> tune.Tuner:
    """Return the tuner of W1; its data goes to the object store."""
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(trainable, arrays=load(data)), {"cpu": 1}),
        param_space={
            "lr": tune.grid_search(list(LEARNING_RATES)),
            "weight_decay": tune.grid_search(list(WEIGHT_DECAYS)),
        },
        tune_config=tune.TuneConfig(max_concurrent_trials=WORKERS, reuse_actors=True),
        run_config=tune.RunConfig(name="w1", storage_path=str(out / "results"), verbose=0),
    )


def accuracies_of(results: tune.ResultGrid) -> dict[str, float]:
    """Return what came of every config."""
    return {label(result.config): result.metrics["accuracy"] for result in results}


def main(data: Path, out: Path) -> None:
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=10**9,
        _temp_dir=str(out / "ray"),
    )
    accuracies = accuracies_of(tuner(data, out).fit())
    ray.shutdown()
    finish(out, accuracies)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

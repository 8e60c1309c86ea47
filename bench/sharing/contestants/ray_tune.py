"""Ray Tune: ``python -m bench.sharing.contestants.ray_tune DATA OUT CASE``, the same trials by hand.

A grid is a grid; ASHA is Ray Tune's scheduler, which stops what is not among the best. It has no successive halving
of one bracket: as its users do, the rungs are runs one after another, and those that go on start from checkpoints.
Actors are used again, and the data is in the object store.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler

import hoptree as ht
from bench.sharing.contestants.outcome import Clock, Outcome, finish
from bench.sharing.meter import meter_of, spent
from bench.sharing.spaces import CASES, EPOCHS, FACTOR, MIN_EPOCHS, WORKERS, configs
from bench.speed.settings import load

DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])
STATE = "state.pt"


def trainable(config: dict[str, Any], arrays: Any, trials: Any) -> None:
    from bench.sharing.workload import ByHand, Data

    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # it is mapped, for all
    torch.set_num_threads(1)
    job = config["job"]
    # A seed for each: Ray's ASHA continues ties, and trials with a common beginning and one seed would all tie.
    trial = ByHand(Data.of(arrays), trials[job["number"]], seed=job["number"], meter=meter_of(OUT / "meter"))
    start, until = job.get("start", 0), job.get("until", EPOCHS)
    if start:
        state = torch.load(Path(job["checkpoint"]) / STATE)
        trial.model.load_state_dict(state["model"])
        trial.optimizer.load_state_dict(state["optimizer"])
    epoch = start

    def report(metrics: dict[str, float]) -> None:
        nonlocal epoch
        epoch += 1
        if epoch < until or until == EPOCHS:
            tune.report({**metrics, "epoch": epoch})
            return
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": trial.model.state_dict(), "optimizer": trial.optimizer.state_dict()}
            torch.save(state, Path(folder) / STATE)
            tune.report({**metrics, "epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(folder))

    trial.run(start, until, report)


def fit(name: str, jobs: list[dict[str, Any]], scheduler: Any = None) -> tune.ResultGrid:
    bound = tune.with_parameters(trainable, arrays=load(DATA), trials=configs(CASES[sys.argv[3]]))
    tuner = tune.Tuner(
        tune.with_resources(bound, {"cpu": 1}),
        param_space={"job": tune.grid_search(jobs)},
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            scheduler=scheduler,
            max_concurrent_trials=WORKERS,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(name=name, storage_path=str(OUT / "results"), verbose=0),
    )
    found = tuner.fit()
    assert not found.errors, found.errors[0]
    return found


def halving(search: ht.SuccessiveHalving) -> list[list[Any]]:
    """Run the rungs, and return accuracy and epoch of all that was reported last in each."""
    jobs: list[dict[str, Any]] = [{"number": number} for number in range(search.trials)]
    last: list[list[Any]] = []
    start = 0
    for level, rung in enumerate(search.rungs):
        jobs = [{**job, "start": start, "until": rung.epochs} for job in jobs]
        found = list(fit(f"rung-{level}", jobs))
        last += [[one.metrics["accuracy"], rung.epochs - start] for one in found]
        ranked = sorted(found, key=lambda one: (-one.metrics["accuracy"], one.config["job"]["number"]))
        survivors = ranked[: search.rungs[level + 1].trials] if level + 1 < len(search.rungs) else []
        jobs = [{"number": one.config["job"]["number"], "checkpoint": one.checkpoint.path} for one in survivors]
        start = rung.epochs
    return last


def main() -> None:
    case = CASES[sys.argv[3]]
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=10**9,
        _temp_dir=str(OUT / "ray"),
    )
    clock = Clock()
    jobs = [{"number": number} for number in range(len(configs(case)))]
    if isinstance(case.search, ht.SuccessiveHalving):
        reported: Sequence[Any] = halving(case.search)
        best = max(accuracy for accuracy, _ in reported[-case.search.rungs[-1].trials :])
    else:
        asha = ASHAScheduler(max_t=EPOCHS, grace_period=MIN_EPOCHS, reduction_factor=FACTOR)
        found = fit(sys.argv[3], jobs, asha if isinstance(case.search, ht.ASHA) else None)
        reported = [[one.metrics["accuracy"], one.metrics["epoch"]] for one in found]
        best = max(accuracy for accuracy, epoch in reported if epoch == EPOCHS)
    driver = clock.spent()
    ray.shutdown()
    epochs = sum(epoch for _, epoch in reported)
    finish(OUT, [Outcome(spent(OUT / "meter"), driver, len(jobs), epochs, epochs, best)])


if __name__ == "__main__":
    main()

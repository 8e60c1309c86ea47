"""Optuna: a grid in SQLite, run by two processes, its documented way to parallelise; the loop is the bare bound's.

Both samplers have the same seed, so that eight trials take the eight places of the grid by their numbers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import optuna

from bench.speed.settings import CONFIGS, LEARNING_RATES, WEIGHT_DECAYS, WORKERS, finish, label

DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])
STUDY = {"study_name": "w1", "storage": f"sqlite:///{OUT}/optuna.db"}


def work() -> None:
    import torch

    from bench.speed import workload

    torch.set_num_threads(1)
    data = workload.Data.load(DATA)

    def objective(trial: optuna.Trial) -> float:
        config = {
            "lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "weight_decay": trial.suggest_float("weight_decay", 0.0, 1.0),
        }
        curve: list[float] = []

        def report(_loss: float, accuracy: float) -> None:
            curve.append(accuracy)
            trial.report(accuracy, step=len(curve))

        return workload.train(data, config, report)

    space = {"lr": LEARNING_RATES, "weight_decay": WEIGHT_DECAYS}
    study = optuna.load_study(**STUDY, sampler=optuna.samplers.GridSampler(space, seed=0))
    study.optimize(objective, n_trials=len(CONFIGS) // WORKERS)


def main() -> None:
    study = optuna.create_study(**STUDY, direction="maximize")
    command = [sys.executable, "-m", "bench.speed.contestants.optuna_grid", str(DATA), str(OUT), "work"]
    processes = [subprocess.Popen(command) for _ in range(WORKERS)]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit("optuna: a process failed")
    finish(OUT, {label(trial.params): trial.value or 0.0 for trial in study.trials})


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    main() if len(sys.argv) == 3 else work()

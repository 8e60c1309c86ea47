"""A study as a program of its own: ``driver.py FOLDER BACKEND WORKERS``; says when reports come, and what came."""

import json
import os
import sys
from pathlib import Path

import hoptree as ht
from tests.clusters.test_ray import Slow
from tests.system.plain import dataset, study
from tests.system.sabotage import Sabotage

mode: list[str] = []


def say(number: int) -> None:
    mode.append(os.environ.get("RAY_AUTH_MODE", ""))
    print(f"report {number}", flush=True)


def main(folder: Path, backend: str, workers: int) -> None:
    search = Sabotage(ht.Grid(epochs=3), {number: lambda number=number: say(number) for number in range(1, 10)})
    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[1], gamma=0.5))}
    job = study(folder, data=dataset(folder, partitions=4), search=search, space=space, trainer=Slow(0.05))
    results = job.run(workers=workers, backend=backend)
    import ray

    print(
        json.dumps(
            {
                "fingerprints": [trial.fingerprint for trial in results.trials if trial.state == "complete"],
                "trained": results.savings.epochs_trained,
                "mode": mode[0] if mode else "",
                "after": os.environ.get("RAY_AUTH_MODE", ""),
                "left": ray.is_initialized(),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

"""A study as a program of its own: ``driver.py FOLDER BACKEND WORKERS [REPORT]``; says what comes, and what came.

At the report that is named it waits to be killed, once a state is in the store.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import hoptree as ht
from tests.clusters.test_ray import Slow
from tests.system.plain import dataset, study
from tests.system.sabotage import Sabotage

mode: list[str] = []


def say(number: int) -> None:
    mode.append(os.environ.get("RAY_AUTH_MODE", ""))
    print(f"report {number}", flush=True)


def stay(number: int, folder: Path) -> None:
    while not any(folder.rglob("*.safetensors")):
        time.sleep(0.05)
    say(number)
    signal.pause()


def main(folder: Path, backend: str, workers: int, last: int = 0) -> None:
    happens = {number: partial(say, number) for number in range(1, 10)}
    if last:
        happens[last] = partial(stay, last, folder / "store")
    search = Sabotage(ht.Grid(epochs=3), happens)
    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[1], gamma=0.5))}
    data = dataset(folder, partitions=4)
    job = study(folder, data=data, search=search, space=space, trainer=Slow(0.05), save_every=1)
    before = dict(os.environ)
    results = job.run(workers=workers, backend=backend)
    after = dict(os.environ)
    import ray

    print(
        json.dumps(
            {
                "fingerprints": [trial.fingerprint for trial in results.trials if trial.state == "complete"],
                "trained": results.savings.epochs_trained,
                "mode": mode[0] if mode else "",
                "after": os.environ.get("RAY_AUTH_MODE", ""),
                "left": ray.is_initialized(),
                "changed": sorted(name for name in {*before, *after} if before.get(name) != after.get(name)),
                "handler": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))

"""A study as a program of its own that prints what came of it: ``plain_study.py FOLDER NAP SIZE [SEARCH]``."""

import json
import sys
from pathlib import Path

import hoptree as ht
from tests.system.plain import Plain, study


def main(folder: Path, nap: float, size: int, search: str) -> None:
    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[2], gamma=0.5)), "nap": nap}
    options = {}
    if search in ("children", "print"):
        space |= {"act": search, "where": str(folder / "flag")}
    if search == "pbt":
        space["lr"] = ht.log(0.01, 1.0)
        options["search"] = ht.PBT(population=8, epochs=6, interval=2)
    if search == "optuna":
        space["lr"] = ht.log(0.01, 1.0)
        options["search"] = ht.Optuna(
            trials=12, epochs=2, batch=3, options={"n_startup_trials": 3}, asynchronous=True
        )
    results = study(folder, trainer=Plain(size), space=space, epochs=4, **options).run(workers=2)
    complete = [trial for trial in results.trials if trial.state == "complete"]
    print(
        json.dumps(
            {
                "states": [trial.state for trial in results.trials],
                "fingerprints": [trial.fingerprint for trial in complete],
                "trained": results.savings.epochs_trained,
                "configs": [trial.config for trial in results.trials] if search == "optuna" else [],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *(sys.argv[4:] or ["grid"]))

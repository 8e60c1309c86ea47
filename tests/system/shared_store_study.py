"""A driver that shares its store with others: ``shared_store_study.py FOLDER NAME WIDTHS [JOURNAL [SEARCH]]``.

No unit begins while somebody holds the lock on ``FOLDER/go``, so that a test can wait until all drivers are there.
"""

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

import hoptree as ht
from hoptree.trainers.base import UnitSpec
from tests.system.plain import Plain

SPACE = {"lr": ht.choice(0.1, ht.multistep(0.1, at=[2.5], gamma=0.5), ht.multistep(0.1, at=[4], gamma=0.5))}


class Gated(Plain):
    """Waits for the lock before every unit."""

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        if unit.partitions > 1:  # in rehearsal there is one
            with Path(os.environ["HOPTREE_TEST_GO"]).open() as go:
                fcntl.flock(go, fcntl.LOCK_SH)
        super().train(model, data, unit)


def shared_store_study(
    folder: Path, name: str, widths: list[int], journal: str = "", search: str = "grid"
) -> ht.Study:
    space = {**SPACE, "width": ht.choice(*widths), "nap": 0.02}
    procedures = {
        "grid": ht.Grid(epochs=6),
        "halving": ht.SuccessiveHalving(trials=8, max_epochs=8, factor=2),
    }
    return ht.Study(
        name,
        trainer=Gated(),
        data=ht.Dataset.open(folder / "data"),
        space=space,
        search=procedures[search],
        minimize="loss",
        store=folder / "store",
        journal=journal or None,
    )


def main(folder: str, name: str, widths: str, journal: str = "", search: str = "grid") -> None:
    os.environ["HOPTREE_TEST_GO"] = str(Path(folder) / "go")
    study = shared_store_study(Path(folder), name, json.loads(widths), journal, search)
    results = study.run(workers=2)
    found = {
        "states": [trial.state for trial in results.trials],
        "fingerprints": {str(trial.config): trial.fingerprint for trial in results.trials if trial.curve},
        "curves": {str(trial.config): trial.curve for trial in results.trials},
        "trained": results.savings.epochs_trained,
        "reused": results.savings.epochs_reused,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

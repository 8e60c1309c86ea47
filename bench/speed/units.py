"""Overhead per unit: ``python -m bench.speed.units OUT WORKERS`` runs a study whose units do nothing."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import hoptree as ht
from bench.speed.trainers import Empty
from bench.speed.workspace import STORE, STUDY

CONFIGS, EPOCHS, PARTITIONS = 25, 20, 4
UNITS = CONFIGS * EPOCHS * PARTITIONS


def main(out: Path, workers: int) -> None:
    rows = np.arange(64, dtype=np.float32)
    study = ht.Study(
        STUDY,
        trainer=Empty(out / "first"),
        data=ht.Dataset.from_arrays(x=rows, y=rows, partitions=PARTITIONS, valid=0.25, to=out / "dataset"),
        space={"width": ht.choice(*range(CONFIGS))},
        search=ht.Grid(epochs=EPOCHS),
        minimize="loss",
        share=False,
        store=out / STORE,
    )
    results = study.run(workers=workers)
    ended = time.time()
    assert results.savings.epochs_trained == CONFIGS * EPOCHS
    seconds = ended - float((out / "first").read_text())
    (out / "result.json").write_text(json.dumps(seconds / UNITS))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Hoptree: ``python -m bench.sharing.contestants.hoptree_study DATA OUT CASE share|alone``."""

from __future__ import annotations

import sys
from pathlib import Path

import hoptree as ht
from bench.sharing.contestants.outcome import Clock, finish, of_hoptree, warm_up
from bench.sharing.spaces import CASES, SEED, WORKERS
from bench.sharing.workload import trainer
from bench.speed.settings import DATASET
from bench.speed.workspace import STORE, STUDY


def main(data: Path, out: Path, case: str, mode: str) -> None:
    study = ht.Study(
        STUDY,
        trainer=trainer(out / "meter"),
        data=ht.Dataset.open(data / DATASET),
        space=CASES[case].space,
        search=CASES[case].search,
        maximize="accuracy",
        seed=SEED,
        share=mode == "share",
        store=out / STORE,
    )
    warm_up(study)
    clock = Clock()
    results = study.run(workers=WORKERS)
    finish(out, [of_hoptree([results], out / "meter", clock.spent())])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])

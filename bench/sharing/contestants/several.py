"""Eight studies, or the first of them: ``python -m bench.sharing.contestants.several DATA OUT SET MODE COUNT``.

MODE: ``unshared`` (each in a store of its own, every trial alone), ``alone`` (each in a store of its own),
``after`` (one after another on one store), ``together`` (in one engine).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import hoptree as ht
from bench.sharing.contestants.outcome import Clock, Outcome, finish, of_hoptree, warm_up
from bench.sharing.spaces import COUNTS, SEED, SETS, TOGETHER, WORKERS
from bench.speed.settings import DATASET
from bench.speed.workspace import STORE, STUDY


def studies() -> Iterator[tuple[str, str]]:
    """Yield the stores and the names of all studies that a contestant of this bench may drive."""
    yield STORE, STUDY
    names = [f"study-{number}" for number in range(max(COUNTS))]
    for number, name in enumerate(names):
        yield STORE, name
        yield f"{STORE}-{number}", name
    for count in COUNTS:
        yield STORE, "+".join(names[:count])


def main(data: Path, out: Path, name: str, mode: str, count: int) -> None:
    from bench.sharing.workload import trainer  # imports torch, which the harness does not need

    def study(number: int, store: str, meter: str) -> ht.Study:
        return ht.Study(
            f"study-{number}",
            trainer=trainer(out / meter),
            data=dataset,
            space=SETS[name].spaces[number],
            search=TOGETHER,
            maximize="accuracy",
            seed=SEED,
            share=mode != "unshared",
            store=out / store,
        )

    dataset = ht.Dataset.open(data / DATASET)
    if mode == "together":
        studies = [study(number, STORE, "meter") for number in range(count)]
        warm_up(studies[0])
        clock = Clock()
        results = ht.run(studies, workers=WORKERS)
        finish(out, [of_hoptree(results, out / "meter", clock.spent())])
        return
    outcomes: list[Outcome] = []
    for number in range(count):
        meter = f"meter-{number}"
        one = study(number, STORE if mode == "after" else f"{STORE}-{number}", meter)
        warm_up(one)
        clock = Clock()
        result = one.run(workers=WORKERS)
        outcomes.append(of_hoptree([result], out / meter, clock.spent()))
    finish(out, outcomes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))

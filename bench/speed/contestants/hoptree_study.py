"""Hoptree without sharing: what a user writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.nn.functional import cross_entropy

import hoptree as ht
from bench.speed.settings import BATCH, DATASET, EPOCHS, LEARNING_RATES, WEIGHT_DECAYS, WORKERS, finish, label
from bench.speed.workload import net
from bench.speed.workspace import STORE, STUDY


def study(data: Path, out: Path) -> ht.Study:
    """Return the study of W1."""
    return ht.Study(
        STUDY,
        trainer=ht.Torch(net, loss=cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy}),
        data=ht.Dataset.open(data / DATASET),
        space={
            "lr": ht.choice(*LEARNING_RATES),
            "weight_decay": ht.choice(*WEIGHT_DECAYS),
            "batch_size": BATCH,
        },
        search=ht.Grid(epochs=EPOCHS),
        maximize="accuracy",
        share=False,
        store=out / STORE,
    )


def leave(out: Path, results: ht.Results, **more: Any) -> None:
    """Leave what the harness reads."""
    accuracies = {label(trial.config): trial.metrics["accuracy"] for trial in results.trials}
    finish(out, accuracies, bytes_hopped=results.savings.bytes_hopped, **more)


def main(data: Path, out: Path) -> None:
    leave(out, study(data, out).run(workers=WORKERS))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Hoptree without sharing: what a user writes."""

from __future__ import annotations

import sys
from pathlib import Path

from torch.nn.functional import cross_entropy

import hoptree as ht
from bench.speed.settings import BATCH, DATASET, EPOCHS, LEARNING_RATES, WEIGHT_DECAYS, WORKERS, finish, label
from bench.speed.workload import net
from bench.speed.workspace import STORE, STUDY

DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def main() -> None:
    study = ht.Study(
        STUDY,
        trainer=ht.Torch(net, loss=cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy}),
        data=ht.Dataset.open(DATA / DATASET),
        space={
            "lr": ht.choice(*LEARNING_RATES),
            "weight_decay": ht.choice(*WEIGHT_DECAYS),
            "batch_size": BATCH,
        },
        search=ht.Grid(epochs=EPOCHS),
        maximize="accuracy",
        share=False,
        store=OUT / STORE,
    )
    results = study.run(workers=WORKERS)
    accuracies = {label(trial.config): trial.metrics["accuracy"] for trial in results.trials}
    finish(OUT, accuracies, bytes_hopped=results.savings.bytes_hopped)


if __name__ == "__main__":
    main()

"""Start-up: ``python -m bench.speed.start_up OUT DATA`` times ``study.run()`` of W1 until its first unit starts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from torch.nn.functional import cross_entropy

import hoptree as ht
from bench.speed.settings import BATCH, DATASET, WORKERS
from bench.speed.trainers import Stamped
from bench.speed.workload import net
from bench.speed.workspace import STORE, STUDY


def main(out: Path, data: Path) -> None:
    trainer = ht.Torch(net, loss=cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy})
    study = ht.Study(
        STUDY,
        trainer=Stamped(trainer, out / "first"),
        data=ht.Dataset.open(data / DATASET),
        space={"lr": 1e-3, "weight_decay": 0.0, "batch_size": BATCH},
        search=ht.Grid(epochs=1),
        maximize="accuracy",
        store=out / STORE,
    )
    began = time.time()
    study.run(workers=WORKERS)
    (out / "result.json").write_text(json.dumps(float((out / "first").read_text()) - began))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""The study of the system tests: a program as a user writes it, run as a process of its own."""

import json
import sys

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import hoptree as ht

digits = load_digits()
x = (digits.data / 16).astype(np.float32)
y = digits.target


def net(hp):
    return nn.Sequential(nn.Linear(64, hp["width"]), nn.ReLU(), nn.Linear(hp["width"], 10))


def main(workers: int, share: bool, verify: bool) -> None:
    study = ht.Study(
        "digits",
        trainer=ht.Torch(
            net, loss=nn.functional.cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy}
        ),
        data=ht.Dataset.from_arrays(x=x, y=y, partitions=4, valid=0.2),
        space={
            "lr": ht.choice(3e-3, ht.multistep(3e-3, at=[4], gamma=0.1)),
            "width": ht.choice(32, 128),
            "batch_size": 64,
        },
        search=ht.Grid(epochs=6),
        maximize="accuracy",
        share=share,
    )
    results = study.run(workers=workers)
    print(
        json.dumps(
            {
                "fingerprints": [trial.fingerprint for trial in results.trials],
                "states": [trial.state for trial in results.trials],
                "best": results.best.number,
                "accuracy": results.best.metrics["accuracy"],
                "trained": results.savings.epochs_trained,
                "asked": results.savings.epochs_asked,
                "shared": results.savings.epochs_shared,
                "reused": results.savings.epochs_reused,
                "verified": [check.holds for check in study.verify()] if verify else [],
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "share", "verify" in sys.argv)

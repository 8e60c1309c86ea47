"""A convolutional net on Fashion-MNIST: twelve trials of schedules and widths; common beginnings are trained once.

It needs Debian's package dataset-fashion-mnist, or its four files in a folder named by FASHION_MNIST.
"""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
from torch import nn

import hoptree as ht

FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
TRAIN, VALID = 6000, 1000  # of 60,000 and 10,000: enough to compare configs


def read(kind, count):
    """Return the first images, 14 x 14 with values between 0 and 1, and their classes."""
    files = [FOLDER / f"{kind}-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1")]
    if not all(file.exists() for file in files):
        sys.exit(
            f"Fashion-MNIST is not in {FOLDER}. On Debian: apt install dataset-fashion-mnist. Elsewhere: put its "
            "four .gz files into a folder, and set FASHION_MNIST to that folder."
        )
    images = np.frombuffer(gzip.decompress(files[0].read_bytes()), np.uint8, offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer(gzip.decompress(files[1].read_bytes()), np.uint8, offset=8)
    small = images[:count].reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5)) / 255
    return {"x": small.astype(np.float32), "y": labels[:count].astype(np.int64)}


def net(hp):
    width = hp["width"]
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * 9, 10),
    )  # fmt: skip


study = ht.Study(
    "fashion",
    trainer=ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="sgd", metrics={"accuracy": ht.accuracy}),
    data=ht.Dataset.from_arrays(**read("train", TRAIN), partitions=4, valid=read("t10k", VALID)),
    space={
        "lr": ht.choice(
            ht.multistep(ht.choice(0.02, 0.05), at=ht.choice([3], [4]), gamma=0.1),
            0.05,
            ht.cosine(0.05, period=5),
        ),
        "momentum": 0.9,
        "width": ht.choice(8, 16),
        "batch_size": 32,
    },
    search=ht.Grid(epochs=5),
    maximize="accuracy",
)

if __name__ == "__main__":
    results = study.run()
    best = results.best
    print(f"{len(results.trials)} trials; {results.savings}")
    print(f"Best: trial {best.number}, accuracy {best.metrics['accuracy']:.3f}, lr {best.config['lr']}")

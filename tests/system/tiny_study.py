"""A small study, as users write one. Where there is a named pipe `gate`, wide models wait until it is closed."""

from pathlib import Path

import numpy as np
from torch import nn

import hoptree as ht

random = np.random.default_rng(0)
x = random.normal(size=(64, 4)).astype("float32")
y = random.integers(0, 3, 64)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.last = nn.Linear(width, 3)

    def forward(self, values):
        return self.last(self.first(values).relu())


def net(hp):
    if hp["width"] == 5:
        raise ValueError("five is too odd")
    if hp["width"] == 16 and Path("gate").exists():
        Path("gate").read_bytes()
    return Net(hp["width"])


tiny = ht.Study(
    "tiny",
    trainer=ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="sgd", metrics={"accuracy": ht.accuracy}),
    data=ht.Dataset.from_arrays(x=x, y=y, partitions=2, valid=0.25),
    space={
        "width": ht.choice(8, 5, 16),
        "lr": ht.choice(0.1, ht.multistep(0.1, at=[1], gamma=0.1)),
        "batch_size": 16,
    },
    search=ht.Grid(epochs=2),
    maximize="accuracy",
)

if __name__ == "__main__":
    tiny.run(workers=1)
    print("run by python")

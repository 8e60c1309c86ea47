"""A multi-layer perceptron on a table: 569 tumours with 30 numbers each, from scikit-learn.

27 configs are drawn. All get one epoch, the best third of them three, and the best third of those nine.
"""

from sklearn.datasets import load_breast_cancer
from torch import nn

import hoptree as ht

table = load_breast_cancer()
x = ((table.data - table.data.mean(0)) / table.data.std(0)).astype("float32")


def net(hp):
    layers, width = [], x.shape[1]
    for _ in range(hp["depth"]):
        layers += [nn.Linear(width, hp["width"]), nn.ReLU(), nn.Dropout(hp["dropout"])]
        width = hp["width"]
    return nn.Sequential(*layers, nn.Linear(width, 2))


study = ht.Study(
    "tumours",
    trainer=ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="adamw", metrics={"accuracy": ht.accuracy}),
    data=ht.Dataset.from_arrays(x=x, y=table.target, partitions=4, valid=0.25),
    space={
        "lr": ht.log(1e-4, 3e-2),
        "weight_decay": ht.log(1e-5, 1e-1),
        "depth": ht.integer(1, 3),
        "width": ht.choice(16, 32, 64),
        "dropout": ht.uniform(0.0, 0.5),
        "batch_size": ht.choice(16, 32),
    },
    search=ht.SuccessiveHalving(trials=27, max_epochs=9),
    minimize="loss",
)

if __name__ == "__main__":
    results = study.run()
    best = results.best
    print(f"{len(results.trials)} trials; {results.savings}")
    print(f"Best: trial {best.number}, accuracy {best.metrics['accuracy']:.3f}, {best.config}")

"""Your own train function with ``ht.Functions``: mixup, which trains on mixtures of two examples."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import hoptree as ht

digits = load_digits()


def input_fn(columns):
    """Convert the columns of a partition, or of validation data, to the input of ``train_fn``."""
    return torch.tensor(columns["pixels"]).float() / 16, torch.tensor(columns["digit"])


def model_fn(hp):
    """Return a new model and its optimizer."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, torch.optim.SGD(model.parameters(), lr=hp["lr"], momentum=0.9, nesterov=True)


def train_fn(data, model, optimizer, hp):
    """Make one pass over the data; without an optimizer, only evaluate. Torch is seeded before every call."""
    inputs, targets = data
    if optimizer is None:
        scores = model(inputs)
        right = (scores.argmax(1) == targets).float().mean()
        return {"loss": nn.functional.cross_entropy(scores, targets), "accuracy": right}
    total = 0.0
    for batch in torch.randperm(len(inputs)).split(32):
        other = batch[torch.randperm(len(batch))]
        share = 1 - hp["mixup"] * torch.rand(1)
        scores = model(share * inputs[batch] + (1 - share) * inputs[other])
        losses = [nn.functional.cross_entropy(scores, targets[part]) for part in (batch, other)]
        loss = share * losses[0] + (1 - share) * losses[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return {"loss": total / len(inputs)}


study = ht.Study(
    "mixup",
    trainer=ht.Functions(input_fn, model_fn, train_fn),
    data=ht.Dataset.from_arrays(pixels=digits.data, digit=digits.target, partitions=4, valid=0.25),
    space={
        "lr": ht.choice(0.1, ht.multistep(0.1, at=[6], gamma=0.2)),
        # Mixup may end before training does: two of these schedules begin the same.
        "mixup": ht.choice(0.0, 0.5, ht.multistep(0.5, at=[6], gamma=0.0)),
    },
    search=ht.Grid(epochs=9),
    maximize="accuracy",
)

if __name__ == "__main__":
    results = study.run()
    best = results.best
    print(f"{len(results.trials)} trials; {results.savings}")
    print(f"Best: trial {best.number}, accuracy {best.metrics['accuracy']:.3f}, {best.config}")

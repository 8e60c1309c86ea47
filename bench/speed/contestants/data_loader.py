"""The typical program of the tutorials: ``TensorDataset`` and ``DataLoader``."""

from __future__ import annotations

from typing import Any

from bench.speed.contestants import plain
from bench.speed.settings import BATCH, EPOCHS


def train(data: Any, config: Any) -> float:
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

    from bench.speed.workload import adam, net

    torch.manual_seed(0)
    batches = DataLoader(TensorDataset(data.x, data.y), batch_size=BATCH, shuffle=True)
    test_batches = DataLoader(TensorDataset(data.test_x, data.test_y), batch_size=BATCH)
    model = net()
    optimizer = adam(model, config)
    for _ in range(EPOCHS):
        model.train()
        for x, y in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        total, right = 0.0, 0
        with torch.no_grad():
            for x, y in test_batches:
                output = model(x)
                total += cross_entropy(output, y, reduction="sum").item()
                right += (output.argmax(1) == y).sum().item()
    return right / len(data.test_x)


if __name__ == "__main__":
    plain.run("bench.speed.contestants.data_loader", train)

"""A small residual network in torch: what Hoptree trains, and the same by hand for Ray Tune."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hoptree as ht
from bench.sharing.meter import Meter
from bench.speed.workload import Data
from hoptree.core.schedules import as_schedule
from hoptree.trainers.base import Columns, ModelState, UnitSpec

EVALUATED = 256  # examples at a time, as in Hoptree
WIDTH = 8


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both ways."""
        return torch.relu(self.body(x) + self.around(x))


def net(values: Mapping[str, Any]) -> nn.Module:
    """Return the network."""
    return nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, 1, 1, bias=False),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        Block(WIDTH, WIDTH, 1),
        Block(WIDTH, 2 * WIDTH, 2),
        Block(2 * WIDTH, 4 * WIDTH, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(values.get("dropout", 0.0)),
        nn.Linear(4 * WIDTH, 10),
    )


def trainer(meter: Path) -> ht.Trainer:
    """Return Hoptree's trainer, metered."""
    torch_trainer = ht.Torch(net, loss=cross_entropy, optimizer="sgd", metrics={"accuracy": ht.accuracy})
    return Metered(torch_trainer, Meter(meter))


@final
class Metered(ht.Trainer):
    """Another trainer that counts what it takes."""

    def __init__(self, other: ht.Trainer, meter: Meter) -> None:
        self._other = other
        self._meter = meter

    @property
    def fingerprint(self) -> str:
        """The other's."""
        return self._other.fingerprint

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        """Build as the other does."""
        return self._other.build(values, seed)

    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        """Train as the other does."""
        if unit.partitions == 1:  # a rehearsal
            self._other.train(model, data, unit)
            return
        self._meter.begin()
        with self._meter.counting("training"):
            self._other.train(model, data, unit)

    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Any]) -> dict[str, float]:
        """Evaluate as the other does."""
        with self._meter.counting("evaluating"):
            return self._other.evaluate(model, data, values)

    def dump(self, model: Any) -> ModelState:
        """Dump as the other does."""
        self._meter.note()
        return self._other.dump(model)

    def load(self, model: Any, state: ModelState) -> None:
        """Load as the other does."""
        self._other.load(model, state)


@final
class ByHand:
    """One trial, by hand: values from the same schedules at every step, the same network and optimizer."""

    def __init__(self, data: Data, config: Mapping[str, Any], seed: int, meter: Meter) -> None:
        self._data = data
        self._schedules = {name: as_schedule(value) for name, value in config.items()}
        self._meter = meter
        torch.manual_seed(seed)
        values = self._at(0.0)
        self.model = net(values)
        options = {name: values[name] for name in ("lr", "momentum", "weight_decay") if name in values}
        self.optimizer = torch.optim.SGD(self.model.parameters(), **options, fused=True)
        self._dropouts = [part for part in self.model.modules() if isinstance(part, nn.Dropout)]

    def run(self, start: int, until: int, report: Callable[[dict[str, float]], None]) -> None:
        """Train from one epoch to another, with a report after each."""
        self._meter.begin()
        for epoch in range(start, until):
            with self._meter.counting("training"):
                self._train(epoch)
            with self._meter.counting("evaluating"):
                metrics = self._evaluate()
            report(metrics)
            self._meter.note()

    def _train(self, epoch: int) -> None:
        self.model.train()
        data = self._data
        for chosen, values in self._batches(epoch):
            for group in self.optimizer.param_groups:
                group.update({name: values[name] for name in group if name in values})
            for part in self._dropouts:
                part.p = values.get("dropout", 0.0)
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(data.x.index_select(0, chosen)), data.y.index_select(0, chosen))
            loss.backward()
            self.optimizer.step()

    def _batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        order = torch.randperm(len(self._data.x))
        start = 0
        while start < len(order):
            values = self._at(epoch + start / len(order))
            stop = start + values["batch_size"]
            yield order[start:stop], values
            start = stop

    def _evaluate(self) -> dict[str, float]:
        self.model.eval()
        data = self._data
        with torch.no_grad():
            output = torch.cat([self.model(part) for part in data.test_x.split(EVALUATED)])
            right = (output.argmax(1) == data.test_y).float().mean()
            return {"loss": cross_entropy(output, data.test_y).item(), "accuracy": right.item()}

    def _at(self, progress: float) -> dict[str, Any]:
        return {name: schedule(progress) for name, schedule in self._schedules.items()}

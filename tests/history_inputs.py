"""What random histories draw: configs, cost formulas, known results, and who holds which partition."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hoptree.core.costs import CostFormula, Feature
from hoptree.core.events import KnownResults
from hoptree.core.keys import encode
from hoptree.core.lineage import Values
from hoptree.core.schedules import constant, cosine, cyclic, exponential, linear, multistep, warmup

CONFIGS = [
    {"lr": 0.1},
    {"lr": multistep(0.1, at=[1], gamma=0.1)},
    {"lr": multistep(0.1, at=[2], gamma=0.1)},
    {"lr": multistep(0.1, at=[1.4, 2.6], gamma=0.1)},
    {"lr": multistep(0.1, at=[1, 2], gamma=0.1)},
    {"lr": warmup(0.0, 1, constant(0.1))},
    {"lr": warmup(0.0, 1, exponential(0.1, 0.9))},
    {"lr": cosine(0.1, period=2)},
    {"lr": cyclic(0.0, 0.1, up=1, down=1)},
    {"lr": linear(0.1, 0.0, over=3), "momentum": 0.9},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "momentum": multistep(0.9, at=[2], gamma=0.5)},
]


def cost_of(values: Values) -> float:
    """Return a cost that is the same for the same values."""
    return 0.5 + len(repr(values)) % 3


def deal(random: Random, workers: Sequence[str], partitions: int) -> dict[str, tuple[int, ...]]:
    """Give every partition to one worker or more."""
    held: dict[str, set[int]] = {worker: set() for worker in workers}
    for partition in range(partitions):
        for worker in random.sample(list(workers), random.randint(1, len(workers))):
            held[worker].add(partition)
    return {worker: tuple(sorted(partitions)) for worker, partitions in held.items()}


def formula(random: Random) -> CostFormula:
    """Return a cost formula in the learning rate and the momentum."""
    features = (Feature("lr", "log", -2.0, 1.5), Feature("momentum", "is", level=encode(0.9).hex()))
    weights = [random.uniform(-1, 1) for _ in range(3)]
    return CostFormula(weights[0], features, ((weights[1], (0,)), (weights[2], (1, 0))), 0.01, 100.0)


def known_results(random: Random) -> KnownResults | None:
    """Return results of an earlier study that the store holds, in some cases."""
    if random.random() < 0.7:
        return None
    epochs = [epoch for epoch in range(1, 5) if random.random() < 0.4]
    return KnownResults(tuple(epochs), tuple((epoch, {"loss": 1.0}) for epoch in epochs if random.random() < 0.7))

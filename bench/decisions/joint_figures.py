"""The problems of figures 4.1 to 4.3 of the thesis on Cerebro's unified scheduler."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SEEDS = range(5)
SCALINGS = {
    "linear": {1: 1.0, 2: 2.0, 4: 4.0},
    "sublinear": {1: 1.0, 2: 1.8, 4: 3.1},
    "poor": {1: 1.0, 2: 1.5, 4: 2.1},
}
"""The speed of a model with 1, 2 and 4 devices."""
SHARD_SECONDS = (750.0, 1000.0)
"""The thesis gives no task times. These reproduce its makespans with one model per GPU."""


class Figure(NamedTuple):
    """One figure: its number, the tasks, and the GPUs of each node."""

    number: str
    tasks: int
    devices: tuple[int, ...]

    @property
    def name(self) -> str:
        """How the figure is called in the tables."""
        nodes = f"{len(self.devices)} nodes of 2" if len(set(self.devices)) == 1 else "nodes of 4, 2, 2"
        return f"{self.number}: {self.tasks} tasks, {nodes}"

    def shards(self, seed: int) -> list[float]:
        """Draw the seconds of every task for one shard on one GPU."""
        random = Random(seed)
        return [random.uniform(*SHARD_SECONDS) for _ in range(self.tasks)]

    def times(self, scaling: str, seed: int) -> list[list[dict[int, float]]]:
        """Return the times for `solve_joint`: a node has as many shards as GPUs (equation 4.15)."""
        speeds = SCALINGS[scaling]
        return [
            [{w: shard * count / speeds[w] for w in speeds if w <= count} for count in self.devices]
            for shard in self.shards(seed)
        ]


FIGURES = (Figure("4.1", 6, (2,) * 8), Figure("4.2", 6, (4, 2, 2)), Figure("4.3", 10, (4, 2, 2)))

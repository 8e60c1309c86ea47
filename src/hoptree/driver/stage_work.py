"""The work of a stage: distinct units and evaluations by values, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hoptree.core.lineage import Values
from hoptree.elastic.job import JobStage

_LEAST = 1e-9  # seconds of a stage of which nothing has to be trained


def _nothing(_values: Values) -> float:
    return 0.0


class TrainingTimes(msgspec.Struct, frozen=True):
    """Seconds of a unit and of an evaluation on one device, by values, and of a hop.

    ``noise`` is the standard deviation of a unit's time, relative to the time.
    """

    unit: Callable[[Values], float]
    evaluation: Callable[[Values], float] = _nothing
    hop: float = 0.0
    noise: float = 0.0


class StageWork(NamedTuple):
    """What is trained in a stage: lineages side by side, distinct units and evaluations by values."""

    lineages: int
    units: Mapping[Values, float]
    evaluations: Mapping[Values, float]

    @property
    def size(self) -> float:
        """The number of units."""
        return sum(self.units.values())

    def scaled(self, factor: float) -> StageWork:
        """Return so many times as much work."""
        units = {values: factor * count for values, count in self.units.items()}
        return StageWork(self.lineages, units, {values: factor * n for values, n in self.evaluations.items()})

    def plus(self, other: StageWork) -> StageWork:
        """Return the work of both, with the lineages of this one."""
        units, evaluations = dict(self.units), dict(self.evaluations)
        for mine, others in ((units, other.units), (evaluations, other.evaluations)):
            for values, count in others.items():
                mine[values] = mine.get(values, 0.0) + count
        return StageWork(self.lineages, units, evaluations)

    def seconds(self, unit: Callable[[Values], float]) -> float:
        """Return the seconds of all units."""
        return sum(count * unit(values) for values, count in self.units.items())

    def stage(self, times: TrainingTimes, *, scale: float = 1.0, spread: float = 0.0) -> JobStage:
        """Return the stage for the planner; ``spread`` is that of the trials, relative to their time."""
        seconds = self.seconds(times.unit) + self.size * times.hop
        seconds += sum(count * times.evaluation(values) for values, count in self.evaluations.items())
        trials = max(1, self.lineages)
        each = max(_LEAST, scale * seconds / trials)
        units = max(1.0, scale * self.size / trials)
        return JobStage(trials, each, each * math.hypot(spread, times.noise / math.sqrt(units)))


def relative_spread(sizes: Sequence[float]) -> float:
    """Return the standard deviation of sizes over their mean."""
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return math.sqrt(sum((size - mean) ** 2 for size in sizes) / len(sizes)) / mean if mean else 0.0

"""Samples of the time of each stage: trials differ, and a stage takes as long as its slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from hoptree.elastic.stage_model import StageModel, last_units, shared_seconds
from hoptree.elastic.timeline import StageTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Samples: TypeAlias = "NDArray[np.float64]"
SAMPLES = 256
UNITS_AT_THE_END = 3.0
"""By how many standard deviations of a unit the end of a stage differs: any of its last units may be slow."""


@final
class StageSampler:
    """Draws the times of the trials of a job once, so that all plans are compared on the same samples."""

    def __init__(self, model: StageModel, *, seed: int, samples: int = SAMPLES) -> None:
        self._model = model
        generator = np.random.default_rng(seed)
        self._trials: list[Samples] = []
        for stage in model.job.stages:
            if stage.spread > 0:
                drawn = generator.normal(stage.seconds, stage.spread, (stage.trials, samples))
                self._trials.append(np.maximum(drawn, 0.0))
            else:
                self._trials.append(np.full((stage.trials, samples), stage.seconds))
        self._longest = [each.max(axis=0) for each in self._trials]
        self._sums = [each.sum(axis=0) for each in self._trials]
        slow = UNITS_AT_THE_END * model.job.unit_spread
        self._last = [generator.normal(0.0, slow, samples) for _ in self._trials]
        self._times: dict[tuple[int, int], StageTime] = {}

    def trials(self, index: int) -> Samples:
        """Return the seconds of each trial of a stage on one device: a row for each trial."""
        return self._trials[index]

    def times(self, counts: Sequence[int]) -> list[StageTime]:
        """Return the samples of the time of each stage with its number of nodes."""
        found: list[StageTime] = []
        for key in enumerate(counts):
            if key not in self._times:
                self._times[key] = self._time(*key)
            found.append(self._times[key])
        return found

    def _time(self, index: int, count: int) -> StageTime:
        stage = self._model.job.stages[index]
        share = self._model.share(stage.trials, count)
        busy = self._sums[index] * (share.width / share.speed)
        seconds: Any
        if not share.turns:
            seconds = self._longest[index] / share.speed
        else:
            devices = count * self._model.instance.devices
            if self._model.job.divisible:
                seconds = shared_seconds(self._model.job, self._sums[index] / devices, self._longest[index])
                seconds = seconds + np.maximum(last_units(self._model.job, devices) + self._last[index], 0.0)
            else:
                trials = self._trials[index]
                seconds = np.max([trials[first::devices].sum(axis=0) for first in range(devices)], axis=0)
        return StageTime(seconds, busy, self._model.seconds(index, count))

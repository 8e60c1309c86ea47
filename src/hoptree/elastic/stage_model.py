"""The time of a stage on a number of nodes, and the numbers of nodes between which it pays to choose."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any, final

import msgspec
import numpy as np

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage

EXACT_COUNTS = 32
"""Up to so many nodes each number is tried; beyond, steps of 1 / 32 are."""


AHEAD = 1.25
"""The last units of a stage, of which some wait for a busy device to which they were assigned ahead."""
SHARPNESS = 8
"""How sharp the maximum of two times is of which neither is exact: fitted to simulated stages."""


class Share(msgspec.Struct, frozen=True):
    """What each trial of a stage has: ``width`` devices, on which it is ``speed`` times as fast as on one.

    ``turns`` says that there are more trials than devices, so that they take turns.
    """

    width: int
    speed: float
    turns: bool


@final
class StageModel:
    """Stage times of a job on nodes of one type, by their number.

    More trials than devices share them evenly if the job is divisible, else they take turns in rounds. Otherwise
    each trial has a gang: the fastest of those whose speed-up is known and for which the nodes have room.
    A gang is on one node if it fits there, and else has whole nodes for itself.
    """

    def __init__(self, job: Job, instance: Instance) -> None:
        _check(job)
        self.job = job
        self.instance = instance
        # A slower, larger gang is never chosen.
        widths: list[tuple[int, float]] = []
        for width, speed in sorted({1: 1.0, **job.speed_ups}.items()):
            if not widths or speed > widths[-1][1]:
                widths.append((width, speed))
        self._widths = widths
        self._seconds: dict[tuple[int, int], float] = {}

    @property
    def widths(self) -> list[int]:
        """The sizes of gangs, each faster than all smaller ones."""
        return [width for width, _ in self._widths]

    def nodes_for(self, trials: int, width: int) -> int:
        """Return the nodes that gangs of a size need, so that all trials train at once."""
        devices = self.instance.devices
        if width <= devices:
            return -(-trials // (devices // width))
        return trials * -(-width // devices)

    def share(self, trials: int, nodes: int, devices: int | None = None) -> Share:
        """Return what each trial has on so many nodes, or on so many ``devices`` of them."""
        total = nodes * self.instance.devices if devices is None else devices
        if trials > total:
            return Share(1, 1.0, turns=True)
        width, speed = next(
            (
                each
                for each in reversed(self._widths)
                if trials * each[0] <= total and self._fits(trials, each, nodes)
            ),
            self._widths[0],
        )
        return Share(width, speed, turns=False)

    def seconds(self, index: int, nodes: int) -> float:
        """Return the time that is expected for a stage."""
        key = (index, nodes)
        found = self._seconds.get(key)
        if found is None:
            found = self._seconds[key] = self.seconds_on(index, nodes, nodes * self.instance.devices)
        return found

    def seconds_on(self, index: int, nodes: int, devices: int) -> float:
        """Return the time that is expected for a stage if only so many devices of its nodes are used."""
        stage = self.job.stages[index]
        share = self.share(stage.trials, nodes, devices)
        slowest = stage.seconds + stage.spread * expected_maximum(stage.trials)
        if not share.turns:
            return slowest / share.speed
        if self.job.divisible:
            shared = float(shared_seconds(self.job, stage.trials * stage.seconds / devices, slowest))
            return shared + last_units(self.job, devices)
        rounds = -(-stage.trials // devices)
        return rounds * stage.seconds + math.sqrt(rounds) * stage.spread * expected_maximum(devices)

    def busy(self, index: int, nodes: int) -> float:
        """Return the seconds for which devices train in a stage, summed over the devices."""
        return self.busy_on(index, nodes, nodes * self.instance.devices)

    def busy_on(self, index: int, nodes: int, devices: int) -> float:
        """Return the same if only so many devices of the nodes are used."""
        stage = self.job.stages[index]
        share = self.share(stage.trials, nodes, devices)
        return stage.trials * stage.seconds * share.width / share.speed

    def counts(self, most: int | None = None) -> list[int]:
        """Return the numbers of nodes that can be worth having in some stage, in rising order."""
        found = {1}
        for index in range(len(self.job.stages)):
            found |= self._steps(index, most)
        return sorted(found)

    def _steps(self, index: int, most: int | None) -> set[int]:
        """Return the numbers of nodes at which a stage becomes faster."""
        trials = self.job.stages[index].trials
        gangs = {self.nodes_for(trials, width) for width, _ in self._widths}
        one_each = self.nodes_for(trials, 1)
        shared: list[int] = []
        count = 1
        while count < one_each:
            shared.append(count)
            count += 1 if count < EXACT_COUNTS else count // EXACT_COUNTS
        if not self.job.divisible:
            devices = self.instance.devices
            shared = [-(-trials // (rounds * devices)) for rounds in {-(-trials // (n * devices)) for n in shared}]
        found = {*gangs, *shared}
        if most is not None:
            found = {min(each, most) for each in found}
        return found

    def _fits(self, trials: int, width: tuple[int, float], nodes: int) -> bool:
        return self.nodes_for(trials, width[0]) <= nodes


@lru_cache(maxsize=4096)
def expected_maximum(count: int) -> float:
    """Return the expected largest of so many standard normal values (Blom's approximation)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def last_units(job: Job, devices: int) -> float:
    """Return for how long some devices of a divisible job are idle, while the others finish their last units."""
    return AHEAD * job.unit * (1.0 - 1.0 / devices) + job.unit_spread * expected_maximum(devices)


def shared_seconds(job: Job, even: Any, longest: Any) -> Any:
    """Return the time in which devices share trials, if ``even`` is what each trains, and ``longest`` a trial.

    Neither is enough if both are about equal: a trial that is behind trains one unit at a time.
    """
    if not job.unit:
        return np.maximum(even, longest)
    return (even**SHARPNESS + longest**SHARPNESS) ** (1.0 / SHARPNESS)


def _check(job: Job) -> None:
    """Refuse a job that cannot be planned."""
    if not job.stages:
        raise WorkloadError("stages: none; expected at least one stage with trials to train")
    for index, stage in enumerate(job.stages):
        _check_stage(index, stage)
    for width, speed in job.speed_ups.items():
        if width < 1 or not (math.isfinite(speed) and speed > 0):
            raise WorkloadError(
                f"speed_ups[{width}]: {speed!r}; expected how much faster a trial is on {width} devices than on one"
            )


def _check_stage(index: int, stage: JobStage) -> None:
    if stage.trials < 1:
        raise WorkloadError(f"stages[{index}].trials: {stage.trials}; expected at least 1")
    for field in ("seconds", "spread"):
        value = getattr(stage, field)
        if not (math.isfinite(value) and value >= 0):
            raise WorkloadError(f"stages[{index}].{field}: {value!r}; expected seconds, 0 or more")

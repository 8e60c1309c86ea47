"""Plans of allocation: how many nodes a job has in each of its stages, and what that takes and costs."""

from __future__ import annotations

import msgspec

from hoptree.elastic.instance import Instance


class Range(msgspec.Struct, frozen=True):
    """An expected figure; in nine of ten cases it lies from ``least`` to ``most``."""

    expected: float
    least: float
    most: float


class StagePlan(msgspec.Struct, frozen=True):
    """The nodes of one stage; ``begins`` and ``ends`` are seconds from the start of the run."""

    trials: int
    nodes: int
    devices_per_trial: int  # 1 also if trials have to take turns
    begins: float
    ends: float


class Allocation(msgspec.Struct, frozen=True):
    """The nodes of a job in all of its stages, with the time and the cost that the model expects."""

    instance: Instance
    stages: tuple[StagePlan, ...]
    seconds: Range
    cost: Range

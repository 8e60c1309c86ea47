"""A job: what a search trains, in stages that each end when all of their trials have reported."""

from __future__ import annotations

import msgspec


class JobStage(msgspec.Struct, frozen=True):
    """Trials that train side by side; the next stage begins when all are done."""

    trials: int
    seconds: float  # of one trial, on one device
    spread: float = 0.0  # standard deviation of these seconds from trial to trial


class Job(msgspec.Struct, frozen=True):
    """The stages of a search, and how much faster a trial is on several devices.

    ``speed_ups`` are relative to one device, by number of devices. In a ``divisible`` job more trials than devices
    share the devices evenly, because models hop after every unit; in others each device trains whole trials of a
    stage, one after another. ``sync`` are the seconds from the end of a stage to the begin of the next, ``data_gb``
    what every node reads when it starts. ``unit`` are the seconds of the smallest part of a divisible job, and
    ``unit_spread`` is their standard deviation: devices do not all finish a stage at once.
    """

    stages: tuple[JobStage, ...]
    speed_ups: dict[int, float]
    divisible: bool = True
    sync: float = 0.0
    data_gb: float = 0.0
    unit: float = 0.0
    unit_spread: float = 0.0

"""Fault scripts: the failures of a simulated run, and when they happen."""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from hoptree.core.errors import WorkloadError


class Crash(msgspec.Struct, frozen=True, tag="crash"):
    """A worker is lost at a time, and comes back later if ``back`` is given.

    With ``volatile`` the states that it created last are lost with it.
    """

    worker: str
    at: float
    back: float | None = None
    volatile: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at) and self.at >= 0):
            raise WorkloadError(f"faults: crash of {self.worker} at {self.at}; expected a time >= 0")
        if self.back is not None and not self.at < self.back < math.inf:
            raise WorkloadError(
                f"faults: {self.worker} crashes at {self.at} and comes back at {self.back}; expected a later time"
            )


class FlakyUnits(msgspec.Struct, frozen=True, tag="flaky-units"):
    """Each unit fails with a probability, at its end."""

    probability: float
    reason: str = "flaky"

    def __post_init__(self) -> None:
        _probability("faults: flaky units", self.probability)


class StateLoss(msgspec.Struct, frozen=True, tag="state-loss"):
    """Each stored state is lost with a probability, right after it was created."""

    probability: float

    def __post_init__(self) -> None:
        _probability("faults: state loss", self.probability)


class NodeLoss(msgspec.Struct, frozen=True, tag="node-loss"):
    """A node is lost at a time, with the states that only it holds; "" is any that runs then."""

    at: float
    node: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.at) and self.at >= 0):
            raise WorkloadError(f"faults: a node is lost at {self.at}; expected a time >= 0")


Fault: TypeAlias = Crash | FlakyUnits | StateLoss | NodeLoss


def _probability(field: str, value: float) -> None:
    if not 0 <= value < 1:
        raise WorkloadError(f"{field}: probability {value}; expected a number from 0 to below 1")

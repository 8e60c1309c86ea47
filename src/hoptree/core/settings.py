"""The settings of an engine."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from hoptree.core.errors import WorkloadError

Order: TypeAlias = Literal["strict", "free"]
DEFAULT_POLICY: Final = "first-come"
MONTE_CARLO: Final = "monte-carlo"


class Settings(msgspec.Struct, frozen=True):
    """How to plan and schedule.

    ``ahead``: assign a busy worker its next unit before the current one ends. ``affinity``: keep a lineage on the
    worker that holds its state, if no longer path waits for that worker. ``retries``: how often a unit may fail by
    the user's code, ``patience``: by a fault of the system, before its trials fail.
    """

    partitions: int
    order: Order = "strict"
    policy: str = DEFAULT_POLICY
    seed: int = 0
    ahead: bool = True
    affinity: bool = True
    retries: int = 2
    patience: int = 20

    def __post_init__(self) -> None:
        if self.order not in ("strict", "free"):
            raise WorkloadError(f"order: {self.order!r}; expected 'strict' or 'free'")
        if self.partitions < 1:
            raise WorkloadError(f"partitions: {self.partitions}; an epoch needs at least one partition")
        for field in ("retries", "patience"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 0:
                raise WorkloadError(f"{field}: {value}; expected 0 or more")

"""Nodes that come and go in simulation: how many devices they have, and how long they take to come."""

from __future__ import annotations

import math

import msgspec

from hoptree.core.errors import WorkloadError


class ElasticNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one type that a simulated provider rents out.

    A node starts ``provision`` seconds after it was requested, and its devices can train ``start`` seconds later
    and once it has loaded its partitions, ``partition_seconds`` for each. ``spread`` is the relative spread of
    provision and start (log-normal). ``begin`` nodes are requested at the start. Each partition is held by
    ``replicas`` nodes; None: by all.
    """

    devices: int = 1
    begin: int = 0
    provision: float = 0.0
    start: float = 0.0
    spread: float = 0.0
    partition_seconds: float = 0.0
    replicas: int | None = None
    max_count: int | None = None

    def __post_init__(self) -> None:
        for field, least in (("devices", 1), ("begin", 0), ("replicas", 1), ("max_count", 1)):
            value = getattr(self, field)
            if value is None and field in ("replicas", "max_count"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise WorkloadError(f"elastic.{field}: {value!r}; expected a whole number, at least {least}")
        for field in ("provision", "start", "spread", "partition_seconds"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
                raise WorkloadError(f"elastic.{field}: {value!r}; expected a finite number, 0 or more")

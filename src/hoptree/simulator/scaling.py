"""Nodes with several devices: which partitions they hold, and how much faster a unit is on several devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from hoptree.core.errors import WorkloadError
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.profile import Profile, ProfileEntry

SpeedUps: TypeAlias = Literal["linear"] | Mapping[int, float]


def check_nodes(nodes: Sequence[Any]) -> None:
    """Raise an error unless every node has a device."""
    for index, devices in enumerate(nodes):
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
            raise WorkloadError(f"nodes[{index}]: {devices!r}; expected a whole number of devices, at least 1")


def check_scaling(scaling: Mapping[str, SpeedUps]) -> None:
    """Raise an error unless every layout has a name and speed-ups of powers of two."""
    for name, table in scaling.items():
        field = f"scaling[{name!r}]"
        try:
            Layout.parse(name)
        except ValueError as error:
            raise WorkloadError(f"{field}: {error}") from None
        if table == "linear":
            continue
        if not isinstance(table, Mapping) or not table:
            raise WorkloadError(f"{field}: {table!r}; expected 'linear' or a table, such as {{2: 1.8, 4: 3.1}}")
        for width, speed in table.items():
            if isinstance(width, bool) or not isinstance(width, int) or width < 1 or width & (width - 1):
                raise WorkloadError(f"{field}: {width!r} devices; expected a power of two")
            if not isinstance(speed, int | float) or not (math.isfinite(speed) and speed > 0):
                raise WorkloadError(f"{field}[{width}]: {speed!r}; expected a finite speed-up above 0")
            if width == 1 and speed != 1:
                raise WorkloadError(f"{field}[1]: {speed!r}; expected 1: speed-ups are relative to one device")
        widths = sorted({1, *table})
        gap = next((width for width in widths[1:] if width // 2 not in widths), None)
        if gap is not None:
            raise WorkloadError(f"{field}: {gap} devices without {gap // 2}; expected all powers of two before it")


def share(partitions: int, nodes: Sequence[int]) -> list[int]:
    """Return the node of every partition: each node has as large a part of them as of the devices.

    >>> share(8, [4, 2, 2])
    [0, 0, 0, 0, 1, 1, 2, 2]
    >>> share(3, [4, 2, 2])
    [0, 1, 2]
    """
    devices = sum(nodes)
    counts = [partitions * own // devices for own in nodes]
    parts = sorted(range(len(nodes)), key=lambda node: (-(partitions * nodes[node] % devices), node))
    for node in parts[: partitions - sum(counts)]:  # the largest remainders are rounded up
        counts[node] += 1
    for node, count in enumerate(counts):
        if not count and partitions >= len(nodes):  # devices without data would be idle
            counts[max(range(len(nodes)), key=lambda other: (counts[other] / nodes[other], -other))] -= 1
            counts[node] = 1
    return [node for node, count in enumerate(counts) for _ in range(count)]


def speed_up(scaling: Mapping[str, SpeedUps], layout: str, width: int) -> float:
    """Return how much faster a unit is with so many workers; a layout without a table has that of its kind."""
    table = scaling.get(layout) or scaling.get(Layout.parse(layout).kind) or scaling.get(DATA)
    if width == 1 or table is None:
        return 1.0
    return float(width) if table == "linear" else table.get(width, 1.0)


def widest(scaling: Mapping[str, SpeedUps], devices: int) -> int:
    """Return the most workers of a gang: as many as there are in a table, and not more than there are devices."""
    width = 1
    while 2 * width <= devices and any(table == "linear" or 2 * width in table for table in scaling.values()):
        width *= 2
    return width


def profile_of(scaling: Mapping[str, SpeedUps], devices: int) -> Profile:
    """Return the profile of a simulated trainer: the same speed-ups for all configs."""
    entries = [ProfileEntry({}, SINGLE, 1, "simulated", 1.0, 0)]
    for name in scaling:
        width = 2
        while width <= widest({name: scaling[name]}, devices):
            entries.append(ProfileEntry({}, name, width, "simulated", 1 / speed_up(scaling, name, width), 0))
            width *= 2
    return Profile(tuple(entries))

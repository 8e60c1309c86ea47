"""A profile: what a unit takes in time and memory, by architecture, layout, number and kind of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, final

import msgspec

from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.schedules import Scalar

GAIN: Final = 0.9  # a width pays if a unit takes at most this fraction of its time with half the devices


def is_faster(seconds: float, half: float) -> bool:
    """Return whether a width pays, given the seconds of a unit with it and with half of it.

    >>> is_faster(6.0, 10.0), is_faster(9.5, 10.0)
    (True, False)
    """
    return seconds <= GAIN * half


@final
class ProfileEntry(msgspec.Struct, frozen=True):
    """One measurement: a unit of an architecture, in a layout, on so many devices of a kind.

    ``values`` are the values that the architecture depends on; configs that agree in them have the same entry.
    ``peak_bytes`` is the most memory of one worker. ``version`` is the version of Hoptree that has measured it.
    A layout that does not fit costs infinity; then ``peak_bytes`` is the memory limit, 0 if there was none.
    """

    values: dict[str, Scalar]
    layout: str
    devices: int
    kind: str
    seconds: float
    peak_bytes: int
    version: str = ""

    @property
    def fits(self) -> bool:
        """Whether a unit could be trained so."""
        return self.seconds < inf

    def is_dominated_by(self, other: ProfileEntry) -> bool:
        """Return whether another layout of as many devices is as fast and needs as little memory, or less.

        Layouts with and without offload are not compared: the memory of a process includes the mapped file, which
        the system can take back.
        """
        if not (self.fits and other.fits) or (self.devices, self.kind) != (other.devices, other.kind):
            return False
        if Layout.parse(self.layout).offload != Layout.parse(other.layout).offload or self.layout == other.layout:
            return False
        mine, others = (self.seconds, self.peak_bytes), (other.seconds, other.peak_bytes)
        return others != mine and all(it <= own for it, own in zip(others, mine, strict=True))

    def covers(self, constants: Mapping[str, Scalar]) -> bool:
        """Return whether a config with these constant values has this architecture."""
        return all(
            name in constants and type(constants[name]) is type(value) and constants[name] == value
            for name, value in self.values.items()
        )


@final
class Profile(msgspec.Struct, frozen=True):
    """The measurements of one trainer on one dataset.

    >>> alone = ProfileEntry({"width": 8}, "single", 1, "cpu", 4.0, 0)
    >>> two = ProfileEntry({"width": 8}, "data", 2, "cpu", 3.0, 0)
    >>> Profile((alone, two)).times({"width": 8, "lr": 0.1})
    {1: 4.0, 2: 3.0}
    """

    entries: tuple[ProfileEntry, ...] = ()

    def of_kind(self, kind: str) -> Profile:
        """Return the measurements on one kind of device."""
        return Profile(tuple(entry for entry in self.entries if entry.kind == kind))

    def architectures(self) -> list[Profile]:
        """Return the measurements of each architecture and kind of device."""
        groups: list[list[ProfileEntry]] = []
        for entry in self.entries:
            for group in groups:
                if (group[0].values, group[0].kind) == (entry.values, entry.kind):
                    group.append(entry)
                    break
            else:
                groups.append([entry])
        return [Profile(tuple(group)) for group in groups]

    def times(self, constants: Mapping[str, Scalar], layout: str = DATA) -> dict[int, float]:
        """Return the seconds of a unit by the number of devices, for the architecture with the most values."""
        matching = [entry for entry in self.entries if entry.covers(constants)]
        if not matching:
            return {}
        chosen = max(matching, key=lambda entry: len(entry.values)).values
        return seconds_by_devices((entry for entry in matching if entry.values == chosen), layout)


def seconds_by_devices(entries: Iterable[ProfileEntry], layout: str = DATA) -> dict[int, float]:
    """Return the seconds of a unit by the number of devices: one alone, or several in a layout."""
    kinds = (layout, SINGLE)
    found: dict[int, float] = {}
    for entry in sorted(entries, key=lambda entry: (entry.devices, entry.seconds)):
        if entry.fits and entry.layout in kinds:
            found.setdefault(entry.devices, entry.seconds)
    return found


def widths_that_pay(times: Mapping[int, float]) -> list[int]:
    """Return 1, and the numbers of devices that are each faster than half of them.

    >>> widths_that_pay({1: 8.0, 2: 5.0, 4: 4.9})
    [1, 2]
    """
    widths = [1]
    while 2 * widths[-1] in times and is_faster(times[2 * widths[-1]], times.get(widths[-1], 0.0)):
        widths.append(2 * widths[-1])
    return widths

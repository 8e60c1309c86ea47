"""How many workers train a unit together: as many as are free and pay.

A gang is formed from workers that no other ready lineage needs. Whether it pays is known from a profile, or else
measured: a lineage's first unit is trained alone, the next ones with 2, 4 … workers, each width twice, because
workers first have to connect. After that a width is used if it is faster than half of it. Durations of a lineage's
own units count before the profile. The bits of a model do not depend on the width, so it may change after every
unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

from hoptree.core.lineage import Values
from hoptree.core.nodes import Node
from hoptree.core.profile import Profile, is_faster, seconds_by_devices

_TRIES = 2  # units of a width above 1 before its time counts


class WidthTimes(NamedTuple):
    """The least seconds of a unit, and how many units were measured."""

    seconds: float
    units: int


@final
class Allotment:
    """Chooses widths, powers of two up to ``widest``, from the durations of earlier units and a profile."""

    def __init__(self, widest: int, profile: Profile = Profile()) -> None:  # noqa: B008 frozen
        self.widest = widest
        self._measured: dict[str, dict[int, WidthTimes]] = {}  # by config and width
        self._profile = profile
        self._profiled = [seconds_by_devices(each.entries) for each in profile.architectures()]
        self._expected: dict[Values, dict[int, float]] = {}  # what the profile says of a node's architecture

    def observe(self, node: Node, width: int, seconds: float) -> None:
        """Note how long a unit took."""
        if seconds > 0.0:
            known = self._measured.setdefault(node.origin.key, {})
            before = known.get(width, WidthTimes(seconds, 0))
            known[width] = WidthTimes(min(seconds, before.seconds), before.units + 1)

    def width(self, node: Node, free: int) -> int:
        """Return how many workers should train a unit if so many are free, at least one."""
        own = self._measured.get(node.origin.key, {})
        width = 1
        while 2 * width <= min(free, self.widest) and self._pays(node, own, 2 * width):
            width *= 2
        return width

    def _pays(self, node: Node, own: dict[int, WidthTimes], width: int) -> bool:
        """Return whether a width is known to pay, or is the next one to try."""
        half = width // 2
        if _is_known(own, width):
            return is_faster(own[width].seconds, own[half].seconds)
        mixed = {**self._times(node.values), **_settled(own)}
        others = [_settled(each) for each in self._measured.values() if _is_known(each, width)]
        for known in ([mixed], others, self._profiled):
            found = _compare(known, width)
            if found is not None:
                return found
        return half in _settled(own)

    def _times(self, values: Values) -> dict[int, float]:
        if not self._profile.entries:
            return {}
        if values not in self._expected:
            self._expected[values] = self._profile.times(values.constants())
        return self._expected[values]


def _compare(known: Sequence[Mapping[int, float]], width: int) -> bool | None:
    """Return whether a width is faster than half of it, over all where both are known; None if there are none."""
    both = [each for each in known if width in each and width // 2 in each]
    if not both:
        return None
    return is_faster(sum(each[width] for each in both), sum(each[width // 2] for each in both))


def _settled(measured: Mapping[int, WidthTimes]) -> dict[int, float]:
    """Return the times that count: of one worker, and of widths that were tried often enough."""
    return {width: each.seconds for width, each in measured.items() if width == 1 or each.units >= _TRIES}


def _is_known(measured: dict[int, WidthTimes], width: int) -> bool:
    return width in measured and width // 2 in measured and measured[width].units >= _TRIES

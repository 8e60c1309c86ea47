"""How many workers train a unit together: as many as are free and pay.

A gang is formed from workers that no other ready lineage needs. Whether it pays is measured: a lineage's first unit
is trained alone, the next ones with 2, 4 … workers, each width twice, because workers first have to connect. After
that a width is used if it is faster than half of it. The bits of a model do not depend on the width, so it may
change after every unit.
"""

from __future__ import annotations

from typing import NamedTuple, final

from hoptree.core.nodes import Node

_GAIN = 0.9  # a width pays if a unit takes at most this fraction of its time with half the workers
_TRIES = 2  # units of a width before it can be found too slow


class WidthTimes(NamedTuple):
    """The least seconds of a unit, and how many units were measured."""

    seconds: float
    units: int


@final
class Allotment:
    """Chooses widths, powers of two up to ``widest``, from the durations of earlier units."""

    def __init__(self, widest: int) -> None:
        self.widest = widest
        self._measured: dict[str, dict[int, WidthTimes]] = {}  # by config and width

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
        while 2 * width <= min(free, self.widest) and self._pays(own, 2 * width):
            width *= 2
        return width

    def _pays(self, own: dict[int, WidthTimes], width: int) -> bool:
        """Return whether a width is known to pay, or is the next one to try."""
        half = width // 2
        if _is_known(own, width):
            return own[width].seconds <= _GAIN * own[half].seconds
        known = [each for each in self._measured.values() if _is_known(each, width)]
        if known:
            return sum(each[width].seconds for each in known) <= _GAIN * sum(each[half].seconds for each in known)
        return half in own if half == 1 else _is_known(own, half)


def _is_known(measured: dict[int, WidthTimes], width: int) -> bool:
    return width in measured and width // 2 in measured and measured[width].units >= _TRIES

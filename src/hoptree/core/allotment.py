"""How many workers train a unit together: as many as are free and pay.

A gang is formed from workers that no other ready lineage needs. Whether it pays is known from a profile, or else
measured: a lineage's first unit is trained alone, the next ones with 2, 4 … workers, each width twice, because
workers first have to connect. After that a width is used if it is faster than half of it. Durations of a lineage's
own units count before the profile. The bits of a model do not depend on the width, so it may change after every
unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
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
    """Chooses widths, powers of two up to ``widest``, from the durations of earlier units and a profile.

    A profile that is ``exact``, as in simulation, is not corrected by durations.
    """

    def __init__(self, widest: int, profile: Profile = Profile(), *, exact: bool = False) -> None:  # noqa: B008 frozen
        self.widest = widest
        self._exact = exact
        self._measured: dict[str, dict[int, WidthTimes]] = {}  # by config and width
        self._profile = profile
        self._profiled = [seconds_by_devices(each.entries) for each in profile.architectures()]
        self._expected: dict[Values, dict[int, float]] = {}  # what the profile says of a node's architecture

    def observe(self, node: Node, width: int, seconds: float) -> None:
        """Note how long a unit took."""
        if seconds > 0.0 and not self._exact:
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

    def speeds(self, node: Node, most: float = inf, *, hopeful: bool = False) -> dict[int, float] | None:
        """Return the speed-ups of the widths that pay, from 1 on; None while the next width has to be tried.

        A width above ``most``, the largest group of workers, cannot be tried. If ``hopeful``, a width that would
        have to be tried counts as twice as fast as half of it.
        """
        own = self._measured.get(node.origin.key, {})
        found = {1: 1.0}
        for width, ratio in self._ratios(node, own):
            if ratio is None:
                if width > most or not self._pays(node, own, width):
                    return found
                if not hopeful:
                    return None
                ratio = 0.5
            if not is_faster(ratio, 1.0):
                break
            found[width] = found[width // 2] / ratio
        return found

    def _ratios(self, node: Node, own: dict[int, WidthTimes]) -> Iterator[tuple[int, float | None]]:
        """Yield every width with its time over that of half of it, as ``_pays`` compares them; None if unknown."""
        mixed = {**self._times(node.values), **_settled(own)}
        width = 2
        while width <= self.widest:
            if _is_known(own, width):
                yield width, own[width].seconds / own[width // 2].seconds
            else:
                others = [_settled(each) for each in self._measured.values() if _is_known(each, width)]
                known = (_ratio(each, width) for each in ([mixed], others, self._profiled))
                yield width, next((ratio for ratio in known if ratio is not None), None)
            width *= 2

    def _pays(self, node: Node, own: dict[int, WidthTimes], width: int) -> bool:
        """Return whether a width is known to pay, or is the next one to try."""
        half = width // 2
        if _is_known(own, width):
            return is_faster(own[width].seconds, own[half].seconds)
        mixed = {**self._times(node.values), **_settled(own)}
        others = [_settled(each) for each in self._measured.values() if _is_known(each, width)]
        for known in ([mixed], others, self._profiled):
            ratio = _ratio(known, width)
            if ratio is not None:
                return is_faster(ratio, 1.0)
        return half in _settled(own)

    def _times(self, values: Values) -> dict[int, float]:
        if not self._profile.entries:
            return {}
        if values not in self._expected:
            self._expected[values] = self._profile.times(values.constants())
        return self._expected[values]


def _ratio(known: Sequence[Mapping[int, float]], width: int) -> float | None:
    """Return the time of a width over that of half of it, over all where both are known; None if there are none."""
    both = [each for each in known if width in each and width // 2 in each]
    half = sum(each[width // 2] for each in both)
    return sum(each[width] for each in both) / half if half else None


def _settled(measured: Mapping[int, WidthTimes]) -> dict[int, float]:
    """Return the times that count: of one worker, and of widths that were tried often enough."""
    return {width: each.seconds for width, each in measured.items() if width == 1 or each.units >= _TRIES}


def _is_known(measured: dict[int, WidthTimes], width: int) -> bool:
    return width in measured and width // 2 in measured and measured[width].units >= _TRIES

"""Times as integers: ties become exact, and CP-SAT requires them."""

import math
from dataclasses import dataclass
from fractions import Fraction

from hoptree.optimize.bounds import load_bound
from hoptree.optimize.schedule import Times

Ticks = tuple[tuple[int, ...], ...]

TOLERANCE = 1e-9
"""Makespans with a smaller relative difference are equal."""

EXACT_BITS = 40
"""Times are represented exactly if none needs more bits than this."""


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Times rounded down to whole ticks.

    Rounding down keeps bounds valid: a lower bound for the ticks is also one for the times.
    """

    ticks: Ticks
    tick: Fraction
    """The duration of one tick."""
    error: int
    """A sum of distinct units is never more than this many ticks longer than their rounded sum."""

    def time(self, ticks: float) -> float:
        """Return the duration of a number of ticks."""
        return float(Fraction(ticks) * self.tick)


def to_grid(times: Times) -> TimeGrid:
    """Choose exact ticks if they need few bits, as integers do.

    Otherwise the ticks are so fine that all rounding errors together stay below half the tolerance.
    """
    ratios = [[time.as_integer_ratio() for time in row] for row in times]
    denominator = max(below for row in ratios for _, below in row)
    whole = [[above * (denominator // below) for above, below in row] for row in ratios]
    divisor = math.gcd(*(units for row in whole for units in row)) or 1
    if max(units for row in whole for units in row) // divisor < 2**EXACT_BITS:
        ticks = tuple(tuple(units // divisor for units in row) for row in whole)
        return TimeGrid(ticks, Fraction(divisor, denominator), 0)
    units = len(times) * len(times[0])
    _, exponent = math.frexp(2 * units / TOLERANCE)
    _, magnitude = math.frexp(load_bound(times))
    shift = exponent - magnitude + 1
    ticks = tuple(tuple(math.floor(math.ldexp(time, shift)) for time in row) for row in times)
    return TimeGrid(ticks, Fraction(2) ** -shift, units)

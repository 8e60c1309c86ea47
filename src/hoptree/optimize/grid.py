"""Times as integers: ties become exact, and CP-SAT requires them."""

import math
from collections.abc import Sequence
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
    """Round a matrix of times down to ticks."""
    rounded, tick, error = round_down([time for row in times for time in row], load_bound(times))
    values = iter(rounded)
    return TimeGrid(tuple(tuple(next(values) for _ in row) for row in times), tick, error)


def round_down(times: Sequence[float], bound: float) -> tuple[list[int], Fraction, int]:
    """Choose exact ticks if they need few bits, as integers do; return the times in ticks, the tick and the error.

    Otherwise the ticks are so fine that all rounding errors together stay below half the tolerance of `bound`, a
    lower bound on the makespan.
    """
    ratios = [time.as_integer_ratio() for time in times]
    denominator = max(below for _, below in ratios)
    whole = [above * (denominator // below) for above, below in ratios]
    divisor = math.gcd(*whole) or 1
    if max(whole) // divisor < 2**EXACT_BITS:
        return [units // divisor for units in whole], Fraction(divisor, denominator), 0
    _, exponent = math.frexp(2 * len(times) / TOLERANCE)
    _, magnitude = math.frexp(bound)
    shift = exponent - magnitude + 1
    return [math.floor(math.ldexp(time, shift)) for time in times], Fraction(2) ** -shift, len(times)

"""Parameters: the open choices of a parsed space.

A parameter turns a number between 0 and 1 into a decision: the index of one of ``count`` values, or the value
itself if the parameter is continuous. ``value`` turns the decision into the value.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import TypeAlias, final

import msgspec

_EXACT = Context(prec=60)
_BITS = 2**53


@final
class Continuous(msgspec.Struct, frozen=True):
    """A number between two bounds."""

    path: str
    low: float
    high: float
    log: bool

    @property
    def count(self) -> int | None:
        """Return None, or 1 if the bounds are equal."""
        return 1 if self.low == self.high else None

    def at(self, share: float) -> float:
        """Return the number at a fraction of the range.

        Logarithms are rounded to 12 digits: the last digits of exp differ between C libraries.

        >>> Continuous("lr", 1e-4, 1e-2, log=True).at(0.5)
        0.001
        """
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            number = float(f"{math.exp(low + share * (high - low)):.12g}")
        else:
            number = self.low + share * (self.high - self.low)
        return min(max(number, self.low), self.high)

    def value(self, decision: float) -> float:
        """Return the number itself, or the single possible one if the bounds are equal."""
        return self.low if self.count else decision


@final
class Stepped(msgspec.Struct, frozen=True):
    """One of low, low + step, …, computed in decimals: the third of 0.1, 0.2, … is 0.3, not 0.30000000000000004."""

    path: str
    low: float
    high: float
    step: float
    log: bool = False

    @property
    def count(self) -> int:
        """Return the number of values up to the upper bound."""
        span = _EXACT.subtract(_decimal(self.high), _decimal(self.low))
        return int(_EXACT.divide_int(span, _decimal(self.step))) + 1

    def at(self, share: float) -> int:
        """Return the index at a fraction of the range."""
        return _log_index(self, share) if self.log else index_at(share, self.count)

    def value(self, decision: float) -> float:
        """Return the number at an index."""
        return float(_EXACT.fma(Decimal(int(decision)), _decimal(self.step), _decimal(self.low)))


@final
class Whole(msgspec.Struct, frozen=True):
    """A whole number between two bounds."""

    path: str
    low: int
    high: int
    step: int
    log: bool

    @property
    def count(self) -> int:
        """Return the number of values."""
        return (self.high - self.low) // self.step + 1

    def at(self, share: float) -> int:
        """Return the index at a fraction of the range; each value owns the part of the range that rounds to it."""
        return _log_index(self, share) if self.log else index_at(share, self.count)

    def value(self, decision: float) -> int:
        """Return the number at an index."""
        return self.low + int(decision) * self.step


Range: TypeAlias = Continuous | Stepped | Whole


def index_at(share: float, count: int) -> int:
    """Return in which of ``count`` equal parts of the range from 0 to 1 a number lies, computed exactly.

    >>> index_at(0.5, 2), index_at(0.5, 3)
    (1, 1)
    """
    return (int(share * _BITS) * count) >> 53


def nearest(parameter: Stepped | Whole, number: float) -> int:
    """Return the index of the value nearest to a number."""
    return min(max(round((number - parameter.low) / parameter.step), 0), parameter.count - 1)


def _log_index(parameter: Stepped | Whole, share: float) -> int:
    """Return the index at a fraction of the log range; each value owns the part of the range nearest to it."""
    half = parameter.step / 2
    low = math.log(max(parameter.low - half, parameter.low / 2))  # a log range has no end below the first value
    high = math.log(parameter.value(parameter.count - 1) + half)
    return nearest(parameter, math.exp(low + share * (high - low)))


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))

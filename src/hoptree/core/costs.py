"""Cost formulas: the expected time of a unit, from the values that it trains with.

Costs that were learned from measured units reach the engine as an event, so the engine stays a fold over its
events: existing nodes get new costs, and new nodes get theirs when they are added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

from hoptree.core.keys import encode
from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar

Reading: TypeAlias = Literal["log", "linear", "is"]
_FAR = 3.0  # features are clipped to this many half widths of the measured range


class Feature(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One value of a config as a number.

    ``log`` and ``linear`` scale a number so that the measured range becomes -1 to 1; any other value counts as 0,
    the middle. ``is`` is 1 for the value whose ``level_of`` is ``level``, which is "" for a missing value.
    """

    name: str
    reading: Reading
    centre: float = 0.0
    width: float = 1.0
    level: str = ""

    def of(self, constants: Mapping[str, Scalar]) -> float:
        """Return the feature for the constant values of a unit."""
        if self.reading == "is":
            return float(level_of(constants, self.name) == self.level)
        value = constants.get(self.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        if self.reading == "log":
            if value <= 0:
                return 0.0
            value = math.log(value)
        scaled = (value - self.centre) / self.width
        return -_FAR if scaled < -_FAR else _FAR if scaled > _FAR else scaled


@final
class CostFormula(msgspec.Struct, frozen=True, gc=False):
    """Seconds of a unit: exp of ``base`` plus terms, each a weight times a feature or a product of features.

    Products clip their features to the measured range, so there is no curvature outside of it.

    Results lie between ``least`` and ``most``. Values that change during a unit have no effect. Results are
    rounded to three digits, so that similar units cost the same on every machine. Journals hold formulas and are
    replayed, so their meaning must not change: a different formula needs a new record.

    >>> from hoptree.core.lineage import history, segments
    >>> formula = CostFormula(0.0, (Feature("width", "log"),), ((1.0, (0,)),), 0.1, 100.0)
    >>> formula.of(segments(history({"width": 8}), partitions=1, units=1)[0].values)
    8.0
    """

    base: float
    features: tuple[Feature, ...] = ()
    terms: tuple[tuple[float, tuple[int, ...]], ...] = ()
    least: float = 0.0
    most: float = 1e12

    def of(self, values: Values) -> float:
        """Return the expected seconds of a unit with these values on a worker of speed 1."""
        constants = values.constants()
        numbers = [feature.of(constants) for feature in self.features]
        near = within(numbers)
        total = self.base
        for weight, factors in self.terms:
            if len(factors) == 1:
                total += weight * numbers[factors[0]]
            else:
                total += weight * math.prod([near[index] for index in factors])
        seconds = math.exp(min(total, 700.0))  # more would overflow
        return float(f"{max(self.least, min(self.most, seconds)):.3g}")


def within(numbers: Sequence[float]) -> list[float]:
    """Return features clipped to the measured range, as products use them."""
    return [-1.0 if number < -1.0 else 1.0 if number > 1.0 else number for number in numbers]


def level_of(constants: Mapping[str, Scalar], name: str) -> str:
    """Return the category of a value as journals hold it: "" for a missing value."""
    return encode(constants[name]).hex() if name in constants else ""

"""Encoding of values for the regression: which of them vary, and how each becomes a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias, TypeGuard, final

from hoptree.core.costs import Feature, level_of
from hoptree.core.schedules import Scalar

Constants: TypeAlias = dict[str, Scalar]
_LEVELS = 20  # of a category at most; rarer ones count as the average


def features_of(kinds: Sequence[Constants]) -> list[Feature]:
    """Return one feature for each number that varies, and one for each level of a category."""
    names = sorted({name for constants in kinds for name in constants})
    return [feature for name in names for feature in _features(name, kinds)]


def _features(name: str, kinds: Sequence[Constants]) -> list[Feature]:
    levels = Counter(level_of(constants, name) for constants in kinds)
    if len(levels) < 2:
        return []
    values = [constants[name] for constants in kinds if name in constants]
    numbers = [float(value) for value in values if _is_number(value)]
    if len(numbers) < len(values):
        return [Feature(name, "is", level=level) for level, _ in levels.most_common(_LEVELS)]
    some = [Feature(name, "is", level="")] if "" in levels else []
    if min(numbers) == max(numbers):
        return some
    if min(numbers) > 0:
        low, high = math.log(min(numbers)), math.log(max(numbers))
        return [*some, Feature(name, "log", (low + high) / 2, (high - low) / 2)]
    return [*some, Feature(name, "linear", (min(numbers) + max(numbers)) / 2, (max(numbers) - min(numbers)) / 2)]


def encoded(kinds: Sequence[Constants]) -> list[list[float]]:
    """Return the values as numbers, so that distances between them say how much they differ."""
    features = features_of(kinds)
    return [[feature.of(constants) for feature in features] for constants in kinds]


def spread_out(places: Sequence[Sequence[float]], most: int) -> list[int]:
    """Return the indices of at most so many places, each the farthest from those before it.

    >>> spread_out([[0.0], [0.1], [1.0], [0.5]], 3)
    [0, 2, 3]
    """
    if not places:
        return []
    found = [0]
    distances = [math.inf] * len(places)
    while len(found) < min(most, len(places)):
        distances = [
            min(far, math.dist(place, places[found[-1]])) for far, place in zip(distances, places, strict=True)
        ]
        distances[found[-1]] = -1.0
        found.append(max(range(len(places)), key=distances.__getitem__))
    return found


@final
class MeasuredValues:
    """The measured values of each name: its levels, and the range of its numbers."""

    def __init__(self, kinds: Sequence[Constants]) -> None:
        self._levels: dict[str, set[str]] = {}
        self._numbers: dict[str, tuple[float, float]] = {}
        names = dict.fromkeys(name for constants in kinds for name in constants)
        for name in names:
            self._levels[name] = {level_of(constants, name) for constants in kinds}
            numbers = [value for constants in kinds if _is_number(value := constants.get(name))]
            if numbers:
                self._numbers[name] = min(numbers), max(numbers)

    def is_within(self, constants: Constants) -> bool:
        """Return whether all values are like measured ones: known levels, and numbers within the range."""
        return all(self._is_within(name, constants) for name in dict.fromkeys([*constants, *self._levels]))

    def can_estimate(self, constants: Constants) -> bool:
        """Return whether a regression can estimate the effect of all values: it cannot if one never varied."""
        for name in dict.fromkeys([*constants, *self._levels]):
            low, high = self._numbers.get(name, (0.0, 0.0))
            varied = low < high and _is_number(constants.get(name))
            if not varied and not self._is_within(name, constants):
                return False
        return True

    def _is_within(self, name: str, constants: Constants) -> bool:
        if level_of(constants, name) in self._levels.get(name, ("",)):
            return True
        value = constants.get(name)
        if name not in self._numbers or not _is_number(value):
            return False
        low, high = self._numbers[name]
        return low <= value <= high


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)

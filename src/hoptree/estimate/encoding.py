"""Values as numbers that a regression can weigh: which of them vary, and how each is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from hoptree.core.costs import Feature, level_of

Constants: TypeAlias = dict[str, object]
_LEVELS = 20  # of a category; rarer ones count as the average


def features_of(kinds: Sequence[Constants]) -> list[Feature]:
    """Return one feature for each number that varies, and one for each level of what is a category."""
    names = sorted({name for constants in kinds for name in constants})
    return [feature for name in names for feature in _features(name, kinds)]


def _features(name: str, kinds: Sequence[Constants]) -> list[Feature]:
    levels = Counter(level_of(constants, name) for constants in kinds)
    if len(levels) < 2:
        return []
    values = [constants[name] for constants in kinds if name in constants]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return [Feature(name, "is", level=level) for level, _ in levels.most_common(_LEVELS)]
    some = [Feature(name, "is", level="")] if "" in levels else []
    if min(numbers) == max(numbers):
        return some
    if min(numbers) > 0:
        low, high = math.log(min(numbers)), math.log(max(numbers))
        return [*some, Feature(name, "log", (low + high) / 2, (high - low) / 2)]
    return [*some, Feature(name, "linear", (min(numbers) + max(numbers)) / 2, (max(numbers) - min(numbers)) / 2)]


def is_within(constants: Constants, kinds: Sequence[Constants]) -> bool:
    """Return whether nothing about some values is new: levels were seen, numbers lie in the range of those seen."""
    for name in dict.fromkeys([*constants, *(name for kind in kinds for name in kind)]):
        if any(level_of(kind, name) == level_of(constants, name) for kind in kinds):
            continue
        value = constants.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        seen = [
            number
            for kind in kinds
            if isinstance(number := kind.get(name), int | float) and not isinstance(number, bool)
        ]
        if not seen or not min(seen) <= value <= max(seen):
            return False
    return True

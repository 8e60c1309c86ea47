"""Results that are not known yet: made up, but as a pilot's results suggest.

How long a search takes that decides by results depends on which configs are good: larger models, for example. A
pilot has trained some configs for a short time; a regression of their ranks says what to expect of the others, and
how uncertain that is. Each simulation draws from that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import final

from hoptree.core.keys import fraction
from hoptree.core.lineage import Values
from hoptree.estimate.samples import Samples

_LEAST = 6  # configs whose results are known, else all are equal
_NORMAL = NormalDist()


@final
class ExpectedResults:
    """Levels of losses by values, in standard deviations: lower is better.

    >>> ExpectedResults([]).level(Values(()), "key", 0) == ExpectedResults([]).level(Values(()), "key", 0)
    True
    """

    def __init__(self, losses: Sequence[tuple[Values, float]]) -> None:
        self._samples = Samples()
        order = sorted(losses, key=lambda each: math.inf if math.isnan(each[1]) else each[1])
        for rank, (values, _) in enumerate(order):
            self._samples.add(values, "", math.exp(_NORMAL.inv_cdf((rank + 0.5) / len(order))))
        self._fit = self._samples.fit() if len(order) >= _LEAST else None

    def level(self, values: Values, key: str, salt: int) -> float:
        """Return a level for a lineage: the same for all of its epochs, another one for each ``salt``."""
        drawn = _NORMAL.inv_cdf(min(max(fraction("forecast", key, salt), 1e-9), 1 - 1e-9))
        if self._fit is None:
            return drawn
        return math.log(self._fit.formula.of(values)) + self._fit.spread(values.constants()) * drawn

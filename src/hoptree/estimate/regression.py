"""Ridge regression of log time on encoded values.

Times multiply (a net twice as wide takes twice as long, whatever the batch), so their logarithms add up; squares
and products of the most important values model the rest. The ridge is a prior: an unmeasured effect is expected to
be small, and uncertainty widens the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import numpy as np

from hoptree.core.costs import CostFormula, Feature, within
from hoptree.core.lineage import Values
from hoptree.estimate.encoding import Constants, features_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.float64]

_PRIOR = 1.0  # expected size of the log of an effect
_PRIOR_MIXED = 0.5  # … of a square or a product
_PRODUCT_FEATURES = 6  # features whose products are considered
_UNKNOWN_NOISE = 0.3  # spread of log times if nothing was measured twice
_HUBER = 2.5  # standard deviations beyond which a measurement counts less
_MAX_EXTRAPOLATION = 20.0  # factor by which a formula may exceed the measured range


class Kind(NamedTuple):
    """Measurements of units with the same values: their number, the mean of log seconds, and its variance."""

    values: Values
    constants: Constants
    measured: int
    mean: float
    variance: float


@final
class Fit:
    """The result of a regression."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._features = features_of([kind.constants for kind in kinds])
        self._products: list[tuple[int, ...]] = [(index,) for index in range(len(self._features))]
        encoded = [_encode(self._features, kind.constants) for kind in kinds]
        means = np.array([kind.mean for kind in kinds])
        counts = np.array([float(kind.measured) for kind in kinds])
        self.noise = _noise(kinds)
        self._solve(encoded, means, counts)
        numbers = [i for i, feature in enumerate(self._features) if feature.reading != "is"]
        order = sorted(range(len(self._features)), key=lambda i: -abs(self._weights[1 + i]))[:_PRODUCT_FEATURES]
        pairs = combinations(sorted(order), 2)
        mixed = [(i, i) for i in numbers if i in order]
        mixed += [(i, j) for i, j in pairs if self._features[i].name != self._features[j].name]
        if mixed:
            self._products += mixed
            self._solve(encoded, means, counts)
        self._least, self._most = (
            math.exp(min(means)) / _MAX_EXTRAPOLATION,
            math.exp(max(means)) * _MAX_EXTRAPOLATION,
        )

    def _solve(self, encoded: list[list[float]], means: Numbers, counts: Numbers) -> None:
        """Fit repeatedly: each time with the misfit and the outliers that the last fit has found."""
        design = np.array([_expand(self._products, row) for row in encoded])
        prior = [1e-6, *(_PRIOR**-2 if len(p) == 1 else _PRIOR_MIXED**-2 for p in self._products)]
        self.misfit = 0.1
        outlier_weights = np.ones(len(means))
        for _ in range(3):
            variances = self.misfit**2 + self.noise**2 / counts
            weighted = design * (outlier_weights / variances)[:, None]
            self._covariance = np.linalg.inv(weighted.T @ design + np.diag(prior))
            self._weights = self._covariance @ (weighted.T @ means)
            left = means - design @ self._weights
            deviations = np.abs(left) / np.sqrt(variances)
            outlier_weights = np.minimum(1.0, _HUBER / np.maximum(deviations, 1e-12))
            explained = float(np.average(left**2, weights=outlier_weights)) - float(
                np.average(self.noise**2 / counts)
            )
            freedom = max(1.0, len(means) - float(np.trace(self._covariance @ (weighted.T @ design))))
            self.misfit = math.sqrt(max(1e-4, explained * len(means) / freedom))

    @cached_property
    def formula(self) -> CostFormula:
        """The mean time as a formula for the engine."""
        terms = tuple(
            (float(weight), product)
            for weight, product in zip(self._weights[1:], self._products, strict=True)
            if abs(weight) > 1e-3
        )
        base = float(self._weights[0]) + self.noise**2 / 2  # the mean of times, not of their logs
        return CostFormula(base, tuple(self._features), terms, self._least, self._most)

    def spread(self, constants: Constants) -> float:
        """Return the standard deviation of a unit's log time: uncertainty of the fit, and noise."""
        return math.hypot(self.uncertainty(constants), self.noise)

    def uncertainty(self, constants: Constants) -> float:
        """Return the standard deviation of the formula's log from the log of the mean time."""
        row = np.array(_expand(self._products, _encode(self._features, constants)))
        return math.sqrt(float(row @ self._covariance @ row) + self.misfit**2)

    def doubt(self, work: Sequence[tuple[Constants, float]]) -> float:
        """Return the standard deviation of the log of a sum of units, given values and their shares of it."""
        total = sum(share for _, share in work)
        if not total:
            return 0.0
        shares = np.array([share / total for _, share in work])
        rows = np.array([_expand(self._products, _encode(self._features, constants)) for constants, _ in work])
        mean = shares @ rows
        return math.sqrt(float(mean @ self._covariance @ mean) + self.misfit**2 * float(shares @ shares))


def _encode(features: Sequence[Feature], constants: Constants) -> list[float]:
    return [feature.of(constants) for feature in features]


def _expand(products: Sequence[tuple[int, ...]], row: Sequence[float]) -> list[float]:
    near = within(row)
    return [1.0, *(row[p[0]] if len(p) == 1 else math.prod(near[index] for index in p) for p in products)]


def _noise(kinds: Sequence[Kind]) -> float:
    """Return how much the log times of the same unit differ, pooled over all kinds, with a weak prior."""
    freedom = sum(kind.measured - 1 for kind in kinds)
    within = sum(kind.variance * (kind.measured - 1) for kind in kinds)
    return math.sqrt((within + 2 * _UNKNOWN_NOISE**2) / (freedom + 2))

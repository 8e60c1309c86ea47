"""Measured times, by values and worker: the times of the same values are pooled, a regression covers the others."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from operator import itemgetter
from typing import final

from hoptree.core.lineage import Values
from hoptree.estimate.encoding import Constants, MeasuredValues
from hoptree.estimate.regression import Fit, Kind

_GROWTH = 1.1  # a new fit is made when measurements have grown by this factor
_LARGEST = 256  # values with the most work, from which the spread of all of it is computed
_UNMEASURED = 1.0  # size of the log of an unmeasured effect
_SHRINK = 8.0  # measurements of a worker at which half of its difference counts


@final
class _Times:
    """Log times, as their count, mean and sum of squared differences."""

    __slots__ = ("count", "mean", "squares")

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)


@final
class Samples:
    """Times of units, or of evaluations; a fit is computed when it is needed and enough is new."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._times: dict[tuple[Values, str], _Times] = {}
        self._constants: dict[Values, Constants] = {}
        self._factors: dict[str, float] = {}
        self._fit: Fit | None = None
        self._fitted = (0, 0)
        self.kinds: list[Kind] = []  # as of the last fit
        self.seen = MeasuredValues([])  # as of the last fit
        self._expected: dict[Values, float] = {}  # by the last fit
        self._measured: dict[Values, Kind] = {}  # as of the last fit
        self._names: frozenset[str] | None = None

    def add(self, values: Values, worker: str, seconds: float) -> None:
        """Add one time; a time of zero was not measured and is ignored."""
        if not 0 < seconds < math.inf:
            return
        times = self._times.get((values, worker))
        if times is None:
            times = self._times[values, worker] = _Times()
            if values not in self._constants:
                self._constants[values] = dict(values.constants())
        times.add(math.log(seconds))
        self.count += 1
        self.longest = max(self.longest, seconds)

    def depend_on(self, names: frozenset[str]) -> None:
        """Ignore all values but these from now on: times do not depend on the others."""
        if names != self._names:
            self._names = names
            self._fitted = (0, 0)

    def fit(self) -> Fit | None:
        """Return the regression of the times; None while there are none."""
        count, kinds = self._fitted
        if self.count and (self.count >= _GROWTH * count or len(self._constants) > kinds):
            self._fitted = (self.count, len(self._constants))
            self.kinds = self._gather()
            self.seen = MeasuredValues([kind.constants for kind in self.kinds])
            self._measured = {kind.values: kind for kind in self.kinds}
            self._fit = Fit(self.kinds)
            self._expected.clear()
            self._learn_workers()
        return self._fit

    def expected(self, values: Values) -> float:
        """Return the expected time for some values; 0 while nothing is known."""
        fit = self.fit()
        if fit is None:
            return 0.0
        values = self.reduced(values)
        if values not in self._expected:
            self._expected[values] = self._estimate(values, fit)
        return self._expected[values]

    def _estimate(self, values: Values, fit: Fit) -> float:
        """Return the mean of the regression and of the values' own times, weighted by how certain each is."""
        by_formula = fit.formula.of(values)
        kind = self._measured.get(values)
        if kind is None:
            return by_formula
        certain = fit.noise**2 / kind.measured
        weight = certain / (certain + fit.uncertainty(kind.constants) ** 2)
        own = math.exp(kind.mean + min(kind.variance, fit.noise**2) / 2)
        return math.exp(weight * math.log(by_formula) + (1.0 - weight) * math.log(own))

    def doubt(self, shares: Mapping[Values, float]) -> float:
        """Return the spread of the log of the total time of some work, given the share of each set of values."""
        fit = self.fit()
        if fit is None:
            return 0.0
        reduced: dict[Values, float] = {}
        for values, share in shares.items():
            values = self.reduced(values)
            reduced[values] = reduced.get(values, 0.0) + share
        most = heapq.nlargest(_LARGEST, reduced.items(), key=itemgetter(1))
        work = [(values.constants(), share) for values, share in most]
        total = sum(share for _, share in work)
        unmeasured = sum(share for constants, share in work if not self.seen.can_estimate(constants))
        return math.hypot(fit.doubt(work), _UNMEASURED * unmeasured / total if total else 0.0)

    def reduced(self, values: Values) -> Values:
        """Return the values that times depend on."""
        if self._names is None:
            return values
        return Values(tuple(item for item in values.items if item[0] in self._names))

    @property
    def noise(self) -> float:
        """The spread of the log of the time of the same unit from one measurement to the next."""
        fit = self.fit()
        return 0.0 if fit is None else fit.noise

    def factor(self, worker: str) -> float:
        """Return a worker's time relative to the average worker."""
        return self._factors.get(worker, 1.0)

    def _gather(self) -> list[Kind]:
        """Pool the times of the same values, each scaled to an average worker."""
        joined: dict[Values, _Times] = {}
        for (full, worker), times in self._times.items():
            values = self.reduced(full)
            total = joined.setdefault(values, _Times())
            mean = times.mean - math.log(self.factor(worker))
            difference = mean - total.mean
            count = total.count + times.count
            total.squares += times.squares + difference**2 * total.count * times.count / count
            total.mean += difference * times.count / count
            total.count = count
        return [
            Kind(values, dict(values.constants()), t.count, t.mean, t.squares / max(1, t.count - 1))
            for values, t in joined.items()
        ]

    def _learn_workers(self) -> None:
        """Estimate how much each worker differs from the average; few measurements count little."""
        formula = self._fit.formula if self._fit is not None else None
        if formula is None or len({worker for _, worker in self._times}) < 2:
            return
        expected = {values: math.log(formula.of(values)) for values in self._constants}
        off: dict[str, list[float]] = {}
        for (values, worker), times in self._times.items():
            sums = off.setdefault(worker, [0.0, 0.0])
            sums[0] += times.count
            sums[1] += times.count * (times.mean - expected[values])
        shrunk = {worker: total / (count + _SHRINK) for worker, (count, total) in off.items()}
        centre = sum(off[worker][0] * value for worker, value in shrunk.items()) / sum(c for c, _ in off.values())
        self._factors = {worker: math.exp(value - centre) for worker, value in shrunk.items()}

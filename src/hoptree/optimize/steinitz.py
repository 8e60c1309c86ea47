"""Compact vector summation: an order in which a sum of vectors never strays far from the origin."""

from time import monotonic
from typing import Any

from hoptree.core.errors import InvariantError
from hoptree.optimize.extra import require

EPSILON = 1e-9
"""What is smaller counts as zero."""

TIE = 1e-12
"""What differs by less is equal: else rounding errors would break ties, and with them Bland's rule."""


def steinitz_order(vectors: list[list[float]], deadline: float) -> list[int] | None:
    """Order vectors of d dimensions and sum zero such that, in whatever norm, every partial sum is at most
    d times as long as the longest vector; None if the deadline passes first.

    The proof of Grinberg and Sevast'yanov, carried out from the back. For a set A of k > d vectors let W(A)
    be the weights w in [0, 1] with sum k - d and weighted vector sum zero. Take a w of W(A) and scale its sum
    down to k - d - 1: such weights still exist, and then so does a vertex among them. A vertex has at most
    d + 1 weights strictly within (0, 1), for d + 1 equations; were none of the k weights 0, at least
    k - d - 1 would be 1, and the others, being positive, would exceed the sum. So a vertex has a weight 0:
    that vector comes last, and the other weights are in W of the set without it. The sum of A is the sum of
    (1 - w) v, which is at most the sum of 1 - w, that is d, times the longest vector.
    """
    inside = list(range(len(vectors)))
    outside: list[int] = []
    weights = Weights(vectors)
    while len(inside) > weights.dimensions:
        if not weights.lower_sum(len(inside) - weights.dimensions - 1, deadline):
            return None
        dropped = min(inside, key=weights.value.__getitem__)
        weights.drop(dropped)
        inside.remove(dropped)
        outside.append(dropped)
    return inside + outside[::-1]


class Weights:
    """Weights in [0, 1] with weighted vector sum zero, on their way from all 1 to all 0.

    The vectors are seen in the directions that they have, each stretched to the same size: so a direction in
    which all are short counts as much, and one that none has does not count.

    The way is that of the simplex method, which minimises the sum of the weights: along edges, where at most
    one weight besides the basic ones, one for each dimension, is strictly within (0, 1). It begins with a
    basis of d unit vectors whose weights are and stay 0. After a step of no length it takes the first weight
    that will do, not the best (Bland's rule), lest it goes in circles.
    """

    def __init__(self, vectors: list[list[float]]) -> None:
        self.numpy = numpy = require("numpy", "vector")
        directions, sizes, _ = numpy.linalg.svd(numpy.array(vectors), full_matrices=False)
        self.dimensions = int((sizes > TIE * sizes[0]).sum())
        self.columns = numpy.hstack([directions[:, : self.dimensions].T, numpy.eye(self.dimensions)])
        self.cost = numpy.repeat([1.0, 0.0], [len(vectors), self.dimensions])
        self.upper = self.cost.copy()
        self.value = self.cost.copy()
        self.basic = numpy.arange(len(vectors), len(vectors) + self.dimensions)
        self.stands = False

    def drop(self, vector: int) -> None:
        """Hold a weight of 0 at 0."""
        if self.value[vector] > EPSILON:
            raise InvariantError(f"vector {vector} has weight {self.value[vector]}; a vertex has a weight 0")
        self.upper[vector] = self.value[vector] = 0.0

    def lower_sum(self, total: float, deadline: float) -> bool:
        """Go on until the sum of the weights is `total`; False if the deadline passes first."""
        while self.value.sum() > total + EPSILON:
            if monotonic() > deadline:
                return False
            tableau = self.numpy.linalg.solve(self.columns[:, self.basic], self.columns)
            self._balance(tableau)
            gain = self.cost - self.cost[self.basic] @ tableau
            entering = self._entering(gain)
            down = gain[entering] > 0
            slope = tableau[:, entering] if down else -tableau[:, entering]
            to_total = (self.value.sum() - total) / abs(gain[entering])
            to_bound = self.value[entering] if down else self.upper[entering] - self.value[entering]
            step, leaving = self._leaving(slope, min(to_total, to_bound))
            self.value[entering] += -step if down else step
            self.value[self.basic] += step * slope
            if leaving is not None:
                self._to_bound(self.basic[leaving])
                self.basic[leaving] = entering
            elif step == to_bound:
                self._to_bound(entering)
            self.stands = step < EPSILON
        return True

    def _entering(self, gain: Any) -> int:
        """Choose the weight to change: one that is on its way, else one that lowers the sum."""
        lowers = ((gain > EPSILON) & (self.value > 0)) | ((gain < -EPSILON) & (self.value < self.upper))
        lowers[self.basic] = False
        halfway = lowers & (self.value > 0) & (self.value < self.upper)
        if halfway.any():
            return int(halfway.argmax())
        if not lowers.any():
            raise InvariantError(f"no weight lowers the sum {self.value.sum()}: {self.value}")
        return int(lowers.argmax() if self.stands else (lowers * abs(gain)).argmax())

    def _leaving(self, slope: Any, step: float) -> tuple[float, int | None]:
        """Shorten the step to where the first basic weight meets its bound; which, or None if none does."""
        leaving = None
        for place in sorted(range(len(slope)), key=self.basic.__getitem__):
            if abs(slope[place]) > EPSILON:
                value, upper = self.value[self.basic[place]], self.upper[self.basic[place]]
                room = (upper - value if slope[place] > 0 else value) / abs(slope[place])
                if room < step - TIE:
                    step, leaving = room if room > TIE else 0.0, place
        return step, leaving

    def _balance(self, tableau: Any) -> None:
        """Compute the basic weights anew from the others, lest rounding errors add up."""
        self.value[self.basic] = 0.0
        self.value[self.basic] = -tableau @ self.value

    def _to_bound(self, vector: int) -> None:
        """Move a weight that has met a bound onto it, clear of rounding errors."""
        self.value[vector] = 0.0 if self.value[vector] < self.upper[vector] / 2 else self.upper[vector]

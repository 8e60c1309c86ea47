"""Compact vector summation: an order in which partial sums of vectors stay close to the origin.

A vector has one coordinate per worker, and its size is the span from its smallest to its largest coordinate: how
far it drives the loads of two workers apart. The sum of all vectors has size 0, up to rounding errors, and the
largest coordinate is about 1.
"""

from time import monotonic
from typing import Any

from hoptree.optimize.extra import require

CLOSE = 1e-12
"""Weights that are closer than this to 0 or 1 count as 0 or 1."""

ROUNDING = 1e-9
"""Sums smaller than this are rounding errors."""


def compact_order(vectors: Any, deadline: float) -> list[int] | None:
    """Order the rows of a matrix such that every partial sum is at most d times as large as the largest row, where
    d is one less than the number of coordinates; return None if the deadline passes first.

    `greedy_order` usually achieves this, with much smaller sums. If it does not, `steinitz_order` does.
    """
    order = greedy_order(vectors)
    if largest_sum(vectors, order) <= (vectors.shape[1] - 1) * spans(vectors).max() + ROUNDING:
        return order
    return steinitz_order(vectors, deadline)


def spans(vectors: Any) -> Any:
    """Return the size of every row."""
    return vectors.max(axis=1) - vectors.min(axis=1)


def largest_sum(vectors: Any, order: list[int]) -> float:
    """Return the size of the largest partial sum."""
    return float(spans(vectors[order].cumsum(axis=0)).max())


def greedy_order(vectors: Any) -> list[int]:
    """Repeatedly append the vector that gives the smallest sum."""
    numpy = require("numpy", "vector")
    total = numpy.zeros(vectors.shape[1])
    left = numpy.arange(len(vectors))
    order = []
    while len(left):
        index = int(spans(total + vectors[left]).argmin())
        order.append(int(left[index]))
        total += vectors[left[index]]
        left = numpy.delete(left, index)
    return order


def steinitz_order(vectors: Any, deadline: float) -> list[int] | None:
    """Order with the guarantee of `compact_order`, by the proof of Grinberg and Sevast'yanov, from the back.

    All vectors are taken modulo (1, ..., 1), which has size 0: so they have d dimensions. For a set A of
    k > d vectors let W(A) be the weights w in [0, 1] with sum k - d and weighted vector sum zero. Take a w of
    W(A) and scale its sum down to k - d - 1: such weights still exist, and then so does a vertex among them.
    A vertex has at most d + 1 weights strictly within (0, 1), for d + 1 equations; were none of the k weights
    0, at least k - d - 1 would be 1, and the others, being positive, would exceed the sum. So a vertex has a
    weight 0: that vector comes last, and the other weights are in W of the set without it. The sum of A is
    the sum of (1 - w) v, which is at most the sum of 1 - w, that is d, times the largest vector.
    """
    numpy = require("numpy", "vector")
    dimensions = vectors.shape[1] - 1
    equations = numpy.hstack([vectors[:, :-1] - vectors[:, -1:], numpy.ones((len(vectors), 1))])
    weights = numpy.ones(len(vectors))
    inside = list(range(len(vectors)))
    outside: list[int] = []
    while len(inside) > dimensions:
        if monotonic() > deadline:
            return None
        weights *= (len(inside) - dimensions - 1) / weights.sum()
        _to_vertex(weights, equations)
        dropped = min(inside, key=weights.__getitem__)
        weights[dropped] = 0.0
        inside.remove(dropped)
        outside.append(dropped)
    return inside + outside[::-1]


def _to_vertex(weights: Any, equations: Any) -> None:
    """Move weights, without changing any equation, until at most as many as there are equations are within (0, 1).

    With one weight more than equations, some combination changes no equation; move along it until a weight reaches
    0 or 1.
    """
    numpy = require("numpy", "vector")
    count = equations.shape[1]
    within = numpy.flatnonzero((weights > 0) & (weights < 1))
    while len(within) > count:
        some, rest = within[: count + 1], within[count + 1 :]
        change = numpy.linalg.svd(equations[some].T)[2][-1]
        room = numpy.where(change > 0, 1 - weights[some], weights[some])
        steps = room / numpy.maximum(abs(change), CLOSE)
        moved = weights[some] + steps.min() * change
        moved[moved < CLOSE] = 0.0
        moved[moved > 1 - CLOSE] = 1.0
        first = steps.argmin()
        moved[first] = round(moved[first])
        weights[some] = moved
        within = numpy.concatenate([some[(moved > 0) & (moved < 1)], rest])

"""Add the gradients of a batch's shards by a fixed balanced binary tree.

Floating-point addition is not associative, so a sum has the same bits everywhere only if its order is fixed. In a
chain, one device would have to wait for the other. In a tree, each of r devices adds the shards of its own subtree,
and the same tree over the r results gives the bits that one device gets from all shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

import torch

T = TypeVar("T")
Tensors = Sequence[torch.Tensor | None]  # one for every parameter, in order; None: it has no gradient


@final
class TreeSum(Generic[T]):
    """The sum of leaves that arrive in order, kept as a binary counter: for v leaves at most log2(v) + 1 values.

    ``add`` may write its result into its first argument. An absent leaf (None) counts as nothing; so do the last
    leaves of a tree if they never arrive.

    >>> tree = TreeSum(lambda left, right: f"({left}+{right})")
    >>> for leaf in "abcdefg":
    ...     tree.push(leaf)
    >>> tree.total()
    '(((a+b)+(c+d))+((e+f)+g))'
    """

    def __init__(self, add: Callable[[T, T], T]) -> None:
        self._add = add
        self._sums: list[tuple[int, T | None]] = []  # complete subtrees with their sizes, in decreasing order

    def push(self, leaf: T | None) -> None:
        """Add the next leaf."""
        size = 1
        while self._sums and self._sums[-1][0] == size:
            leaf = self._join(self._sums.pop()[1], leaf)
            size *= 2
        self._sums.append((size, leaf))

    def total(self) -> T | None:
        """Return the sum of all leaves so far, and start again; None if all are absent."""
        total: T | None = None
        while self._sums:
            total = self._join(self._sums.pop()[1], total)
        return total

    def _join(self, left: T | None, right: T | None) -> T | None:
        if left is None or right is None:
            return right if left is None else left
        return self._add(left, right)


def add_gradients(left: Tensors, right: Tensors) -> Tensors:
    """Add gradients parameter by parameter, in the memory of the left ones; an absent one counts as nothing.

    Adding -0.0 has the same effect on bits as leaving an absent gradient out; adding 0.0 has not.
    """
    pairs = [(one, two) for one, two in zip(left, right, strict=True) if one is not None and two is not None]
    if pairs:
        torch._foreach_add_([one for one, _ in pairs], [two for _, two in pairs])
    return [two if one is None else one for one, two in zip(left, right, strict=True)]

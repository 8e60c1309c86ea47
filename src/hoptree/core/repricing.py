"""New costs for all nodes, some nodes at each step, so that no step takes long in a large plan."""

from __future__ import annotations

from typing import final

from hoptree.core.costs import CostFormula
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan

AT_ONCE = 150  # nodes in one step: about 2 ms


@final
class Repricing:
    """Applies a cost formula to all nodes and active lineages.

    First every node gets its cost, the newest first: children are newer than their parents, so the paths below a
    node are known when they are needed. Then lineages get their ranks, the oldest first, so that the order of equal
    ranks is kept. Meanwhile some ranks use old costs, which makes some decisions worse but none incorrect.
    """

    def __init__(self, plan: Plan, open_work: OpenWork) -> None:
        self._plan = plan
        self._open_work = open_work
        self._unpriced = 0  # nodes before this one have old costs
        self._ranked = 0  # lineages of nodes from here on …
        self._until = 0  # … to here have old ranks

    @property
    def under_way(self) -> bool:
        """Whether some nodes or lineages are not updated yet."""
        return self._ranked < self._until

    def begin(self, formula: CostFormula) -> None:
        """Use a formula for new nodes from now on, and begin to update the existing ones."""
        self._plan.learn(formula)
        self._unpriced = self._until = len(self._plan.nodes)
        self._ranked = 0

    def go_on(self) -> None:
        """Update the next part."""
        nodes, left = self._plan.nodes, AT_ONCE
        while self._unpriced and left:
            self._unpriced -= 1
            left -= 1
            node = nodes[self._unpriced]
            self._open_work.reprice(node, self._plan.price(node))
        if self._unpriced:
            return
        part = nodes[self._ranked : min(self._until, self._ranked + left)]
        self._ranked += len(part)
        lineages = [lineage for node in part for lineage in node.active]
        self._open_work.changed += sorted(lineages, key=lambda lineage: lineage.sequence)

"""New costs for all nodes, some at each step: with many nodes no decision waits for all of them."""

from __future__ import annotations

from typing import final

from hoptree.core.costs import CostFormula
from hoptree.core.open_work import OpenWork
from hoptree.core.plan import Plan

AT_ONCE = 150  # nodes in one step: some 2 ms


@final
class Repricing:
    """Brings what costs of nodes decide in line with a formula.

    First every node gets its price, the latest first: children come after their parents, so the ways below a node
    are known when they are needed. Then lineages get their rank, the earliest first, so that of equals who came
    first stays first. Until it is done, some nodes are ranked by old prices and some by new ones, which costs a few
    decisions their sense and none its correctness.
    """

    def __init__(self, plan: Plan, open_work: OpenWork) -> None:
        self._plan = plan
        self._open_work = open_work
        self._unpriced = 0  # nodes before this one have old prices
        self._ranked = 0  # lineages of nodes from here on …
        self._until = 0  # … to here have old ranks

    @property
    def under_way(self) -> bool:
        """Whether something is left to be done."""
        return self._ranked < self._until

    def begin(self, formula: CostFormula) -> None:
        """Price nodes to come by a formula from now on, and begin with those that are there."""
        self._plan.learn(formula)
        self._unpriced = self._until = len(self._plan.nodes)
        self._ranked = 0

    def go_on(self) -> None:
        """Do the next part."""
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

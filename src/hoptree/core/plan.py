"""The plan: the prefix tree of all lineages that trials request, at unit granularity.

A node is a sequence of units with the same forms of values; children begin where values change. Nodes are only
added, and the nodes that a trial passes do not depend on earlier trials, so a place in the plan, (node, unit),
means the same for every trial and, by its key, in every study. States, reports and open requests belong to places.
The work that is left is not stored but computed: for every open request, ``stages`` finds the deepest stored state
on its path (algorithm 1 of the stage-tree paper).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, final

import msgspec

from hoptree.core.costs import CostFormula
from hoptree.core.errors import WorkloadError
from hoptree.core.keys import lineage_key, root_key, rotation
from hoptree.core.lineage import History, Values, segments
from hoptree.core.nodes import ActiveLineage, Node, Place, Run, State
from hoptree.core.settings import Order
from hoptree.core.trial import Trial

__all__ = ["ActiveLineage", "Cost", "Node", "Place", "Plan", "Run", "Stage", "State", "Trial", "Work"]

Cost: TypeAlias = Callable[[Values], float]


class Stage(msgspec.Struct, frozen=True):
    """Units ``first`` to ``last`` (exclusive) of a node, trained in sequence; ``after`` is the previous stage."""

    node: int
    first: int
    last: int
    after: int | None


class Work(msgspec.Struct, frozen=True):
    """Requested units, and how many of them are unique: equal units are trained once."""

    asked: int
    unique: int

    @property
    def merge_rate(self) -> float:
        """Requested units per unique unit; 1.0 if there is no work."""
        return self.asked / self.unique if self.unique else 1.0


@final
class Plan:
    """All lineages; it only grows."""

    def __init__(self, partitions: int, cost: Cost | None = None, order: Order = "strict") -> None:
        if partitions < 1:
            raise WorkloadError(f"partitions: {partitions}; an epoch needs at least one partition")
        self.partitions = partitions
        self.order: Order = order
        self.nodes: list[Node] = []
        self.roots: dict[tuple[str, str], Node] = {}
        self._by_key: dict[tuple[str, str], Node] = {}
        self._cost = cost
        self.formula: CostFormula | None = None  # the learned costs; None: costs are those given

    def root(self, fingerprint: str, tree: str = "") -> Node:
        """Return the node where lineages of a fingerprint begin; ``tree`` names a separate tree of it.

        Lineage keys, and so seeds and bits, are those of the shared tree; only the keys of states differ.
        """
        node = self.roots.get((fingerprint, tree))
        if node is None:
            name = root_key(fingerprint, self.partitions, self.order)
            node = Node(len(self.nodes), None, 0, Values(()), name, tree)
            self.nodes.append(node)
            self.roots[fingerprint, tree] = node
        return node

    def places(self, phases: History, root: Node, epochs: Iterable[int]) -> list[Place]:
        """Return the places of a history after each of the (increasing) epochs, adding nodes as needed."""
        ends = [epoch * self.partitions for epoch in epochs]
        path = self.path(phases, root, ends[-1]) if ends else []
        starts = [node.start for node in path]
        return [Place(path[bisect_right(starts, end - 1) - 1], end) for end in ends]

    def path(self, phases: History, root: Node, units: int) -> list[Node]:
        """Return the nodes that the first ``units`` units of a history pass, adding missing ones."""
        node, path = root, []
        for start, values in segments(phases, self.partitions, units):
            child = node.children.get((start, values))
            if child is None:
                child = self._add(node, start, values)
            node = child
            path.append(node)
        return path

    def _add(self, parent: Node, start: int, values: Values) -> Node:
        node = Node(len(self.nodes), parent, start, values, lineage_key(parent.key, start, values), parent.tree)
        node.rotation = rotation(node.key, self.partitions)
        if self._cost is not None:
            node.cost = _priced(self._cost, values)
        self.nodes.append(node)
        self._by_key[node.key, node.tree] = node
        parent.children[start, values] = node
        return node

    def find(self, key: str, tree: str = "") -> Node | None:
        """Return the node with this key and tree, or None."""
        return self._by_key.get((key, tree))

    def rotation(self, node: Node, unit: int) -> int:
        """Return the rotation of the epoch that contains a unit, in strict order."""
        begin = unit - unit % self.partitions
        while node.start > begin and node.parent is not None:
            node = node.parent
        return node.rotation

    def price_by(self, cost: Cost) -> None:
        """Estimate costs of nodes by a function of their values, until costs are learned."""
        self._cost = cost

    def learn(self, formula: CostFormula) -> None:
        """Use a formula for the costs of new nodes; the caller updates the existing ones."""
        if not 0 <= formula.least <= formula.most < float("inf"):
            raise WorkloadError(
                f"cost: from {formula.least!r} to {formula.most!r} by {formula}; expected a finite time >= 0"
            )
        self.formula = formula
        self._cost = formula.of

    def price(self, node: Node) -> float:
        """Return the current cost estimate of a unit of a node; that of a root never changes."""
        return node.cost if node.parent is None or self._cost is None else _priced(self._cost, node.values)

    def source(self, node: Node, unit: int) -> Place | None:
        """Return the deepest stored state at or before a place; None for the untrained model."""
        while True:
            stored = [at for at in node.states if at <= unit]
            if stored:
                return Place(node, max(stored))
            if node.parent is None or node.start == 0:
                return None
            unit = node.start
            node = node.parent

    def stages(self, open_requests: Iterable[Place]) -> list[Stage]:
        """Return what must be trained for the requests, as stages that end at requests and branches.

        Each request is traced back to its deepest stored ancestor; ends of other requests on its path split stages.
        """
        cuts: dict[int, list[int]] = {}
        entered: dict[int, list[int]] = {}
        for node, unit in open_requests:
            self._trace(node, unit, cuts, entered)
        found: list[Stage] = []
        ending: dict[tuple[int, int], int] = {}
        for number in sorted(cuts, key=lambda n: (self.nodes[n].start, n)):
            node = self.nodes[number]
            begins = sorted(entered[number])
            for end in cuts[number]:
                before = [b for b in begins if b < end]
                earlier = [c for c in cuts[number] if c < end]
                first = max([*before, *(c for c in earlier if c >= max(before))])
                parent = node.parent.id if node.parent is not None and first == node.start else number
                found.append(Stage(number, first, end, ending.get((parent, first))))
                ending[number, end] = len(found) - 1
        return found

    def _trace(self, node: Node, unit: int, cuts: dict[int, list[int]], entered: dict[int, list[int]]) -> None:
        while True:
            if unit in node.states or node.parent is None or unit in cuts.get(node.id, ()):
                return
            insort(cuts.setdefault(node.id, []), unit)
            stored = [at for at in node.states if at < unit]
            begin = max(stored, default=node.start)
            if begin not in entered.setdefault(node.id, []):
                entered[node.id].append(begin)
            if stored:
                return
            unit, node = node.start, node.parent

    def path_with_ends(self, trial: Trial, units: int) -> list[tuple[Node, int]]:
        """Return the nodes that a trial's first units pass, each with the unit at which the trial leaves it."""
        root = self.root(trial.root, trial.tree)
        path = self.path(trial.history, root, units)
        return list(zip(path, [*(node.start for node in path[1:]), units][: len(path)], strict=True))

    def follow(self, trial: Trial, until: int) -> list[Node]:
        """Count a trial as live in the nodes up to an epoch, and in no others; return the previous nodes."""
        before = (
            [node for node, _ in self.path_with_ends(trial, trial.followed * self.partitions)]
            if trial.followed
            else []
        )
        for node in before:
            node.live -= 1
        trial.followed = until
        for node, _ in self.path_with_ends(trial, until * self.partitions) if until else ():
            node.live += 1
            if node.first < 0:
                node.first, node.standing = trial.number, trial.standing
        return before

    def arrange(self, nodes: list[Node]) -> None:
        """Renumber the nodes in this order."""
        for number, node in enumerate(nodes):
            node.id = number
        self.nodes[:] = nodes

    def work(self, trials: Iterable[Trial], *, done: bool = False) -> Work:
        """Return the units that trials request (or have done), and how many of them are unique."""
        some = list(trials)
        asked = sum(trial.done if done else trial.epochs for trial in some) * self.partitions
        reach = self.reach(some, done=done)
        return Work(asked, sum(end - self.nodes[number].start for number, end in reach.items()))

    def reach(self, trials: Iterable[Trial], *, done: bool = False) -> dict[int, int]:
        """Return the last unit that trials request (or have done) in each node, by the number of the node."""
        reach: dict[int, int] = {}
        for trial in trials:
            for node, end in self.path_with_ends(trial, (trial.done if done else trial.epochs) * self.partitions):
                reach[node.id] = max(reach.get(node.id, 0), end)
        return reach

    @property
    def lineages(self) -> int:
        """Number of active lineages: as many workers could be busy."""
        return sum(len(node.active) for node in self.nodes)

    def walk(self) -> Iterator[Node]:
        """Yield all nodes except the roots, in the order in which they were added."""
        return (node for node in self.nodes if node.parent is not None)


def _priced(cost: Cost, values: Values) -> float:
    seconds = cost(values)
    if not 0 <= seconds < float("inf"):
        raise WorkloadError(f"cost: {seconds!r} for {values}; expected a finite time >= 0")
    return seconds

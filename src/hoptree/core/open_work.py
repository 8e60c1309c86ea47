"""Open work: which places of the plan have to be reached, and how long the path to the furthest of them is.

A node's *targets* are the places in it that an open request or a waiting child needs. Every target is *covered*: by
an active lineage in the node that will pass it, or, if the node stores no state, by a target at its start in the
parent. All changes preserve this, so an event at a place is handled from the data of that place alone, and its cost
does not depend on the size of the plan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import final

from hoptree.core.nodes import ActiveLineage, Node, Place, State
from hoptree.core.trial import Trial


@final
class OpenWork:
    """The open work of a plan; lists the lineages that were added, changed or became unneeded."""

    def __init__(self, partitions: int) -> None:
        self.backlog = 0.0  # expected time of all units that are needed and not yet trained
        self.done = [0.0] * partitions  # expected time of all units that were trained, by partition
        self.spawned: list[ActiveLineage] = []
        self.changed: list[ActiveLineage] = []
        self.unneeded: list[ActiveLineage] = []

    def left(self, partition: int) -> float:
        """Return the expected time of the units that are left on a partition."""
        return (self.backlog + sum(self.done)) / len(self.done) - self.done[partition]

    def add_target(self, node: Node, unit: int, tail: float = 0.0) -> None:
        """Add a target at a place whose state is not stored; ``tail`` is the longest path beyond it."""
        if unit in node.counts:
            node.counts[unit] += 1
        else:
            node.counts[unit] = 1
            index = bisect_left(node.targets, unit)
            node.targets.insert(index, unit)
            if node.best is not None:
                node.best.insert(index, node.best[index] if index < len(node.best) else float("-inf"))
        self._raise(node, unit, unit * node.cost + tail)
        self._cover(node, unit)
        self._recount(node)

    def remove_target(self, node: Node, unit: int) -> None:
        """Remove one request for a target, and lineages and targets in parents that served only it."""
        self.remove_targets([Place(node, unit)])

    def remove_targets(self, places: Sequence[Place]) -> None:
        """Remove one request for each of several targets; each node is updated once."""
        gone: dict[Node, set[int]] = {}
        for node, unit in places:
            if unit not in node.counts:
                continue
            node.counts[unit] -= 1
            if not node.counts[unit]:
                del node.counts[unit]
                gone.setdefault(node, set()).add(unit)
        for node, units in gone.items():
            node.targets = [target for target in node.targets if target not in units]
            self._forget_lengths(node)
        for node in gone:
            self._reconsider(node)

    def arrive(self, node: Node, unit: int) -> list[Node]:
        """Remove the target at a place whose state is stored now; return the children that begin there."""
        del node.counts[unit]
        index = bisect_left(node.targets, unit)
        del node.targets[index]
        if node.best is not None:
            del node.best[index]
        children = node.waiters.pop(unit, [])
        for child in children:
            child.waiting = False
        return children

    def next_target(self, lineage: ActiveLineage) -> int | None:
        """Return the next target that this lineage has to reach, or None."""
        targets = lineage.node.targets
        index = bisect_right(targets, lineage.unit)
        if index == len(targets):
            return None
        target = targets[index]
        for other in lineage.node.active:
            if other is lineage:
                continue
            if lineage.unit < other.unit < target or (lineage.unit == other.unit and other.runs):
                return None
        return target

    def spawn(self, node: Node, unit: int, state: State | None) -> ActiveLineage:
        """Add an active lineage at a stored state (or at the untrained model)."""
        lineage = ActiveLineage(node, unit, state)
        if state is not None:
            state.users += 1
        node.active.append(lineage)
        self.refresh(lineage)
        self.spawned.append(lineage)
        return lineage

    def remove(self, lineage: ActiveLineage) -> None:
        """Remove a lineage; the caller covers its targets again if they are still needed."""
        lineage.node.active.remove(lineage)
        lineage.change("remove")

    def cover_again(self, node: Node) -> None:
        """Cover every target of a node again, after a lineage or a state was lost."""
        for target in list(node.targets):
            self._cover(node, target)
        self._recount(node)

    def found(self, node: Node) -> None:
        """Cover targets from a state that another driver made; lineages that became unneeded may end."""
        self._forget_lengths(node)
        for target in list(node.targets):
            self._cover(node, target)
        self._reconsider(node)

    def trials_behind(self, lineage: ActiveLineage) -> Iterator[Trial]:
        """Yield the trials that need this lineage."""
        for node, target in self.targets_behind(lineage):
            yield from list(node.requests.get(target, ()))

    def targets_behind(self, lineage: ActiveLineage) -> Iterator[Place]:
        """Yield the places that are reached through this lineage only."""
        if self.next_target(lineage) is None:
            return
        limit = min((c.unit for c in lineage.node.active if c.unit > lineage.unit), default=None)
        yield from self._targets(lineage.node, lineage.unit, limit)

    def _targets(self, node: Node, after: int, limit: int | None) -> Iterator[Place]:
        for target in list(node.targets):
            if target > after and (limit is None or target <= limit):
                yield Place(node, target)
                for child in list(node.waiters.get(target, ())):
                    yield from self._targets(child, child.start, None)

    # --- the longest path -------------------------------------------------------------------------------

    def longest(self, node: Node, unit: int) -> float:
        """Return the expected time from a place to the furthest target behind it."""
        if node.best is None:
            self._rebuild(node)
        assert node.best is not None
        index = bisect_right(node.targets, unit)
        return node.best[index] - unit * node.cost if index < len(node.targets) else 0.0

    def _rebuild(self, node: Node) -> None:
        best: list[float] = []
        peak = float("-inf")
        for target in reversed(node.targets):
            tail = max((self.longest(child, child.start) for child in node.waiters.get(target, ())), default=0.0)
            peak = max(peak, target * node.cost + tail)
            best.append(peak)
        node.best = best[::-1]

    def _raise(self, node: Node, unit: int, value: float) -> None:
        """Update the longest path of every earlier target, of the lineages and of waiting parents."""
        if node.best is None:
            self._rebuild(node)
        assert node.best is not None
        index = bisect_left(node.targets, unit)
        grew = False
        while index >= 0 and node.best[index] < value:
            node.best[index] = value
            grew = True
            index -= 1
        if not grew:
            return
        for lineage in node.active:
            if lineage.unit < unit:
                self.refresh(lineage)
        if node.waiting and node.parent is not None:
            tail = self.longest(node, node.start)
            self._raise(node.parent, node.start, node.start * node.parent.cost + tail)

    def refresh(self, lineage: ActiveLineage) -> None:
        """Update a lineage's longest path."""
        peak = self.longest(lineage.node, lineage.unit) + lineage.unit * lineage.node.cost
        if peak != lineage.peak:
            lineage.peak = peak
            self.changed.append(lineage)

    def reprice(self, node: Node, cost: float) -> None:
        """Change the cost of a node whose children have their new costs already; ranks are not updated."""
        change = cost - node.cost
        self.backlog += node.todo * change
        for partition, count in node.trained.items():
            self.done[partition] += count * change
        node.cost = cost
        self._rebuild(node)
        for lineage in node.active:
            lineage.peak = self.longest(node, lineage.unit) + lineage.unit * cost

    # --- cover ------------------------------------------------------------------------------------------

    def _cover(self, node: Node, unit: int) -> None:
        """Ensure that something will reach a target: a lineage here, or a target in the parent."""
        source = max((at for at in node.states if at < unit), default=-1)
        moving = max((c.unit for c in node.active if c.unit < unit), default=-1)
        if moving >= max(source, 0):
            return
        if source >= 0:
            self.spawn(node, source, node.states[source])
            return
        if node.waiting:
            return
        parent = node.parent
        assert parent is not None
        if node.start == 0:
            self.spawn(node, 0, None)
            return
        state = parent.states.get(node.start)
        if state is not None:
            self.spawn(node, node.start, state)
            return
        node.waiting = True
        insort(parent.waiters.setdefault(node.start, []), node, key=lambda child: child.id)
        self.add_target(parent, node.start, self.longest(node, node.start))

    def _reconsider(self, node: Node) -> None:
        """List lineages that became unneeded, and stop waiting for a parent if no target needs it."""
        for lineage in list(node.active):
            if self.next_target(lineage) is None:
                self.unneeded.append(lineage)
            else:
                self.refresh(lineage)
        first = min((lineage.unit for lineage in node.active), default=None)
        if node.waiting and not (node.targets and (first is None or node.targets[0] <= first)):
            self._stop_waiting(node)
        self._recount(node)

    def _stop_waiting(self, node: Node) -> None:
        node.waiting = False
        parent = node.parent
        assert parent is not None
        waiters = parent.waiters[node.start]
        waiters.remove(node)
        if not waiters:
            del parent.waiters[node.start]
        self.remove_target(parent, node.start)

    def _forget_lengths(self, node: Node) -> None:
        node.best = None
        while node.waiting and node.parent is not None:
            node = node.parent
            node.best = None

    def _recount(self, node: Node) -> None:
        """Update the backlog for a node's targets and sources."""
        sources = sorted(lineage.unit for lineage in node.active)
        if node.waiting:
            sources.insert(0, node.start)
        todo = 0
        for index, source in enumerate(sources):
            limit = sources[index + 1] if index + 1 < len(sources) else None
            reach = node.targets[-1] if node.targets else source
            if limit is not None and reach > limit:
                reach = node.targets[bisect_right(node.targets, limit) - 1]
            todo += max(0, reach - source)
        self.backlog += (todo - node.todo) * node.cost
        node.todo = todo

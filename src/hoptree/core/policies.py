"""Policies: which ready unit an idle worker takes. A policy ranks; the queue keeps the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import final

from hoptree.core.demand import Demand
from hoptree.core.errors import WorkloadError
from hoptree.core.plan import Cursor, Node
from hoptree.core.settings import Settings


class Policy(ABC):
    """Ranks ready cursors; the smallest rank goes first, ties go by rotation and then by age."""

    selective = False  # whether ``admits`` can say no

    @abstractmethod
    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return the rank of a cursor's next unit on a partition, at the moment it becomes ready."""

    def admits(self, cursor: Cursor, partition: int) -> bool:
        """Return whether the unit may start now; a worker waits rather than take one that may not."""
        return True

    def took(self, cursor: Cursor, partition: int) -> None:  # noqa: B027 most policies need not know
        """Note that the unit was given to a worker."""

    def memory(self) -> object:
        """Return what the next ranks depend on besides the cursors, as plain data."""
        return None


@final
class LongestPath(Policy):
    """Units on the longest remaining path go first: longest remaining time, and the critical path of a tree.

    ``pace`` is the time of a unit by partition. In free order it is weighed, over what is left of the epoch;
    in strict order the rotation makes all lineages meet slow partitions alike.
    """

    def __init__(self, pace: Sequence[float], *, free: bool) -> None:
        self._pace = pace
        self._free = free

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return minus the expected time to the furthest place that is reached through the cursor."""
        node = cursor.node
        if not self._free:
            return cursor.unit * node.cost - cursor.peak
        left = [time for index, time in enumerate(self._pace) if not cursor.order >> index & 1]
        later = cursor.peak - (cursor.unit + len(left)) * node.cost
        return -(later * sum(self._pace) / len(self._pace) + node.cost * sum(left))


@final
class BreadthFirst(Policy):
    """The least trained lineage goes first (the BFS baseline of the stage-tree paper)."""

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return the number of units trained so far."""
        return cursor.unit


@final
class MostChildren(Policy):
    """The stage with the most stages right behind it goes first (the THR baseline of the stage-tree paper)."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return minus the number of stages that begin where the current one ends."""
        stop = self._demand.next_stop(cursor)
        if stop is None:
            return 0
        goes_on = cursor.node.stops[-1] > stop
        return -(len(cursor.node.waiters.get(stop, ())) + goes_on)


@final
class Random(Policy):
    """Any ready unit (algorithms 1 and 2 of the model-hopper paper): a rank drawn when it becomes ready."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return the next number of a SplitMix64 stream."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def memory(self) -> object:
        """Return where the stream stands."""
        return self._state


@final
class Planned(Policy):
    """Follows a solved schedule: for each partition the lineages in their order, again in every epoch.

    A partition waits for the lineage whose turn it is, for as long as that lineage is being trained; one that
    has ended is passed over, so faults cannot stop the rest.
    """

    selective = True

    def __init__(self, turns: Mapping[int, Sequence[str]]) -> None:
        self._turns = {partition: list(keys) for partition, keys in turns.items()}
        self._place = {
            partition: {key: index for index, key in enumerate(keys)} for partition, keys in turns.items()
        }
        self._next = dict.fromkeys(turns, 0)
        self._nodes: dict[str, Node] = {}

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return the lineage's place in the partition's order, later epochs after earlier ones."""
        root = _first_node(cursor.node)
        self._nodes[root.key] = cursor.node
        turns = self._turns.get(partition, [])
        place = self._place.get(partition, {}).get(root.key, len(turns))
        rounds = self._next.get(partition, 0) // max(1, len(turns))
        return place if place >= self._next.get(partition, 0) - rounds * len(turns) else place + len(turns)

    def admits(self, cursor: Cursor, partition: int) -> bool:
        """Return whether it is this lineage's turn, passing over those that have ended."""
        turns = self._turns.get(partition, [])
        key = _first_node(cursor.node).key
        if key not in self._place.get(partition, {}):
            return True
        for _ in range(len(turns)):
            due = turns[self._next[partition] % len(turns)]
            node = self._nodes.get(due)
            if due == key or (node is not None and node.cursors):
                return due == key
            self._next[partition] += 1
        return True

    def took(self, cursor: Cursor, partition: int) -> None:
        """Move the partition on to the next turn."""
        turns = self._turns.get(partition, [])
        if turns and turns[self._next[partition] % len(turns)] == _first_node(cursor.node).key:
            self._next[partition] += 1

    def memory(self) -> object:
        """Return whose turn it is on each partition."""
        return dict(self._next)


def make_policy(settings: Settings, demand: Demand, pace: Sequence[float]) -> Policy:
    """Return the policy that the settings name."""
    match settings.policy:
        case "longest-path":
            return LongestPath(pace, free=settings.order == "free")
        case "random":
            return Random(settings.seed)
        case "breadth-first":
            return BreadthFirst()
        case "most-children":
            return MostChildren(demand)
        case _:
            raise WorkloadError(f"policy: {settings.policy!r}; expected one of {', '.join(POLICIES)}")


POLICIES = ("longest-path", "random", "breadth-first", "most-children")
_MASK = (1 << 64) - 1


def _first_node(node: Node) -> Node:
    while node.start > 0 and node.parent is not None:
        node = node.parent
    return node

"""Policies: which ready unit an idle worker takes. A policy ranks; the queue keeps the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import final

from hoptree.core.demand import Demand
from hoptree.core.errors import WorkloadError
from hoptree.core.plan import Cursor
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
    """Follows a solved schedule, again in every epoch: ``starts`` holds, by lineage, when it visits each partition.

    A unit begins when all that the schedule has before it, on its partition and in its lineage, is done. What is
    done is read off the cursors, so it may be undone by faults; a lineage that has ended keeps nobody waiting. The
    earliest unit that is left never waits, so the rest always goes on.
    """

    selective = True

    def __init__(self, starts: Mapping[str, Sequence[float]]) -> None:
        self._starts = starts
        self._places = {key: place for place, key in enumerate(starts)}
        self._length = 1 + max((start for row in starts.values() for start in row), default=0.0)
        self._cursors: list[Cursor] = []

    def rank(self, cursor: Cursor, partition: int) -> float:
        """Return when the schedule has the unit begin, epoch after epoch."""
        if cursor not in self._cursors:
            self._cursors = [c for c in self._cursors if not c.stale] + [cursor]
        starts = self._starts.get(cursor.node.origin.key)
        if starts is None:
            return float("inf")
        return cursor.unit // len(starts) * self._length + starts[partition]

    def admits(self, cursor: Cursor, partition: int) -> bool:
        """Return whether the unit is the next of its lineage, and no other has to visit the partition before it."""
        starts = self._starts.get(cursor.node.origin.key)
        if starts is None:
            return True
        left = [(start, p) for p, start in enumerate(starts) if not cursor.order >> p & 1]
        if min(left)[1] != partition:
            return False
        turn = self._turn(cursor, partition)
        return not any(self._turn(c, partition) < turn for c in self._cursors if not c.stale)

    def _turn(self, cursor: Cursor, partition: int) -> tuple[float, float, int]:
        """Return the epoch, the start and the place at which a lineage visits the partition next."""
        key = cursor.node.origin.key
        starts = self._starts.get(key)
        if starts is None:
            return float("inf"), 0.0, 0
        epoch = cursor.unit // len(starts) + (cursor.order >> partition & 1)
        return epoch, starts[partition], self._places[key]


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

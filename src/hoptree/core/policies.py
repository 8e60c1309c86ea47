"""Policies: which ready unit an idle worker gets. A policy ranks units; the ready queue sorts them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import final

from hoptree.core.barriers import Barriers
from hoptree.core.errors import WorkloadError
from hoptree.core.nodes import ActiveLineage
from hoptree.core.open_work import OpenWork
from hoptree.core.settings import Settings
from hoptree.core.workers import Workers


class Policy(ABC):
    """Ranks ready lineages; the smallest rank goes first, ties are broken by rotation and then by age."""

    selective = False  # whether ``admits`` may return False
    two_orders = False  # whether ``urgency`` and ``is_urgent`` are used

    @abstractmethod
    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the rank of a lineage's next unit on a partition; called when the unit becomes ready."""

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the rank in the second order, as a time: minus the expected time left after this place."""
        return self.rank(lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether the first lineage by urgency must not wait for the first by rank."""
        return False

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return whether the unit may start now; if not, a worker rather waits."""
        return True

    def took(self, lineage: ActiveLineage, partition: int) -> None:  # noqa: B027 optional
        """Take note that the unit was assigned to a worker."""

    def memory(self) -> object:
        """Return the internal state on which further ranks depend, as plain data."""
        return None


@final
class LongestPath(Policy):
    """Units on the longest remaining path go first: longest remaining time, or the critical path of a tree.

    ``pace`` is the time of a unit by partition. It matters in free order only, for the rest of the epoch; in strict
    order the rotation spreads slow partitions evenly over all lineages.
    """

    def __init__(self, pace: Sequence[float], *, free: bool) -> None:
        self._pace = pace
        self._free = free

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return minus the expected time to the furthest place that is reached through the lineage."""
        node = lineage.node
        if not self._free:
            return lineage.unit * node.cost - lineage.peak
        left = [time for index, time in enumerate(self._pace) if not lineage.order >> index & 1]
        later = lineage.peak - (lineage.unit + len(left)) * node.cost
        return -(later * sum(self._pace) / len(self._pace) + node.cost * sum(left))


@final
class FirstCome(Policy):
    """Trials that were requested first go first, until a path becomes critical: then the longest path does.

    Of trials that were requested together (``Standings``), those with the shortest units go first, so that many are
    complete early. While the backlog, divided among all workers, takes longer than the longest path, the order
    hardly changes when the last unit ends. Lineages wait for each other, so a path counts twice (free order: three
    times).
    """

    two_orders = True

    def __init__(self, open_work: OpenWork, workers: Workers, barriers: Barriers, *, free: bool) -> None:
        self._open_work = open_work
        self._workers = workers.by_name
        self._barriers = barriers
        self._longest = LongestPath(workers.pace, free=free)
        self._room = 3.0 if free else 2.0
        self._cost, self._class = -1.0, 0  # the time of a unit that was ranked last, and its class

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return a number that sorts by the standing, then by the time of a unit, then by the first trial."""
        node = lineage.node
        cost = node.cost
        if cost != self._cost:  # most lineages that become ready one after the other have the same
            self._cost, self._class = cost, _time_class(cost)
        return (node.standing * _TIMES + self._class) * _TRIALS + node.first - node.standing

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return minus the expected time to the furthest place that is reached through the lineage."""
        return self._longest.rank(lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether the path of a lineage may end last if a unit of another lineage goes first."""
        if self._barriers.any:  # the backlog beyond a barrier does not keep workers busy until it opens
            return True
        node = lineage.node
        path = lineage.peak - lineage.unit * node.cost
        return (self._room * path + other.node.cost) * len(self._workers) > self._open_work.backlog


@final
class BreadthFirst(Policy):
    """The least trained lineage goes first (the BFS baseline of the stage-tree paper)."""

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the number of units trained so far."""
        return lineage.unit


@final
class MostChildren(Policy):
    """The stage with the most stages right behind it goes first (the THR baseline of the stage-tree paper)."""

    def __init__(self, open_work: OpenWork) -> None:
        self._open_work = open_work

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return minus the number of stages that begin where the current one ends."""
        stop = self._open_work.next_target(lineage)
        if stop is None:
            return 0
        goes_on = lineage.node.targets[-1] > stop
        return -(len(lineage.node.waiters.get(stop, ())) + goes_on)


@final
class RandomOrder(Policy):
    """Any ready unit (algorithms 1 and 2 of the model-hopper paper): a rank drawn when it becomes ready."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the next number of a SplitMix64 stream."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def memory(self) -> object:
        """Return the state of the generator."""
        return self._state


@final
class PlannedOrder(Policy):
    """Follows a solved schedule in every epoch: ``starts`` holds, by lineage, when it visits each partition.

    A unit starts when all units before it in the schedule, on its partition and in its lineage, are done. The
    lineages show what is done, so faults may undo it; no unit waits for a lineage that has ended. The earliest
    remaining unit never waits, so there is always progress.
    """

    selective = True

    def __init__(self, starts: Mapping[str, Sequence[float]]) -> None:
        self._starts = starts
        self._places = {key: place for place, key in enumerate(starts)}
        self._length = 1 + max((start for row in starts.values() for start in row), default=0.0)
        self._lineages: list[ActiveLineage] = []

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the time at which the schedule starts the unit."""
        if lineage not in self._lineages:
            self._lineages = [c for c in self._lineages if c.status != "removed"] + [lineage]
        starts = self._starts.get(lineage.node.origin.key)
        if starts is None:
            return float("inf")
        return lineage.unit // len(starts) * self._length + starts[partition]

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return whether the unit is the next of its lineage, and no other visits the partition before it."""
        starts = self._starts.get(lineage.node.origin.key)
        if starts is None:
            return True
        left = [(start, p) for p, start in enumerate(starts) if not lineage.order >> p & 1]
        if min(left)[1] != partition:
            return False
        turn = self._turn(lineage, partition)
        return not any(self._turn(c, partition) < turn for c in self._lineages if c.status != "removed")

    def _turn(self, lineage: ActiveLineage, partition: int) -> tuple[float, float, int]:
        """Return the epoch, the start and the index of a lineage's next visit of the partition."""
        key = lineage.node.origin.key
        starts = self._starts.get(key)
        if starts is None:
            return float("inf"), 0.0, 0
        epoch = lineage.unit // len(starts) + (lineage.order >> partition & 1)
        return epoch, starts[partition], self._places[key]


@final
class CheckedPolicy(Policy):
    """A user's policy whose return values are checked before they are used."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.selective = bool(policy.selective)
        self.two_orders = bool(policy.two_orders)

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the rank, or raise if it is not a number."""
        return self._number("rank", lineage, partition)

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the urgency, or raise if it is not a number."""
        return self._number("urgency", lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return its result, or raise if it is not a boolean."""
        return self._boolean("is_urgent", lineage, other)

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return its result, or raise if it is not a boolean."""
        return self._boolean("admits", lineage, partition)

    def took(self, lineage: ActiveLineage, partition: int) -> None:
        """Call the user's method."""
        self._call("took", lineage, partition)

    def memory(self) -> object:
        """Return the state of the user's policy."""
        return self._call("memory")

    def _number(self, method: str, lineage: ActiveLineage, partition: int) -> float:
        answer = self._call(method, lineage, partition)
        if isinstance(answer, bool) or not isinstance(answer, Real) or answer != answer:
            raise self._wrong(
                method, (lineage, partition), f"returned {answer!r}", "a number: the smallest goes first"
            )
        return float(answer)

    def _boolean(self, method: str, *arguments: object) -> bool:
        answer = self._call(method, *arguments)
        if not isinstance(answer, bool):
            raise self._wrong(method, arguments, f"returned {answer!r}", "True or False")
        return answer

    def _call(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise self._wrong(method, arguments, raised, "a return value") from error

    def _wrong(self, method: str, arguments: Sequence[object], what: str, expected: str) -> WorkloadError:
        asked = f"{type(self._policy).__name__}.{method}({', '.join(map(str, arguments))})"
        return WorkloadError(f"policy: {asked} {what}; expected {expected}")


def checked(policy: Policy) -> Policy:
    """Return a built-in policy as it is, and any other wrapped so that its return values are checked."""
    return policy if type(policy).__module__ == __name__ else CheckedPolicy(policy)


def make_policy(settings: Settings, open_work: OpenWork, workers: Workers, barriers: Barriers) -> Policy:
    """Return the policy that the settings name."""
    free = settings.order == "free"
    match settings.policy:
        case "first-come":
            return FirstCome(open_work, workers, barriers, free=free)
        case "longest-path" | "monte-carlo":  # the latter differs only in how gangs are formed
            return LongestPath(workers.pace, free=free)
        case "random":
            return RandomOrder(settings.seed)
        case "breadth-first":
            return BreadthFirst()
        case "most-children":
            return MostChildren(open_work)
        case _:
            raise unknown_policy(settings.policy)


def unknown_policy(given: object) -> WorkloadError:
    """Return the error for a value that is not a policy."""
    return WorkloadError(
        f"policy: {given!r}; expected one of {', '.join(POLICIES)}, a Policy, or the starts of a solved schedule"
    )


POLICIES = ("first-come", "longest-path", "random", "breadth-first", "most-children", "monte-carlo")
_MASK = (1 << 64) - 1
_SHORTEST = 1e-9
_TIMES = 1 << 13  # more than there are classes of times, from 1e-9 s to 1e28 s
_TRIALS = 1 << 20


def _time_class(seconds: float) -> int:
    """Return a small number that grows with a time; times that differ by less than about 1 % may have the same.

    Estimates of equal times differ a little, which must not decide between trials.
    """
    mantissa, exponent = math.frexp(seconds + _SHORTEST)  # the mantissa is at least 0.5
    return 64 * exponent + int(128 * mantissa) + 2048

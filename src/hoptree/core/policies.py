"""Policies: which ready unit an idle worker takes. A policy ranks; the queue keeps the order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import final

from hoptree.core.errors import WorkloadError
from hoptree.core.nodes import ActiveLineage
from hoptree.core.open_work import OpenWork
from hoptree.core.settings import Settings
from hoptree.core.workers import Workers


class Policy(ABC):
    """Ranks ready lineages; the smallest rank goes first, ties go by rotation and then by age."""

    selective = False  # whether ``admits`` can say no
    two_orders = False  # whether ``urgency`` and ``is_urgent`` are asked

    @abstractmethod
    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the rank of a lineage's next unit on a partition, at the moment it becomes ready."""

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the rank in the second order, in time: minus what is left behind the unit."""
        return self.rank(lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether the first of the second order must not wait for the first by rank."""
        return False

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return whether the unit may start now; a worker waits rather than take one that may not."""
        return True

    def took(self, lineage: ActiveLineage, partition: int) -> None:  # noqa: B027 most policies need not know
        """Note that the unit was given to a worker."""

    def memory(self) -> object:
        """Return what the next ranks depend on besides the lineages, as plain data."""
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
    """The trial that was asked for first goes first, until a path becomes critical: then the longest path does.

    While the backlog, shared by all workers, outlasts the longest path, the order of units hardly changes when the
    last of them ends. So whole trials, and what a search learns from them, come as early as they can. Lineages
    wait for each other at partitions, so a path counts as twice its length, and in free order as three times.
    """

    two_orders = True

    def __init__(self, open_work: OpenWork, workers: Workers, *, free: bool) -> None:
        self._open_work = open_work
        self._workers = workers.by_name
        self._longest = LongestPath(workers.pace, free=free)
        self._room = 3.0 if free else 2.0

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return the number of the trial that asked first for what the lineage trains."""
        return lineage.node.first

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return minus the expected time to the furthest place that is reached through the lineage."""
        return self._longest.rank(lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return whether the path behind a lineage may end last if a unit of another one goes first."""
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
        goes_on = lineage.node.stops[-1] > stop
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
        """Return where the stream stands."""
        return self._state


@final
class PlannedOrder(Policy):
    """Follows a solved schedule, again in every epoch: ``starts`` holds, by lineage, when it visits each partition.

    A unit begins when all that the schedule has before it, on its partition and in its lineage, is done. What is
    done is read off the lineages, so it may be undone by faults; a lineage that has ended keeps nobody waiting. The
    earliest unit that is left never waits, so the rest always goes on.
    """

    selective = True

    def __init__(self, starts: Mapping[str, Sequence[float]]) -> None:
        self._starts = starts
        self._places = {key: place for place, key in enumerate(starts)}
        self._length = 1 + max((start for row in starts.values() for start in row), default=0.0)
        self._lineages: list[ActiveLineage] = []

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return when the schedule has the unit begin, epoch after epoch."""
        if lineage not in self._lineages:
            self._lineages = [c for c in self._lineages if c.status != "removed"] + [lineage]
        starts = self._starts.get(lineage.node.origin.key)
        if starts is None:
            return float("inf")
        return lineage.unit // len(starts) * self._length + starts[partition]

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return whether the unit is the next of its lineage, and no other has to visit the partition before it."""
        starts = self._starts.get(lineage.node.origin.key)
        if starts is None:
            return True
        left = [(start, p) for p, start in enumerate(starts) if not lineage.order >> p & 1]
        if min(left)[1] != partition:
            return False
        turn = self._turn(lineage, partition)
        return not any(self._turn(c, partition) < turn for c in self._lineages if c.status != "removed")

    def _turn(self, lineage: ActiveLineage, partition: int) -> tuple[float, float, int]:
        """Return the epoch, the start and the place at which a lineage visits the partition next."""
        key = lineage.node.origin.key
        starts = self._starts.get(key)
        if starts is None:
            return float("inf"), 0.0, 0
        epoch = lineage.unit // len(starts) + (lineage.order >> partition & 1)
        return epoch, starts[partition], self._places[key]


@final
class CheckedPolicy(Policy):
    """A policy of a user's: what it answers is looked at before anything follows from it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.selective = bool(policy.selective)
        self.two_orders = bool(policy.two_orders)

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        """Return its rank, if that is a number."""
        return self._number("rank", lineage, partition)

    def urgency(self, lineage: ActiveLineage, partition: int) -> float:
        """Return its rank in the second order, if that is a number."""
        return self._number("urgency", lineage, partition)

    def is_urgent(self, lineage: ActiveLineage, other: ActiveLineage) -> bool:
        """Return its answer, if that is True or False."""
        return self._truth("is_urgent", lineage, other)

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        """Return its answer, if that is True or False."""
        return self._truth("admits", lineage, partition)

    def took(self, lineage: ActiveLineage, partition: int) -> None:
        """Pass it on."""
        self._ask("took", lineage, partition)

    def memory(self) -> object:
        """Return its own."""
        return self._ask("memory")

    def _number(self, method: str, lineage: ActiveLineage, partition: int) -> float:
        answer = self._ask(method, lineage, partition)
        if isinstance(answer, bool) or not isinstance(answer, Real) or answer != answer:
            raise self._wrong(
                method, (lineage, partition), f"answered {answer!r}", "a number: the smallest goes first"
            )
        return float(answer)

    def _truth(self, method: str, *arguments: object) -> bool:
        answer = self._ask(method, *arguments)
        if not isinstance(answer, bool):
            raise self._wrong(method, arguments, f"answered {answer!r}", "True or False")
        return answer

    def _ask(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise self._wrong(method, arguments, raised, "an answer") from error

    def _wrong(self, method: str, arguments: Sequence[object], what: str, expected: str) -> WorkloadError:
        asked = f"{type(self._policy).__name__}.{method}({', '.join(map(str, arguments))})"
        return WorkloadError(f"policy: {asked} {what}; expected {expected}")


def checked(policy: Policy) -> Policy:
    """Return a policy whose answers can be relied on: one of ours, or one that is looked at."""
    return policy if type(policy).__module__ == __name__ else CheckedPolicy(policy)


def make_policy(settings: Settings, open_work: OpenWork, workers: Workers) -> Policy:
    """Return the policy that the settings name."""
    free = settings.order == "free"
    match settings.policy:
        case "first-come":
            return FirstCome(open_work, workers, free=free)
        case "longest-path":
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
    """Return the error of what is no policy."""
    return WorkloadError(
        f"policy: {given!r}; expected one of {', '.join(POLICIES)}, a Policy, or the starts of a solved schedule"
    )


POLICIES = ("first-come", "longest-path", "random", "breadth-first", "most-children")
_MASK = (1 << 64) - 1

"""Plans of allocation: how many nodes a job has in each of its stages, and what that takes and costs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hoptree.elastic.billing import charge
from hoptree.elastic.instance import Instance


class Range(msgspec.Struct, frozen=True):
    """An expected figure; in nine of ten cases it lies from ``least`` to ``most``."""

    expected: float
    least: float
    most: float


class StagePlan(msgspec.Struct, frozen=True):
    """The nodes of one stage; ``begins`` and ``ends`` are seconds from the start of the run."""

    trials: int
    nodes: int
    devices_per_trial: int  # 1 also if trials have to take turns
    begins: float
    ends: float


class Allocation(msgspec.Struct, frozen=True):
    """The nodes of a job in all of its stages, with the time and the cost that the model expects."""

    instance: Instance
    stages: tuple[StagePlan, ...]
    seconds: Range
    cost: Range


class AllocationPlan(msgspec.Struct, frozen=True):
    """What is planned for a study: an allocation for each of its jobs, which run side by side.

    ``deadline`` (seconds from the start of the run) or ``budget`` is what it was planned for; ``risk`` is how
    likely it misses that, from 0 to 1. ``method`` is what found it.
    """

    allocations: tuple[Allocation, ...]
    seconds: Range
    cost: Range
    deadline: float | None = None
    budget: float | None = None
    method: Literal["static", "dynamic", "greedy", "algorithm-2", "naive"] = "dynamic"
    risk: float = 0.0
    data_gb: float = 0.0  # that each node reads when it starts

    def nodes_at(self, now: float) -> int:
        """Return how many nodes are planned for a time, in seconds from the start of the run."""
        return sum(next((stage.nodes for stage in each.stages if now < stage.ends), 0) for each in self.allocations)

    def widened(self, factor: float) -> AllocationPlan:
        """Return the plan with ranges for units that may take ``factor`` times as long, or so many times less.

        The time until the first nodes can train does not depend on units, and the minimum is paid in any case.
        """
        lead = min((each.stages[0].begins for each in self.allocations if each.stages), default=0.0)
        minimum = sum(
            max((stage.nodes for stage in each.stages), default=0) * charge(each.instance, 0.0)
            for each in self.allocations
        )
        seconds, cost = self.seconds, self.cost
        return msgspec.structs.replace(
            self,
            seconds=Range(
                seconds.expected, lead + (seconds.least - lead) / factor, lead + (seconds.most - lead) * factor
            ),
            cost=Range(cost.expected, max(cost.least / factor, min(cost.least, minimum)), cost.most * factor),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as the journal holds it."""
        found: dict[str, Any] = msgspec.json.decode(
            msgspec.json.encode(self)
        )  # lists, as in a journal that was read
        return found

    @classmethod
    def read(cls, data: dict[str, Any]) -> AllocationPlan:
        """Return a plan of the journal."""
        return msgspec.convert(data, cls)

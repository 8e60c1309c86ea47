"""The policies that are compared, and one case with the plan of each.

"Algorithm 2" is as printed, with steps of GPUs; "whole instances" is the same search with steps of instances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.errors import DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.planner import Planner

POLICIES = ("static", "naive elastic", "algorithm 2", "whole instances", "ours")


class Case(NamedTuple):
    """One workload with the plan of each policy; None: it cannot meet the deadline."""

    name: str
    plans: dict[str, AllocationPlan | None]

    def cost(self, policy: str) -> float:
        """Return the expected cost of a policy's plan; infinite if it has none."""
        plan = self.plans[policy]
        return float("inf") if plan is None else plan.cost.expected

    def cell(self, policy: str) -> str:
        """Return the cost as the tables show it."""
        plan = self.plans[policy]
        return "-" if plan is None else f"{plan.cost.expected:.2f}"

    @property
    def gain(self) -> str:
        """How many times as much the best static cluster costs."""
        return (
            "-"
            if self.plans["static"] is None or self.plans["ours"] is None
            else f"{self.cost('static') / self.cost('ours'):.2f}"
        )


def compare(name: str, job: Job, instance: Instance, deadline: float, *, risk: float = 0.5) -> Case:
    """Return the plans for a deadline, as RubberBand models it: all wait for nodes that come, and means count."""
    planner = Planner([job], instance, risk=risk, ahead=False)
    found = {
        "static": _plan(planner.static, deadline),
        "naive elastic": _plan(planner.naive, deadline),
        "algorithm 2": _plan(planner.algorithm_2, deadline),
        "whole instances": _plan(planner.greedy, deadline),
        "ours": _plan(planner.cheapest, deadline),
    }
    case = Case(name, found)
    for policy in POLICIES:
        assert case.cost("ours") <= case.cost(policy) * (1 + 1e-9), (name, policy)
    return case


def nodes(plan: AllocationPlan) -> list[int]:
    """Return the nodes of each stage of the only job."""
    return [stage.nodes for stage in plan.allocations[0].stages]


def _plan(find: Callable[[float], AllocationPlan], deadline: float) -> AllocationPlan | None:
    try:
        return find(deadline)
    except DeadlineError:
        return None

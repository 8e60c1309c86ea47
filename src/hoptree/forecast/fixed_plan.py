"""What a study costs on a number of nodes that is fixed, from the forecast on their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.elastic.allocation import Allocation, AllocationPlan, Range, StagePlan
from hoptree.elastic.billing import charge
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.report.tables import counted, duration, money

if TYPE_CHECKING:
    from hoptree.elastic.instance import Instance
    from hoptree.forecast.forecast import Forecast


def fixed_plan(
    forecast: Forecast,
    instance: Instance,
    nodes: int,
    *,
    deadline: float | None = None,
    budget: float | None = None,
) -> AllocationPlan:
    """Return the plan for a fixed number of nodes; an error says what can be had if it misses what is asked."""
    busy = forecast.cpu_seconds / nodes
    seconds = Range(forecast.seconds, forecast.least, forecast.most)
    cost = Range(
        *(
            nodes * charge(instance, each, busy_device_seconds=busy)
            for each in (forecast.seconds, forecast.least, forecast.most)
        )
    )
    if deadline is not None and seconds.expected > deadline:
        raise DeadlineError(
            f"deadline: {duration(deadline)}; on {counted(nodes, 'node')}, and there are no more, the study takes "
            f"{duration(seconds.expected)} ({duration(seconds.least)} to {duration(seconds.most)}) and costs "
            f"{money(cost.expected)}; give more time, or a cluster that scales",
            earliest=seconds.expected,
            cost=cost.expected,
        )
    if budget is not None and cost.expected > budget:
        raise BudgetError(
            f"budget: {money(budget)}; on {counted(nodes, 'node')}, whose number is fixed, the study costs "
            f"{money(cost.expected)} ({money(cost.least)} to {money(cost.most)}); give at least that",
            least=cost.expected,
        )
    stage = StagePlan(forecast.trials, nodes, 1, 0.0, seconds.expected)
    allocation = Allocation(instance, (stage,), seconds, cost)
    return AllocationPlan((allocation,), seconds, cost, deadline=deadline, budget=budget, method="static")

"""The nodes of a study over time, from its ledger of nodes: what the plot of nodes draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from hoptree.core.node_ledger import NodeLedger
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.billing import charge
from hoptree.record.cost import plan_of, plans_of, stages_of
from hoptree.report.nodes_over_time import NodesOverTime

_POINTS = 200  # of the curve of cost, besides those at which nodes come and go


def node_timeline(ledger: NodeLedger, now: float) -> NodesOverTime | None:
    """Return the nodes over time up to ``now``; None if none was paid for."""
    plans = plans_of(ledger)
    uses = ledger.rows.uses
    if not uses or not plans:
        return None
    now = max([now, *(use.ended for use in uses if use.ended is not None)])
    lives = [(use, plan_of(plans, use), use.started, now if use.ended is None else use.ended) for use in uses]
    times = sorted(
        {now * step / _POINTS for step in range(_POINTS + 1)} | {t for *_, a, b in lives for t in (a, b)}
    )
    paid: list[tuple[float, float]] = []
    for time in times:
        total = 0.0
        for use, plan, begun, ended in lives:
            life = ended - begun
            part = min(1.0, (time - begun) / life) if life > 0 else 1.0
            if time >= begun:
                busy = part * sum(use.busy.values())
                instance = plan.allocations[0].instance
                total += charge(instance, part * life, busy_device_seconds=busy, data_gb=plan.data_gb)
        paid.append((time, total))
    made, first = plans[0]
    figures = first.cost, first.seconds
    cost, seconds = ((each.expected, each.least, each.most) for each in figures)
    return NodesOverTime(
        nodes=tuple(_steps([change for *_, a, b in lives for change in ((a, 1), (b, -1))])),
        paid=tuple(paid),
        planned=tuple(_planned(first, made.now)),
        begun=made.now,
        planned_cost=cost,
        planned_seconds=seconds,
        stages=tuple(begun for _, begun, _ in stages_of(ledger.rows.plans, now)[1:]),
    )


def _planned(plan: AllocationPlan, begun: float) -> Iterator[tuple[float, int]]:
    """Yield the steps of the planned number of nodes."""
    times = {
        0.0,
        *(end for each in plan.allocations for stage in each.stages for end in (stage.begins, stage.ends)),
    }
    for time in sorted(times):
        yield begun + time, plan.nodes_at(time)


def _steps(changes: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    order = sorted(changes)
    counts = accumulate(change for _, change in order)
    steps = dict(zip((now for now, _ in order), counts, strict=True))  # the last one of each moment
    yield 0.0, steps.pop(0.0, 0)
    yield from steps.items()

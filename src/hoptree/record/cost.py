"""What a study has cost: folded from the nodes in its journal and the terms of their provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import msgspec

from hoptree.core.node_ledger import NodeLedger, NodeUse, PlanMade
from hoptree.elastic.allocation import AllocationPlan, Range
from hoptree.elastic.billing import charge
from hoptree.elastic.instance import Instance
from hoptree.report.tables import NOTHING, count, counted, duration, money, text_table


class StageCost(msgspec.Struct, frozen=True):
    """The cost of a stage; a node's charge is divided among its stages by their time.

    ``nodes`` is the highest number at one time; ``used`` and ``idle`` are seconds of devices.
    """

    stage: int
    begun: float
    ended: float
    nodes: int
    money: float
    used: float
    idle: float


@final
class Cost(msgspec.Struct, frozen=True):
    """What a study has cost so far, by instance type and by stage; ``str`` returns tables.

    ``device_seconds`` are those of all nodes from their start to their release; in ``idle_seconds`` of them nothing
    was trained. ``seconds`` is the time of all runs, from the first plan. ``forecast`` is what was planned at
    first; None if nothing was planned. Nodes that run still count up to now.
    """

    money: float
    instances: dict[str, float]
    nodes: int
    lost: int
    seconds: float
    device_seconds: float
    idle_seconds: float
    stages: tuple[StageCost, ...] = ()
    forecast: AllocationPlan | None = None

    @property
    def used_seconds(self) -> float:
        """The seconds in which devices trained."""
        return self.device_seconds - self.idle_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary."""
        return {**msgspec.to_builtins(self), "used_seconds": self.used_seconds}

    def table(self, width: int | None = None) -> str:
        """Return the totals as a table, beside what was planned at first."""
        plan = self.forecast
        planned = [NOTHING] * 5
        if plan is not None:
            most = max(
                (plan.nodes_at(stage.begins) for each in plan.allocations for stage in each.stages), default=0
            )
            planned = [_range(plan.cost, money), _range(plan.seconds, duration), count(most), NOTHING, NOTHING]
        most = max((stage.nodes for stage in self.stages), default=0)
        lost = f", {self.lost} lost" if self.lost else ""
        idle = f" ({self.idle_seconds / self.device_seconds:.0%})" if self.device_seconds else ""
        happened = [
            money(self.money),
            duration(self.seconds),
            f"{count(most)} ({counted(self.nodes, 'start')}{lost})",
            duration(self.device_seconds),
            f"{duration(self.idle_seconds)}{idle}",
        ]
        rows = ("cost", "time", "most nodes", "time of devices", "idle")
        return text_table(["", "planned", "happened"], list(zip(rows, planned, happened, strict=True)), width=width)

    def stages_table(self, width: int | None = None) -> str:
        """Return the cost of each stage as a table."""
        rows = [
            [
                stage.stage + 1,
                duration(stage.ended - stage.begun),
                stage.nodes,
                money(stage.money),
                duration(stage.used),
                duration(stage.idle),
            ]
            for stage in self.stages
        ]
        return text_table(["stage", "time", "nodes", "cost", "training", "idle"], rows, width=width)

    def text(self, width: int | None = None) -> str:
        """Return all tables."""
        parts = [self.table(width)]
        if len(self.instances) > 1:
            rows = [[name, money(paid)] for name, paid in self.instances.items()]
            parts.append(text_table(["instance", "cost"], rows, width=width))
        if self.stages:
            parts.append(self.stages_table(width))
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def summary(self) -> str:
        """Return one line: what it has cost, and what was planned."""
        names = ", ".join(self.instances)
        planned = "" if self.forecast is None else f"; planned {_range(self.forecast.cost, money)}"
        return (
            f"{money(self.money)} for {counted(self.nodes, 'node')} ({names}) in {duration(self.seconds)}, "
            f"{duration(self.used_seconds)} of {duration(self.device_seconds)} of device time used{planned}"
        )


def study_cost(ledger: NodeLedger, now: float) -> Cost | None:
    """Return what a study has cost up to ``now``; None if no node of it was paid for."""
    rows = ledger.rows
    plans = plans_of(ledger)
    if not rows.uses or not plans:
        return None
    now = max([now, *(use.ended for use in rows.uses if use.ended is not None)])
    paid: dict[str, float] = {}
    stages = [_Stage(*span) for span in stages_of(rows.plans, now)]
    total = idle = 0.0
    for use in rows.uses:
        plan = plan_of(plans, use)
        instance = plan.allocations[0].instance
        ended = now if use.ended is None else use.ended
        seconds, busy = ended - use.started, sum(use.busy.values())
        price = charge(instance, seconds, busy_device_seconds=busy, data_gb=plan.data_gb)
        paid[instance.name] = paid.get(instance.name, 0.0) + price
        total += seconds * use.devices
        idle += max(0.0, seconds * use.devices - busy)
        for stage, share in zip(stages, _shares(stages, use, ended, instance), strict=True):
            stage.add(use, ended, share * price)
    return Cost(
        money=sum(paid.values()),
        instances=paid,
        nodes=len(rows.uses),
        lost=sum(use.lost for use in rows.uses),
        seconds=now - rows.plans[0].now,
        device_seconds=total,
        idle_seconds=idle,
        stages=tuple(stage.cost() for stage in stages),
        forecast=plans[0][1],
    )


@final
class _Stage:
    """Adds up the cost of one stage."""

    def __init__(self, stage: int, begun: float, ended: float) -> None:
        self.stage, self.begun, self.ended = stage, begun, ended
        self._money = self._used = self._devices = 0.0
        self._changes: list[tuple[float, int]] = []  # times at which nodes came and went

    def part(self, use: NodeUse, ended: float) -> tuple[float, float]:
        """Return from when to when a node was there in this stage."""
        begun = max(use.started, self.begun)
        return begun, max(begun, min(ended, self.ended))

    def add(self, use: NodeUse, ended: float, paid: float) -> None:
        """Add what was paid for a node in this stage, and its time."""
        begun, until = self.part(use, ended)
        self._money += paid
        self._used += use.busy.get(self.stage, 0.0)
        self._devices += (until - begun) * use.devices
        if until > begun:
            self._changes += [(begun, 1), (until, -1)]

    def cost(self) -> StageCost:
        """Return the sums."""
        nodes = most = 0
        for _, change in sorted(self._changes):  # at the same time, nodes leave before others come
            nodes += change
            most = max(most, nodes)
        idle = max(0.0, self._devices - self._used)
        return StageCost(self.stage, self.begun, self.ended, most, self._money, self._used, idle)


def _shares(stages: Sequence[_Stage], use: NodeUse, ended: float, instance: Instance) -> list[float]:
    """Return the share of a node's charge that belongs to each stage."""
    if instance.billing == "function":
        parts = [use.busy.get(stage.stage, 0.0) for stage in stages]
    else:
        parts = [until - begun for begun, until in (stage.part(use, ended) for stage in stages)]
    total = sum(parts)
    if total > 0:
        return [part / total for part in parts]
    last = max((number for number, stage in enumerate(stages) if stage.begun <= use.started), default=0)
    return [float(number == last) for number in range(len(stages))]


def plans_of(ledger: NodeLedger) -> list[tuple[PlanMade, AllocationPlan]]:
    """Return the plans that were made, in order."""
    return [(made, AllocationPlan.read(made.plan)) for made in ledger.rows.plans]


def stages_of(plans: Sequence[PlanMade], now: float) -> list[tuple[int, float, float]]:
    """Return each stage with its begin and end: a plan is made whenever a stage begins."""
    begun: dict[int, float] = {}
    for made in plans:
        begun.setdefault(made.stage, made.now)
    order = sorted(begun)
    ends = [*(begun[stage] for stage in order[1:]), now]
    # Nodes may come before the first plan is recorded, and go after the last entry that is known.
    found = [(stage, begun[stage], max(begun[stage], end)) for stage, end in zip(order, ends, strict=True)]
    found[0] = (found[0][0], 0.0, found[0][2])
    return found


def plan_of(plans: Sequence[tuple[PlanMade, AllocationPlan]], use: NodeUse) -> AllocationPlan:
    """Return the plan by whose terms a node is paid for: the last one that was made before it started."""
    made = [plan for each, plan in plans if each.now <= use.started] or [plans[0][1]]
    return made[-1]


def _range(figure: Range, text: object) -> str:
    assert callable(text)
    if figure.least == figure.most:
        return str(text(figure.expected))
    return f"{text(figure.expected)} ({text(figure.least)} to {text(figure.most)})"

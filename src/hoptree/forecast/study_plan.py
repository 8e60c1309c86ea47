"""What a study would cost: by the best fixed cluster and by the best elastic plan, over a range of deadlines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, final

import msgspec

from hoptree.elastic.allocation import AllocationPlan, StagePlan
from hoptree.elastic.errors import DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.planner import Planner
from hoptree.estimate import WIDE
from hoptree.report.tables import NOTHING, duration, money, percent, text_table

_DEADLINES = 6  # in the table, besides the one that was given
_SLACK = 1.02  # of the time of a plan: the deadline for which the table has it
_TOO_EARLY = 1e-6
_APART = 1.05  # deadlines in the table differ at least by this factor


@final
class PlannedNodes(msgspec.Struct, frozen=True):
    """A plan of nodes with its expected time and cost.

    ``doubt`` is the spread of the log of the time of a unit; ranges hold it besides what the plan allows for.
    """

    allocation: AllocationPlan
    doubt: float = 0.0

    @property
    def seconds(self) -> float:
        """The expected time."""
        return self.allocation.seconds.expected

    @property
    def cost(self) -> float:
        """The expected cost, in dollars."""
        return self.allocation.cost.expected

    @property
    def seconds_range(self) -> tuple[float, float]:
        """From when to when it ends, in nine of ten cases."""
        found = self._widened.seconds
        return found.least, found.most

    @property
    def cost_range(self) -> tuple[float, float]:
        """From what to what it costs, in nine of ten cases."""
        found = self._widened.cost
        return found.least, found.most

    @property
    def stages(self) -> list[StagePlan]:
        """The stages of all jobs, by their begin."""
        stages = [stage for each in self.allocation.allocations for stage in each.stages]
        return sorted(stages, key=lambda stage: (stage.begins, stage.ends))

    @property
    def nodes(self) -> str:
        """The nodes of each job by stage, such as "8, 4, 1"; equal ones that follow each other are named once."""
        jobs = (groupby(stage.nodes for stage in each.stages) for each in self.allocation.allocations)
        return " + ".join(", ".join(str(count) for count, _ in job) for job in jobs)

    @property
    def _widened(self) -> AllocationPlan:
        return self.allocation.widened(math.exp(WIDE * self.doubt))


class DeadlineChoice(msgspec.Struct, frozen=True):
    """The best fixed cluster and the best elastic plan for a deadline; None: it cannot be met so."""

    deadline: float
    static: PlannedNodes | None
    elastic: PlannedNodes | None

    @property
    def saving(self) -> float | None:
        """The share of the fixed cluster's cost that the elastic plan saves."""
        if self.static is None or self.elastic is None or not self.static.cost:
            return None
        return 1 - self.elastic.cost / self.static.cost


class FigureSource(msgspec.Struct, frozen=True):
    """Where a figure of a plan comes from."""

    figure: str
    value: str
    known: Literal["given", "measured", "assumed"]
    note: str = ""


@final
class StudyPlan(msgspec.Struct, frozen=True):
    """The plan of a study, with what else would be possible; ``str`` returns the full report.

    ``cost`` and ``seconds`` are expected; ``chosen`` has their ranges. ``static`` is the best fixed cluster that
    takes no longer, None if there is none; ``front`` are all plans of which none is both faster and cheaper than
    another, fastest first. If ``simulated``, stages come from a simulation, because a search does not know them.
    """

    study: str
    instance: Instance
    chosen: PlannedNodes
    static: PlannedNodes | None
    front: list[PlannedNodes]
    by_deadline: list[DeadlineChoice]
    sources: list[FigureSource]
    simulated: bool = False

    @property
    def cost(self) -> float:
        """The expected cost, in dollars."""
        return self.chosen.cost

    @property
    def seconds(self) -> float:
        """The expected time."""
        return self.chosen.seconds

    @property
    def stages(self) -> list[StagePlan]:
        """The nodes of each stage, with its begin and its end."""
        return self.chosen.stages

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary."""
        return {
            "study": self.study,
            "instance": msgspec.to_builtins(self.instance),
            "chosen": _figures(self.chosen),
            "static": None if self.static is None else _figures(self.static),
            "front": [_figures(each) for each in self.front],
            "by_deadline": [
                {
                    "deadline": row.deadline,
                    "static": None if row.static is None else _figures(row.static),
                    "elastic": None if row.elastic is None else _figures(row.elastic),
                }
                for row in self.by_deadline
            ],
            "stages": msgspec.to_builtins(self.stages),
            "sources": msgspec.to_builtins(self.sources),
            "simulated": self.simulated,
        }

    def table(self, width: int | None = None) -> str:
        """Return the best fixed cluster and the best elastic plan by deadline; the chosen deadline is marked."""
        given = self.chosen.allocation.deadline
        rows = []
        for row in self.by_deadline:
            saved = NOTHING if row.saving is None else percent(row.saving)
            mark = "chosen" if row.deadline == given else ""
            rows.append([duration(row.deadline), *_cells(row.static)[:2], *_cells(row.elastic), saved, mark])
        head = ["deadline", "fixed nodes", "cost", "elastic nodes", "cost", "range of cost", "saves", ""]
        return text_table(head, rows, width=width)

    def stages_table(self, width: int | None = None) -> str:
        """Return the nodes of each stage of the chosen plan as a table."""
        rows = [
            [stage.trials, stage.nodes, stage.devices_per_trial, duration(stage.begins), duration(stage.ends)]
            for stage in self.stages
        ]
        return text_table(["trials", "nodes", "devices of a trial", "begins", "ends"], rows, width=width)

    def sources_table(self, width: int | None = None) -> str:
        """Return where the figures come from as a table."""
        rows = [[each.figure, each.value, each.known, each.note] for each in self.sources]
        return text_table(["figure", "value", "source", ""], rows, width=width)

    def text(self, width: int | None = 100) -> str:
        """Return the full report as text."""
        parts = [self.table(width), f"{self.summary()}:", self.stages_table(width), self.sources_table(width)]
        if self.simulated:
            parts.append("Stages come from a simulation: this search decides them as reports come in.")
        return "\n\n".join(parts)

    def summary(self) -> str:
        """Return the chosen plan in one line."""
        least, most = self.chosen.cost_range
        first, last = self.chosen.seconds_range
        return (
            f"Chosen: {money(self.cost)} ({money(least)} to {money(most)}) on {self.instance.name} in "
            f"{duration(self.seconds)} ({duration(first)} to {duration(last)})"
        )

    def __str__(self) -> str:
        return self.text()


def plan_nodes(
    study: str,
    jobs: Sequence[Job],
    instance: Instance,
    *,
    deadline: float | None,
    budget: float | None,
    doubt: float,
    sources: Sequence[FigureSource],
    simulated: bool,
) -> StudyPlan:
    """Return the plan for a deadline or a budget, or the cheapest if neither is given.

    DeadlineError or BudgetError: there is none.
    """
    planner = Planner(jobs, instance)
    if deadline is not None:
        plan = planner.cheapest(deadline)
    elif budget is not None:
        plan = planner.fastest(budget)
    else:
        plan = planner.front()[-1]
    front = planner.front()
    limit = plan.seconds.expected * (1 + 1e-9) if deadline is None else deadline
    return StudyPlan(
        study,
        instance,
        PlannedNodes(plan, doubt),
        _static(planner, limit, doubt),
        [PlannedNodes(each, doubt) for each in front],
        list(_by_deadline(planner, front, deadline, doubt)),
        list(sources),
        simulated,
    )


def _by_deadline(
    planner: Planner, front: Sequence[AllocationPlan], deadline: float | None, doubt: float
) -> Iterator[DeadlineChoice]:
    """Yield the choices for deadlines between the fastest and the cheapest plan, and for the given one."""
    first, last = _SLACK * _earliest(planner), _SLACK * front[-1].seconds.most
    deadlines = [] if deadline is None else [deadline]
    for step in range(_DEADLINES):
        each = first * (last / first) ** (step / (_DEADLINES - 1))
        if all(max(each, other) >= _APART * min(each, other) for other in deadlines):
            deadlines.append(each)
    for each in sorted(deadlines):
        try:
            elastic = PlannedNodes(planner.cheapest(each), doubt)
        except DeadlineError:
            elastic = None
        yield DeadlineChoice(each, _static(planner, each, doubt), elastic)


def _earliest(planner: Planner) -> float:
    """Return the earliest deadline that can be met."""
    try:
        return planner.cheapest(_TOO_EARLY).seconds.most
    except DeadlineError as error:
        return error.earliest


def _static(planner: Planner, deadline: float, doubt: float) -> PlannedNodes | None:
    try:
        return PlannedNodes(planner.static(deadline), doubt)
    except DeadlineError:
        return None


def _cells(planned: PlannedNodes | None) -> list[str]:
    if planned is None:
        return ["cannot be met", NOTHING, NOTHING]
    least, most = planned.cost_range
    return [planned.nodes, money(planned.cost), f"{money(least)} to {money(most)}"]


def _figures(planned: PlannedNodes) -> dict[str, Any]:
    return {
        "method": planned.allocation.method,
        "seconds": planned.seconds,
        "seconds_range": planned.seconds_range,
        "cost": planned.cost,
        "cost_range": planned.cost_range,
        "nodes": [[stage.nodes for stage in each.stages] for each in planned.allocation.allocations],
    }

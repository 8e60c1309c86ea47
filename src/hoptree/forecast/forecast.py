"""A forecast: what a study is expected to request, train and take; and, once it has run, what happened."""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.elastic.allocation import AllocationPlan
from hoptree.forecast.profile_report import profile_table
from hoptree.record.cost import Cost
from hoptree.report import gantt
from hoptree.report.stage_tree import cut
from hoptree.report.tables import NOTHING, count, counted, duration, money, size, text_table
from hoptree.report.timeline import Timeline


class Expectation(msgspec.Struct, frozen=True):
    """The time on a number of workers that each have their own cores; the range is ``least`` to ``most``."""

    workers: int
    seconds: float
    least: float
    most: float


class Account(msgspec.Struct, frozen=True):
    """One column of figures, expected or measured; None: unknown."""

    trials: int
    epochs_asked: float
    epochs_trained: float
    epochs_reused: float  # found in the store
    merge_rate: float
    units: int
    workers: int
    seconds: float
    cpu_seconds: float
    memory: int | None
    disk: int | None
    least: float | None = None
    most: float | None = None

    def cells(self) -> list[str]:
        """Return the figures as text."""
        known = self.least is not None and self.most is not None
        return [
            count(self.trials),
            f"{self.epochs_asked:g}",
            f"{self.merge_rate:.2f}",
            f"{self.epochs_reused:g}",
            f"{self.epochs_trained:g}",
            count(self.units),
            count(self.workers),
            duration(self.seconds),
            f"{duration(self.least or 0.0)} to {duration(self.most or 0.0)}" if known and self.units else NOTHING,
            duration(self.cpu_seconds),
            NOTHING if self.memory is None else size(self.memory),
            NOTHING if self.disk is None else size(self.disk),
        ]


ROWS = (
    "trials", "epochs asked", "merge rate", "epochs found in the store", "epochs to train", "units to train",
    "workers", "time", "range of time", "CPU time", "memory for states", "disk for states",
)  # fmt: skip


@final
class Forecast(msgspec.Struct, frozen=True):
    """What is left to train, and what that is expected to take; ``str`` returns the full report.

    ``seconds`` lies between ``least`` and ``most`` in nine of ten cases. If requests depend on results (``exact``
    is False), made-up results replace future ones, and the figures are an example. ``whole`` and ``happened`` are
    set once the study has run: what all of it was expected to take, and what it took.
    """

    study: str
    left: Account
    by_workers: list[Expectation]
    basis: str
    exact: bool
    cores: int
    tree: str
    timeline: Timeline
    whole: Account | None = None
    happened: Account | None = None
    sessions: int = 0  # runs of the study so far: each starts its workers first
    platform: dict[str, str] = {}  # part of the keys of states, because bits depend on it
    pilot_seconds: float = 0.0  # of training before the forecast, if nothing like the configs was measured
    profile: list[dict[str, Any]] = []  # what was measured on one worker and on several together
    nodes: AllocationPlan | None = None  # what is left costs so much on nodes of an instance type that was given
    cost: Cost | None = None  # what the nodes of the study have cost so far

    @property
    def trials(self) -> int:
        """The number of trials."""
        return self.left.trials

    @property
    def epochs_asked(self) -> float:
        """The epochs of all trials, before sharing."""
        return self.left.epochs_asked

    @property
    def epochs_trained(self) -> float:
        """The epochs left to train, after sharing and without those in the store."""
        return self.left.epochs_trained

    @property
    def epochs_reused(self) -> float:
        """The epochs that are in the store already."""
        return self.left.epochs_reused

    @property
    def merge_rate(self) -> float:
        """Epochs asked over distinct epochs."""
        return self.left.merge_rate

    @property
    def seconds(self) -> float:
        """The expected time on ``workers`` workers."""
        return self.left.seconds

    @property
    def least(self) -> float:
        """The lower end of the range."""
        return self.left.least or 0.0

    @property
    def most(self) -> float:
        """The upper end of the range."""
        return self.left.most or 0.0

    @property
    def cpu_seconds(self) -> float:
        """The total time of all units and evaluations."""
        return self.left.cpu_seconds

    @property
    def workers(self) -> int:
        """The chosen number of workers."""
        return self.left.workers

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary."""
        figures: dict[str, Any] = msgspec.to_builtins(self)
        del figures["timeline"], figures["tree"]
        return figures

    def table(self, width: int | None = None) -> str:
        """Return the figures as a table: expected, and after a run also what happened and what is left."""
        if self.happened is None or self.whole is None:
            rows = zip(ROWS, self.left.cells(), strict=True)
            return text_table(["", "expected"], [list(row) for row in rows], width=width)
        each = zip(ROWS, self.whole.cells(), self.happened.cells(), self.left.cells(), strict=True)
        return text_table(["", "expected", "happened", "left"], [list(row) for row in each], width=width)

    def workers_table(self, width: int | None = None) -> str:
        """Return the times on 1, 2, 4 … workers as a table, with the chosen number marked."""
        rows = []
        for each in self.by_workers:
            mark = "chosen" if each.workers == self.workers else ""
            over = f"more than the {self.cores} cores here" if each.workers > self.cores else ""
            span = f"{duration(each.least)} to {duration(each.most)}"
            note = ", ".join(part for part in (mark, over) if part)
            rows.append([each.workers, duration(each.seconds), span, note])
        return text_table(["workers", "time", "range", ""], rows, width=width)

    def gantt(self, width: int = 100, *, colour: bool = True) -> str:
        """Return the expected Gantt chart as text."""
        return gantt.terminal(self.timeline, width=width, colour=colour)

    def text(self, width: int = 100, *, colour: bool = False) -> str:
        """Return the full report as text."""
        parts = [self.table(width), f"Times are estimated from {self.basis}."]
        if not self.exact:
            parts[-1] += " Requests depend on results: this is an example."
        if self.sessions > 1:
            parts[-1] += f" It was run in {count(self.sessions)} sessions, each of which starts its workers first."
        if self.platform:
            names = ", ".join(f"{name} {value}" for name, value in sorted(self.platform.items()))
            parts.append(f"Only states of this platform are reused: {names}.")
        parts += self._money(width)
        if self.left.units:
            parts += [self.workers_table(width)]
        if self.profile:
            table = profile_table(self.profile, width)
            parts += [f"Workers that train a unit together, as measured by profile:\n{table}"]
        if self.tree:
            parts += [f"What trials share:\n{cut(self.tree, width)}"]
        if self.timeline.spans:
            parts += [f"Expected on {count(self.workers)} workers:\n{self.gantt(width, colour=colour)}"]
        return "\n\n".join(parts)

    def _money(self, width: int | None) -> list[str]:
        """Return what was paid, and what is left to pay, as text."""
        parts = [] if self.cost is None else [f"Cost of its nodes so far:\n{self.cost.table(width)}"]
        if self.nodes is not None:
            [allocation], cost = self.nodes.allocations, self.nodes.cost
            instance = allocation.instance
            parts.append(
                f"On {counted(allocation.stages[0].nodes, 'node')} of {instance.name} ({instance.devices} devices, "
                f"{money(instance.price)} per hour, given), what is left costs {money(cost.expected)} "
                f"({money(cost.least)} to {money(cost.most)}). Its devices are assumed to be as fast as workers "
                "here, and the time until nodes have started is not part of it; hoptree plan has it."
            )
        return parts

    def __str__(self) -> str:
        return self.text()

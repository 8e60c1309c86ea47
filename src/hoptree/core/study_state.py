"""The state of a study: its trials and the plan.

A fold over the journal produces it, and an engine continues from it. Code that only reads needs no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, final

from hoptree.core.actions import Action, EndTrial, Report, RunUnit
from hoptree.core.events import (
    AllocationPlanned,
    DriverStarted,
    Event,
    NodeLost,
    NodeReleased,
    NodesRequested,
    NodeStarted,
    StateEvaluated,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRetried,
    TrialStopped,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.node_ledger import NodeLedger
from hoptree.core.plan import Plan
from hoptree.core.settings import Settings
from hoptree.core.steps import RunIndex, Step
from hoptree.core.trial import Trial

Request: TypeAlias = TrialAsked | TrialBranched | TrialExtended | TrialStopped | TrialRetried


@final
class StudyState:
    """Trials by number, the plan, the workers with their partitions, and the runs under way.

    ``units`` is the number of trained units, ``visits`` the partition of each unit by node and unit, in free order
    only: strict order follows from the lineage. ``dialogue`` holds the requests of searches and users and the
    reports to them, in order: it is replayed to searches when a study is resumed. ``too_large`` has the limit, and
    what was asked for in vain, by node, layout and number of workers of units that were out of memory. ``nodes``
    are the nodes that were paid for; it is empty if none were.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plan = Plan(settings.partitions, order=settings.order)
        self.trials: dict[int, Trial] = {}
        self.workers: dict[str, tuple[int, ...]] = {}
        self.runs = RunIndex()
        self.units = 0
        self._free = settings.order == "free"
        self.visits: dict[tuple[int, int], int] = {}
        self.dialogue: list[Request | Report | EndTrial] = []
        self.too_large: dict[tuple[int, str, int], tuple[int, int]] = {}
        self.nodes = NodeLedger()

    @property
    def issued(self) -> int:
        """The number of the next run."""
        return self.runs.issued

    @property
    def live(self) -> int:
        """Number of trials that have not ended."""
        return sum(trial.ending is None for trial in self.trials.values())

    def note(self, event: Event, now: float, more: bool, actions: Sequence[Action]) -> Step:
        """Record a step that an engine or a fold has applied to trials and plan; return it with its run."""
        step = self.runs.step(event, now, more, actions)
        if step.run is not None:
            if self.nodes.running and isinstance(event, (UnitFinished, StateEvaluated)):
                self.nodes.trained(step.run, event.seconds)
            if type(event) is UnitFinished:
                self.units += 1
                if self._free:
                    run = step.run
                    assert isinstance(run, RunUnit)
                    self.visits[run.node, run.unit] = run.partition
            elif type(event) is UnitFailed and event.fault == "memory" and not step.evaluating:
                run = step.run
                assert isinstance(run, RunUnit)
                self.too_large[run.node, run.layout, 1 + len(run.crew)] = event.limit, event.asked
        elif isinstance(event, WorkerJoined):
            self.workers[event.worker] = event.partitions
            self.nodes.note(event, now)
        elif isinstance(event, WorkerLost):
            self.workers.pop(event.worker, None)
        elif isinstance(event, DriverStarted):
            self.workers.clear()
            self.nodes.note(event, now)
        elif isinstance(event, (NodeStarted, NodeReleased, NodeLost, NodesRequested, AllocationPlanned)):
            self.nodes.note(event, now)
        elif isinstance(event, (TrialAsked, TrialBranched, TrialExtended, TrialStopped, TrialRetried)):
            self.dialogue.append(event)
        for action in actions:
            kind = type(action)
            if kind is Report or kind is EndTrial:
                self.dialogue.append(action)  # type: ignore[arg-type]
        return step

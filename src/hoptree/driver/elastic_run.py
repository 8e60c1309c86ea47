"""A run on nodes that come and go: state, stages, controller and backend of a study, connected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import msgspec

from hoptree.backends.protocol import ScalesNodes
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.events import (
    AllocationPlanned,
    DriverStarted,
    Event,
    NodeLost,
    NodesRequested,
    NodeStarted,
    TrialAsked,
    TrialBranched,
    TrialExtended,
)
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from hoptree.driver.study_stages import StudyStages, TrainingTimes
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.controller import NodeController, RunningNode
from hoptree.elastic.job import Job

_INTERVAL = 0.02  # of the planned time: the least time between two decisions, unless something has changed
_SHORTEST = 0.05  # seconds
_CHANGES = frozenset(
    {
        DriverStarted,
        NodeStarted,
        NodeLost,
        TrialAsked,
        TrialBranched,
        TrialExtended,
    }
)


@final
class ElasticRun:
    """Lets the controller decide whenever nodes, trials or progress change, and tells the backend.

    It is an event source, whose events record plans and requests, and an observer of steps (``see``). ``clock`` is
    the time of the run, ``times`` returns what units are expected to take by now.
    """

    def __init__(
        self,
        state: StudyState,
        stages: StudyStages,
        controller: NodeController,
        backend: ScalesNodes,
        times: Callable[[], TrainingTimes],
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._stages = stages
        self._controller = controller
        self._backend = backend
        self._times = times
        self._clock = clock
        self._due = -math.inf  # nothing was decided yet
        self._interval = _SHORTEST
        self._asked = 0
        self.plans: list[AllocationPlan] = []  # as they were made in this run

    def see(self, step: Step) -> None:
        """Note that nodes or trials have changed: an observer of the loop."""
        if type(step.event) in _CHANGES:
            self._due = -math.inf

    def pause(self) -> float:
        """Return the seconds until the next decision is due."""
        return max(0.0, self._due - self._clock())

    def poll(self) -> Sequence[Event]:
        """Decide how many nodes there are to be, and return what is to be recorded of it."""
        now = self._clock()
        ended, jobs = self._remaining()
        decision = self._controller.decide(now, jobs, self._nodes(), ended)
        events: list[Event] = []
        if decision.plan is not None:
            self.plans.append(decision.plan)
            self._interval = max(_SHORTEST, _INTERVAL * decision.plan.seconds.expected)
            plan = msgspec.structs.replace(decision.plan, data_gb=max(job.data_gb for job in jobs))
            events.append(AllocationPlanned(plan.to_dict(), ended, decision.reason))
        if decision.nodes != self._asked or decision.release:
            self._asked = decision.nodes
            self._backend.scale(decision.nodes, decision.release)
            events.append(NodesRequested(decision.nodes))
        self._due = min(now + self._interval, max(decision.until, now + _SHORTEST))
        return events

    def _remaining(self) -> tuple[int, list[Job]]:
        times = self._times()
        return self._stages.remaining(self._state, times) if self._state.trials else (0, self._stages.jobs(times))

    def _nodes(self) -> dict[str, RunningNode]:
        """Return the nodes that are paid for, with the lineages that they train."""
        ledger = self._state.nodes
        trials: dict[str, dict[str, int]] = {name: {} for name in ledger.running}
        for run in self._state.runs.under_way():
            if isinstance(run, Evaluate):
                continue
            assert isinstance(run, RunUnit)
            mine = trials.get(ledger.rows.workers.get(run.worker, ""))
            if mine is not None:
                mine[str(run.run)] = 1 + len(run.crew)
        return {
            name: RunningNode(use.devices, use.started, use.joined, trials[name], sum(use.busy.values()))
            for name, use in ledger.running.items()
        }

"""Following a plan of nodes in a session: what is asked for before workers start, and who decides later."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.backends.protocol import Backend, KeepsTime, ScalesNodes
from hoptree.core.events import AllocationPlanned, DriverStarted, Event, NodesRequested
from hoptree.core.lineage import Values
from hoptree.driver.elastic_run import ElasticRun
from hoptree.driver.elastic_settings import ElasticSettings
from hoptree.driver.fixed_nodes import FixedNodes
from hoptree.driver.study_stages import StudyStages, TrainingTimes
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.controller import NodeController
from hoptree.elastic.errors import DeadlineError
from hoptree.estimate import WIDE, Estimator
from hoptree.report.tables import duration

if TYPE_CHECKING:
    from hoptree.core.study_state import StudyState

_SLACK = 1.001  # of the earliest time that can be met
_ENOUGH = 10  # measured units from which on the noise of a run counts instead of the one known before

log = logging.getLogger("hoptree")


@final
class FollowedPlan:
    """Connects a backend with the plan of a run; ``now`` is the study's clock at this moment."""

    def __init__(
        self,
        settings: ElasticSettings,
        state: StudyState,
        estimator: Estimator,
        now: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._state = state
        self._estimator = estimator
        state.nodes.note(DriverStarted(), now)  # nodes of an earlier run are not those of this one
        self._offset = now - clock()
        self._clock = clock

    def connect(self, backend: Backend) -> tuple[list[Event], ElasticRun | None]:
        """Request the first nodes; return what is to be recorded of it, and what decides from now on."""
        settings = self._settings
        if settings.fixed is not None:
            return [AllocationPlanned(settings.fixed.to_dict(), 0, "the number of nodes is fixed")], None
        assert isinstance(backend, ScalesNodes)
        if settings.stages is None:  # nothing is left but states that were lost: one node trains them again
            backend.scale(1)
            return [NodesRequested(1)], None
        try:
            run = self._decider(backend, settings.stages, settings.deadline)
            events = run.poll()
        except DeadlineError as error:  # it could be met when the run was planned, some seconds ago
            late = self._study_clock() - self._begun + _SLACK * error.earliest
            log.warning("deadline: it cannot be met any more; the run ends after %s", duration(late))
            run = self._decider(backend, settings.stages, late)
            events = run.poll()
        return [self._with_doubt(event) for event in events], run

    @property
    def _begun(self) -> float:
        """When the run was called, by the study's clock."""
        return self._settings.asked + self._offset

    def _decider(self, backend: ScalesNodes, stages: StudyStages, deadline: float | None) -> ElasticRun:
        settings = self._settings
        controller = NodeController(settings.instance, deadline=deadline, budget=settings.budget, begun=self._begun)
        clock = (lambda: backend.now) if isinstance(backend, KeepsTime) else self._study_clock
        return ElasticRun(self._state, stages, controller, backend, self.times, clock)

    def _with_doubt(self, event: Event) -> Event:
        """Return the first plan with ranges that hold the doubt about the time of units."""
        if not isinstance(event, AllocationPlanned):
            return event
        wider = AllocationPlan.read(event.plan).widened(math.exp(WIDE * self._settings.doubt))
        return msgspec.structs.replace(event, plan=wider.to_dict())

    def wrap(self, backend: Backend) -> Backend:
        """Return the backend; on fixed nodes, with nodes for the accounts where it reports none."""
        return backend if self._settings.fixed is None else FixedNodes(backend, self._settings.instance.devices)

    def times(self) -> TrainingTimes:
        """Return the times that are expected by now: measured in this run where it has trained such values."""
        units, before = self._estimator.units, self._settings.times
        units.fit()
        noise = units.noise if before is None or units.count >= _ENOUGH else before.noise
        return TrainingTimes(self._unit, self._evaluation, noise=noise)

    def _unit(self, values: Values) -> float:
        before = self._settings.times
        is_known = self._estimator.units.seen.is_within(dict(values.constants()))
        if before is not None and not is_known:
            return before.unit(values)
        return self._estimator.units.expected(values) + self._settings.overhead

    def _evaluation(self, values: Values) -> float:
        before = self._settings.times
        evaluations = self._estimator.evaluations
        if before is None or evaluations.count:
            return self._estimator.evaluation(values)
        return before.evaluation(values)

    def _study_clock(self) -> float:
        return self._clock() + self._offset

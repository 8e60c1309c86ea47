"""Times and sizes before a study runs: learned from its journal and from similar studies, or from a pilot."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.costs import CostFormula
from hoptree.core.events import (
    DriverStarted,
    Event,
    StateEvaluated,
    TrialAsked,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.lineage import Values, history, segments
from hoptree.core.plan import Plan
from hoptree.core.settings import Settings
from hoptree.estimate import Estimator
from hoptree.estimate.encoding import encoded, spread_out
from hoptree.estimate.overheads import Overheads
from hoptree.estimate.samples import Samples
from hoptree.forecast.expected_results import ExpectedResults
from hoptree.forecast.forecast import Account
from hoptree.forecast.pilot import PilotPlan, PilotRun, look, run_pilot
from hoptree.record.record import Record
from hoptree.record.results import Savings
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.store.journal import Recorded

_TIMED_CONFIGS = 10  # configs in a pilot at most
_START = 3.0  # seconds until workers have started, if it was never measured
_OVERHEAD = 0.002  # seconds of a worker for each unit, if they were never measured
_PILOT_SPREAD = 0.06  # spread of the log of a run's time over what its pilot has promised
_EARLIER_SPREAD = 0.1  # … over what earlier runs have promised


@final
class Measured:
    """Expected times and sizes: learned from journals, completed by a pilot where nothing was measured."""

    def __init__(self) -> None:
        self._estimator = Estimator()
        self._starts: list[float] = []
        self._timed = 0
        self._studies = 0
        self._sizes = Samples()
        self._overheads = Overheads()
        self._configs = 0  # in the pilot
        self.results = ExpectedResults([])
        self.opening = 0.0  # seconds of a run before a journal begins to count, as far as they were measured
        self.closing = 0.0  # … and after its end
        self.pilot_seconds = 0.0
        self.sessions = 0  # runs of the study itself
        self.happened: Account | None = None

    # --- learning ---------------------------------------------------------------------------------------

    def learn(self, settings: Settings, journal: Sequence[Recorded], store: Store, *, own: bool) -> None:
        """Learn from the journal of a study; of the study itself (``own``), also what has happened so far."""
        estimator = Estimator(self._estimator.units, self._estimator.evaluations)
        record = Record(settings)
        joined: set[str] = set()
        workers, sessions, units, seconds, last = 0, 0, 0, 0.0, 0.0
        for step in record.replay(journal):
            estimator.watch(step)
            self._overheads.watch(step)
            last = max(last, step.now)
            match step.event:
                case DriverStarted():
                    joined.clear()
                case WorkerJoined(name):
                    if not joined and not units:
                        self._starts.append(step.now)
                    sessions += not joined
                    joined.add(name)
                    workers = max(workers, len(joined))
                case WorkerLost(name):
                    joined.discard(name)
                case UnitFinished(seconds=took) | StateEvaluated(seconds=took):
                    units += isinstance(step.event, UnitFinished)
                    seconds += took
                case _:
                    pass
        self._studies += 1
        stored = self._learn_sizes(record, store)
        if own and journal:
            self.sessions = sessions
            work = Savings.count(record.state, units, 0)
            self.happened = Account(
                trials=len(record.trials),
                epochs_asked=work.epochs_asked,
                epochs_trained=work.epochs_trained,
                epochs_reused=work.epochs_reused,
                merge_rate=work.merge_rate,
                units=units,
                workers=workers,
                seconds=last,
                cpu_seconds=seconds,
                memory=None,
                disk=stored,
            )

    def _learn_sizes(self, record: Record, store: Store) -> int:
        """Learn from the sizes of the final states in the store, and return their sum."""
        sizes = store.states.sizes()
        finals = {trial.final for trial in record.trials if trial.final is not None}
        stored = 0
        for place in sorted(finals, key=lambda place: (place.node.id, place.unit)):
            size = sizes.get(place.node.state_key(place.unit), 0)
            stored += size
            self._sizes.add(place.node.values, "", size)
        return stored

    def try_out(self, plan: PilotPlan, asked: Sequence[Event]) -> bool:
        """Run a pilot of some configs, where nothing like them was measured; return whether one was needed.

        Raise an error where a run would.
        """
        trials = [event for event in asked if isinstance(event, TrialAsked)]
        units = self._estimator.units
        units.fit()
        trials = [event for event in trials if not units.seen.is_within(dict(_first_values(event).constants()))]
        if not trials:
            return False
        began = time.perf_counter()
        found = look(plan, trials)
        if found.names is not None:
            for samples in (units, self._estimator.evaluations, self._sizes):
                samples.depend_on(found.names)
        run = run_pilot(plan, self._kinds(trials), found)
        self.learn_pilot(run, plan.studies[0].goal)
        self.pilot_seconds = time.perf_counter() - began
        return True

    def _kinds(self, trials: Sequence[TrialAsked]) -> list[list[TrialAsked]]:
        """Return trials by the values that times depend on: all kinds, or some that are far from each other."""
        kinds: dict[object, list[TrialAsked]] = {}
        for event in trials:
            values = _first_values(event)
            changing = tuple(name for name, _ in values.items if name not in values.constants())
            kinds.setdefault((self._estimator.units.reduced(values), changing), []).append(event)
        found = list(kinds.values())
        places = encoded([self._estimator.units.reduced(_first_values(kind[0])).constants() for kind in found])
        return [found[index] for index in spread_out(places, _TIMED_CONFIGS)]

    def learn_pilot(self, run: PilotRun, goal: Goal) -> None:
        """Learn from the journal of a pilot, whose units are parts of whole units."""
        units, evaluations = self._estimator.units, self._estimator.evaluations
        trained: set[Values] = set()
        losses: dict[Values, float] = {}
        first: list[tuple[Values, str, float]] = []  # first units of trials: slower, as they build and allocate
        joined = False
        for step in Record(run.settings).replay(run.entries):
            self._overheads.watch(step)
            match step.event:
                case WorkerJoined() if not joined:
                    joined = True
                    self._starts.append(step.now)
                case UnitFinished(worker=worker, seconds=seconds, size=size) if isinstance(step.run, RunUnit):
                    values = step.run.values
                    seconds *= run.data.unit_factor(values.at(0.0))
                    if step.run.unit:
                        units.add(values, worker, seconds)
                        trained.add(units.reduced(values))
                        self._timed += 1
                    else:
                        first.append((values, worker, seconds))
                    self._sizes.add(values, "", size)
                case StateEvaluated(worker=worker, metrics=metrics, seconds=seconds) if isinstance(
                    step.run, RunUnit
                ):
                    losses.setdefault(step.run.values, goal.loss(metrics))
                    evaluations.add(step.run.values, worker, seconds * run.data.evaluation_factor)
                case _:
                    pass
        for values, worker, seconds in first:
            if units.reduced(values) not in trained:
                units.add(values, worker, seconds)
                self._timed += 1
        self._configs = len(trained.union(units.reduced(values) for values, _, _ in first))
        self.results = ExpectedResults(list(losses.items()))
        self.opening, self.closing = run.opening, run.closing

    # --- expectations -----------------------------------------------------------------------------------

    @property
    def formula(self) -> CostFormula:
        """The cost formula for the engine."""
        fit = self._estimator.units.fit()
        return CostFormula(0.0) if fit is None else fit.formula

    def unit(self, values: Values) -> float:
        """Return the seconds that a worker is busy with a unit."""
        return self._estimator.units.expected(values) + self.overhead

    def evaluation(self, values: Values) -> float:
        """Return the seconds that a worker is busy with an evaluation."""
        expected = self._estimator.evaluation(values)
        return expected + (self._overheads.evaluation or 0.0) if expected else 0.0

    def cpu(self, action: RunUnit | Evaluate, plan: Plan) -> float:
        """Return the seconds of a run without overhead, as measured when it ends."""
        if isinstance(action, Evaluate):
            return self._estimator.evaluations.expected(plan.nodes[action.node].values)
        evaluation = self._estimator.evaluations.expected(action.values) if action.evaluate else 0.0
        return self._estimator.units.expected(action.values) + evaluation

    def state_bytes(self, values: Values) -> float:
        """Return the size of a state."""
        return self._sizes.expected(values)

    @property
    def start(self) -> float:
        """The seconds until workers have started."""
        return sum(self._starts) / len(self._starts) if self._starts else _START

    @property
    def overhead(self) -> float:
        """The seconds of a worker for each unit besides training."""
        return _OVERHEAD if self._overheads.unit is None else self._overheads.unit

    @property
    def noise(self) -> float:
        """The spread of the log of the time of the same unit from one run to the next."""
        return self._estimator.units.noise

    @property
    def basis(self) -> str:
        """Where the times come from, as text."""
        timed = f"a timing run of {self._configs} config{'s' if self._configs > 1 else ''}" if self._timed else ""
        units = self._estimator.units.count - self._timed
        studies = f" of {self._studies} studies" if self._studies > 1 else ""
        known = f"{units:,} measured units{studies}" if units else ""
        return " and ".join(part for part in (known, timed) if part) or "nothing: there is nothing to train"

    def _has_only_pilot(self) -> bool:
        return self._timed == self._estimator.units.count

    def doubt(self, shares: Mapping[Values, float]) -> float:
        """Return the spread of the log of the total time of some work, given the share of each set of values."""
        spread = _PILOT_SPREAD if self._has_only_pilot() else _EARLIER_SPREAD
        return math.hypot(self._estimator.units.doubt(shares), spread) if self._estimator.units.count else 0.0


def _first_values(event: TrialAsked) -> Values:
    """Return the values of a trial's first unit."""
    return segments(history(dict(event.config)), partitions=1, units=1)[0].values

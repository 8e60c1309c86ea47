"""Times and sizes before a study runs: learned from its journal and from similar studies, or from a timing run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.costs import CostFormula
from hoptree.core.errors import RefusedError
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
from hoptree.estimate.samples import Samples
from hoptree.forecast.forecast import Account
from hoptree.record.record import Record
from hoptree.record.results import Savings

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store import Store
    from hoptree.store.journal import Recorded
    from hoptree.trainers.base import Trainer

_TIMED_CONFIGS = 6  # configs in a timing run
_TIMING_SECONDS = 3.0
_START = 3.0  # seconds until workers have started, if it was never measured
_TIMING_RUN_SPREAD = 0.3  # spread of the log of a real unit's time over that of a timing run
_EARLIER_SPREAD = 0.1  # … over that of earlier units


@final
class Measured:
    """Expected times and sizes: learned from journals, completed by a timing run where nothing was measured."""

    def __init__(self) -> None:
        self._estimator = Estimator()
        self._starts: list[float] = []
        self._timed = 0
        self._studies = 0
        self._sizes = Samples()
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

    def try_out(self, trainer: Trainer, data: Dataset, asked: Sequence[Event]) -> None:
        """Train a few batches of some configs in this process, where nothing like them was measured."""
        from hoptree.trainers.timing_run import time_configs

        samples = self._estimator.units
        samples.fit()
        configs = [values for values in some_values(asked) if not samples.seen.is_within(dict(values.constants()))]
        if not configs:
            return
        found = time_configs(trainer, data, [values.at(0.0) for values in configs], seconds=_TIMING_SECONDS)
        if not found and not samples.kinds:
            self._refuse(trainer, data, configs[0])
        self._timed = len(found)
        for number, each in found.items():
            samples.add(configs[number], "", each.unit)
            self._estimator.evaluations.add(configs[number], "", each.evaluation)
            self._sizes.add(configs[number], "", each.state)

    def _refuse(self, trainer: Trainer, data: Dataset, values: Values) -> None:
        from hoptree.trainers.timing_run import pilot
        from hoptree.worker.tracebacks import user_traceback

        try:
            pilot(trainer, data, values.at(0.0))
        except Exception as error:
            raise RefusedError(
                f"no forecast is possible: no config could be trained. First error:\n{user_traceback(error)}"
            ) from None

    # --- expectations -----------------------------------------------------------------------------------

    @property
    def formula(self) -> CostFormula:
        """The cost formula for the engine."""
        fit = self._estimator.units.fit()
        return CostFormula(0.0) if fit is None else fit.formula

    def unit(self, values: Values) -> float:
        """Return the seconds that a worker is busy with a unit."""
        return self._estimator.unit(values)

    def evaluation(self, values: Values) -> float:
        """Return the seconds that a worker is busy with an evaluation."""
        return self._estimator.evaluation(values)

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
    def noise(self) -> float:
        """The spread of the log of the time of the same unit from one run to the next."""
        return self._estimator.units.noise

    @property
    def basis(self) -> str:
        """Where the times come from, as text."""
        timed = f"a timing run of {self._timed} config{'s' if self._timed > 1 else ''}" if self._timed else ""
        units = self._estimator.units.count - self._timed
        studies = f" of {self._studies} studies" if self._studies > 1 else ""
        known = f"{units:,} measured units{studies}" if units else ""
        return " and ".join(part for part in (known, timed) if part) or "nothing: there is nothing to train"

    def _has_only_timings(self) -> bool:
        return self._timed == self._estimator.units.count

    def doubt(self, shares: Mapping[Values, float]) -> float:
        """Return the spread of the log of the total time of some work, given the share of each set of values."""
        spread = _TIMING_RUN_SPREAD if self._has_only_timings() else _EARLIER_SPREAD
        return math.hypot(self._estimator.units.doubt(shares), spread) if self._estimator.units.count else 0.0


def some_values(asked: Sequence[Event]) -> list[Values]:
    """Return the initial values of some trials, spread over all of them."""
    trials = [event for event in asked if isinstance(event, TrialAsked)]
    step = max(1, -(-len(trials) // _TIMED_CONFIGS))
    return [segments(history(dict(event.config)), partitions=1, units=1)[0].values for event in trials[::step]]

"""What is known about times before a study runs: from what it and others like it did, or from a pilot."""

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

_PILOTS = 6  # configs that are tried
_PILOT_SECONDS = 3.0
_START = 3.0  # seconds until workers are there, if nobody has seen some come
_UNLIKE_PILOT = 0.3  # spread of the log of what real units take over what a pilot says
_UNLIKE_BEFORE = 0.1  # … over what earlier ones took


@final
class Measured:
    """Times and sizes to expect; learned from journals, completed by a pilot where there is nothing."""

    def __init__(self) -> None:
        self._estimator = Estimator()
        self._starts: list[float] = []
        self._pilots = 0
        self._studies = 0
        self._sizes = Samples()
        self.sessions = 0  # of the study itself
        self.happened: Account | None = None

    # --- learning ---------------------------------------------------------------------------------------

    def learn(self, settings: Settings, journal: Sequence[Recorded], store: Store, *, own: bool) -> None:
        """Take in what a study did; of one's own also how far it is."""
        estimator = Estimator(self._estimator.units, self._estimator.evaluations)
        record = Record(settings)
        here: set[str] = set()
        workers, sessions, units, seconds, last = 0, 0, 0, 0.0, 0.0
        for step in record.replay(journal):
            estimator.watch(step)
            last = max(last, step.now)
            match step.event:
                case DriverStarted():
                    here.clear()
                case WorkerJoined(name):
                    if not here and not units:
                        self._starts.append(step.now)
                    sessions += not here
                    here.add(name)
                    workers = max(workers, len(here))
                case WorkerLost(name):
                    here.discard(name)
                case UnitFinished(seconds=took) | StateEvaluated(seconds=took):
                    units += isinstance(step.event, UnitFinished)
                    seconds += took
                case _:
                    pass
        self._studies += 1
        sizes = store.states.sizes()
        finals = {trial.final for trial in record.trials if trial.final is not None}
        stored = 0
        for place in sorted(finals, key=lambda place: (place.node.id, place.unit)):
            size = sizes.get(place.node.state_key(place.unit), 0)
            stored += size
            self._sizes.add(place.node.values, "", size)
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

    def try_out(self, trainer: Trainer, data: Dataset, asked: Sequence[Event]) -> None:
        """Train a few batches of some configs in this process, where nothing like them was measured."""
        from hoptree.trainers.timing_run import pilots

        samples = self._estimator.units
        samples.fit()
        configs = [values for values in some_values(asked) if not samples.seen.is_within(dict(values.constants()))]
        if not configs:
            return
        found = pilots(trainer, data, [values.at(0.0) for values in configs], seconds=_PILOT_SECONDS)
        if not found and not samples.kinds:
            self._refuse(trainer, data, configs[0])
        self._pilots = len(found)
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
                f"nothing can be expected, since no config that was tried can be trained:\n{user_traceback(error)}"
            ) from None

    # --- what to expect ---------------------------------------------------------------------------------

    @property
    def formula(self) -> CostFormula:
        """What the engine is told about costs."""
        fit = self._estimator.units.fit()
        return CostFormula(0.0) if fit is None else fit.formula

    def unit(self, values: Values) -> float:
        """Return the seconds that a worker is busy with a unit."""
        return self._estimator.unit(values)

    def evaluation(self, values: Values) -> float:
        """Return the seconds that a worker is busy with an evaluation."""
        return self._estimator.evaluation(values)

    def cpu(self, action: RunUnit | Evaluate, plan: Plan) -> float:
        """Return the seconds that a run takes by itself, as they are counted when it has ended."""
        if isinstance(action, Evaluate):
            return self._estimator.evaluations.expected(plan.nodes[action.node].values)
        evaluation = self._estimator.evaluations.expected(action.values) if action.evaluate else 0.0
        return self._estimator.units.expected(action.values) + evaluation

    def state_bytes(self, values: Values) -> float:
        """Return the size of a state."""
        return self._sizes.expected(values)

    @property
    def start(self) -> float:
        """Seconds until workers are there."""
        return sum(self._starts) / len(self._starts) if self._starts else _START

    @property
    def basis(self) -> str:
        """Where this comes from, for people."""
        tried = f"a pilot of {self._pilots} config{'s' if self._pilots > 1 else ''}" if self._pilots else ""
        units = self._estimator.units.count - self._pilots
        studies = f" of {self._studies} studies" if self._studies > 1 else ""
        known = f"{units:,} measured units{studies}" if units else ""
        return " and ".join(part for part in (known, tried) if part) or "nothing: there is nothing to train"

    def _is_new(self) -> bool:
        return self._pilots == self._estimator.units.count

    def doubt(self, shares: Mapping[Values, float]) -> float:
        """Return the spread of the log of the time that some work takes, by how much of it has which values."""
        unlike = _UNLIKE_PILOT if self._is_new() else _UNLIKE_BEFORE
        return math.hypot(self._estimator.units.doubt(shares), unlike) if self._estimator.units.count else 0.0


def some_values(asked: Sequence[Event]) -> list[Values]:
    """Return the values with which some of the trials begin, spread over all of them."""
    trials = [event for event in asked if isinstance(event, TrialAsked)]
    step = max(1, -(-len(trials) // _PILOTS))
    return [segments(history(dict(event.config)), partitions=1, units=1)[0].values for event in trials[::step]]

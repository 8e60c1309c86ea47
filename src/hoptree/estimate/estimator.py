"""The estimator: learns what units and evaluations take while a study runs, or from what its journal tells.

It watches events and actions as they pass, so a run, a replay of a journal and a simulation teach it alike. It has
no clock: times come with the events.
"""

from __future__ import annotations

import math
from typing import Final, final

from hoptree.core.actions import Action, Evaluate, RunUnit
from hoptree.core.costs import CostFormula
from hoptree.core.events import (
    CostsLearned,
    Event,
    StateEvaluated,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerLost,
)
from hoptree.core.lineage import Values
from hoptree.estimate.regression import Fit
from hoptree.estimate.samples import Samples

WIDE: Final = 1.645  # spreads to either side that hold nine of ten cases
_HANDLING = 0.002  # seconds: what a worker does for a unit besides training it
_NEWS = math.log(1.2)  # costs that differ by less from what the engine was told are no news
_SURE = 2.0  # spreads to either side within which a unit is expected to end


@final
class Estimator:
    """Times by values; ``units`` and ``evaluations`` are learned apart, and may be shared by several estimators."""

    def __init__(self, units: Samples | None = None, evaluations: Samples | None = None) -> None:
        self.units = units or Samples()
        self.evaluations = evaluations or Samples()
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self._values: dict[int, Values] = {}  # by node
        self._limits: dict[int, float] = {}  # by run: what it may take at most, by what was known when it began
        self._told: CostFormula | None = None
        self._considered: Fit | None = None  # the last that was compared with what the engine was told

    def watch(self, event: Event, now: float, more: bool, actions: list[Action]) -> None:
        """Take in what happened and what was begun; a watch of the drive loop, or of a replay."""
        match event:
            case UnitFinished(number, worker, seconds):
                run = self._runs.get(number)
                if isinstance(run, RunUnit):
                    self.units.add(run.values, worker, seconds)
                    if not run.evaluate:
                        self._forget(number)
            case StateEvaluated(run=number, worker=worker, seconds=seconds):
                run = self._forget(number)
                if run is not None and run.node in self._values:
                    self.evaluations.add(self._values[run.node], worker, seconds)
            case UnitFailed(run=number) | UnitCancelled(run=number):
                self._forget(number)
            case WorkerLost(name):
                for number in [number for number, run in self._runs.items() if run.worker == name]:
                    self._forget(number)
            case CostsLearned(formula):
                self._told = formula
            case _:
                pass
        for action in actions:
            if isinstance(action, RunUnit):
                self._values[action.node] = action.values
                self._runs[action.run] = action
            elif isinstance(action, Evaluate):
                self._runs[action.run] = action

    def news(self) -> CostsLearned | None:
        """Return what the engine should know about costs, if that differs from what it was told."""
        fit = self.units.fit()
        if fit is None or fit is self._considered:
            return None
        self._considered = fit
        formula = fit.formula
        if self._told is not None:
            pairs = ((formula.of(kind.values), self._told.of(kind.values)) for kind in self.units.kinds)
            if all(new == old or (new and old and abs(math.log(new / old)) < _NEWS) for new, old in pairs):
                return None
        return CostsLearned(formula)

    def unit(self, values: Values) -> float:
        """Return the seconds that a worker is expected to be busy with a unit."""
        return self.units.expected(values) + _HANDLING

    def evaluation(self, values: Values) -> float:
        """Return the seconds that a worker is expected to be busy with an evaluation."""
        return self.evaluations.expected(values)

    def longest(self, action: RunUnit | Evaluate) -> float:
        """Return what a run may well take at most: unit and evaluation each; 0 while nothing is known.

        Where something about its values is new, the longest so far counts too: an effect that was never
        measured cannot be known.
        """
        if action.run in self._limits:
            return self._limits[action.run]
        values = action.values if isinstance(action, RunUnit) else self._values.get(action.node)
        kinds = [self.units] if isinstance(action, RunUnit) else []
        kinds += [self.evaluations] if isinstance(action, Evaluate) or action.evaluate else []
        most = max(_most(samples, values, action.worker) for samples in kinds)
        if action.run in self._runs:
            self._limits[action.run] = most
        return most

    def _forget(self, number: int) -> RunUnit | Evaluate | None:
        self._limits.pop(number, None)
        return self._runs.pop(number, None)


def _most(samples: Samples, values: Values | None, worker: str) -> float:
    fit = samples.fit()
    if fit is None or values is None:
        return samples.longest
    constants: dict[str, object] = dict(values.constants())
    most = fit.formula.of(values) * samples.factor(worker) * math.exp(_SURE * fit.spread(constants))
    return most if samples.seen.is_within(constants) else max(most, samples.longest)

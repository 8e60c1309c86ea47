"""The estimator: learns what units and evaluations take while a study runs, or from what its journal tells.

It watches events and actions as they pass, so a run, a replay of a journal and a simulation teach it alike. It has
no clock: times come with the events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, final

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.costs import CostFormula
from hoptree.core.events import (
    CostsLearned,
    DriverStarted,
    StateEvaluated,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerLost,
)
from hoptree.core.facts import Entry, StateEvaluatedFact, UnitFinishedFact
from hoptree.core.lineage import Values
from hoptree.core.plan import Plan
from hoptree.core.steps import Step
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
        self._values: dict[int, Values] = {}  # by node
        self._limits: dict[int, float | None] = {}  # by run under way: what it may take at most, once asked
        self._told: CostFormula | None = None
        self._considered: Fit | None = None  # the last that was compared with what the engine was told

    def watch(self, step: Step) -> None:
        """Take in what happened and what was begun; a watch of the drive loop, or of a replay."""
        run = step.run
        match step.event:
            case UnitFinished(worker=worker, seconds=seconds):
                if isinstance(run, RunUnit):
                    self.units.add(run.values, worker, seconds)
                    if not run.evaluate:
                        self._limits.pop(run.run, None)
            case StateEvaluated(worker=worker, seconds=seconds):
                if run is not None:
                    self._limits.pop(run.run, None)
                    if run.node in self._values:
                        self.evaluations.add(self._values[run.node], worker, seconds)
            case UnitFailed(run=number) | UnitCancelled(run=number):
                self._limits.pop(number, None)
            case WorkerLost() | DriverStarted():
                for each in step.lost:
                    self._limits.pop(each.run, None)
            case CostsLearned(formula):
                self._told = formula
            case _:
                pass
        for action in step.actions:
            if isinstance(action, RunUnit):
                self._values[action.node] = action.values
            if isinstance(action, (RunUnit, Evaluate)):
                self._limits[action.run] = None

    def resume(self, plan: Plan, entries: Iterable[Entry]) -> None:
        """Learn from what a journal tells of the time before a snapshot, and know what the engine was told then."""
        self._told = plan.formula
        for entry in entries:
            fact = entry.event
            if isinstance(fact, (UnitFinishedFact, StateEvaluatedFact)):
                node = plan.find(fact.at.lineage, fact.at.tree)
                if node is not None:
                    samples = self.units if isinstance(fact, UnitFinishedFact) else self.evaluations
                    samples.add(node.values, fact.worker, fact.seconds)

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
        known = self._limits.get(action.run)
        if known is not None:
            return known
        values = action.values if isinstance(action, RunUnit) else self._values.get(action.node)
        kinds = [self.units] if isinstance(action, RunUnit) else []
        kinds += [self.evaluations] if isinstance(action, Evaluate) or action.evaluate else []
        most = max(_most(samples, values, action.worker) for samples in kinds)
        if action.run in self._limits:
            self._limits[action.run] = most
        return most


def _most(samples: Samples, values: Values | None, worker: str) -> float:
    fit = samples.fit()
    if fit is None or values is None:
        return samples.longest
    constants = values.constants()
    most = fit.formula.of(values) * samples.factor(worker) * math.exp(_SURE * fit.spread(constants))
    return most if samples.seen.is_within(constants) else max(most, samples.longest)

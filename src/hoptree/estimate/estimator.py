"""The estimator: learns the times of units and evaluations while a study runs, or from its journal.

It observes steps, so a run, a replay of a journal and a simulation teach it in the same way. It has no clock:
times come with the events.
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

WIDE: Final = 1.645  # standard deviations to either side that cover nine of ten cases
_OVERHEAD = 0.002  # seconds of a worker's overhead per unit
_MIN_CHANGE = math.log(1.2)  # costs that differ by less than this from the engine's are not sent
_LIMIT_SPREADS = 2.0  # standard deviations within which a unit is expected to end


@final
class Estimator:
    """Times by values; ``units`` and ``evaluations`` are learned separately, and estimators may share them."""

    def __init__(self, units: Samples | None = None, evaluations: Samples | None = None) -> None:
        self.units = units or Samples()
        self.evaluations = evaluations or Samples()
        self._values: dict[int, Values] = {}  # by node
        self._limits: dict[int, float | None] = {}  # by running run: its longest time, once computed
        self._engine_formula: CostFormula | None = None
        self._considered: Fit | None = None  # the last one that was compared with the engine's formula

    def watch(self, step: Step) -> None:
        """Learn from a step: an observer of the drive loop, or of a replay."""
        run = step.run
        match step.event:
            case UnitFinished(worker=worker, seconds=seconds):
                if isinstance(run, RunUnit):
                    if not run.crew:  # times are those of one worker
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
                self._engine_formula = formula
            case _:
                pass
        for action in step.actions:
            if isinstance(action, RunUnit):
                self._values[action.node] = action.values
            if isinstance(action, (RunUnit, Evaluate)):
                self._limits[action.run] = None

    def resume(self, plan: Plan, entries: Iterable[Entry]) -> None:
        """Learn from journal entries before a snapshot, and note the formula that the engine had then."""
        self._engine_formula = plan.formula
        for entry in entries:
            fact = entry.event
            if isinstance(fact, (UnitFinishedFact, StateEvaluatedFact)):
                node = plan.find(fact.at.lineage, fact.at.tree)
                if node is not None:
                    samples = self.units if isinstance(fact, UnitFinishedFact) else self.evaluations
                    samples.add(node.values, fact.worker, fact.seconds)

    def news(self) -> CostsLearned | None:
        """Return the cost formula for the engine, if it differs enough from the engine's present one."""
        fit = self.units.fit()
        if fit is None or fit is self._considered:
            return None
        self._considered = fit
        formula = fit.formula
        if self._engine_formula is not None:
            pairs = ((formula.of(kind.values), self._engine_formula.of(kind.values)) for kind in self.units.kinds)
            if all(new == old or (new and old and abs(math.log(new / old)) < _MIN_CHANGE) for new, old in pairs):
                return None
        return CostsLearned(formula)

    def unit(self, values: Values) -> float:
        """Return the expected seconds that a worker is busy with a unit."""
        return self.units.expected(values) + _OVERHEAD

    def evaluation(self, values: Values) -> float:
        """Return the expected seconds that a worker is busy with an evaluation."""
        return self.evaluations.expected(values)

    def longest(self, action: RunUnit | Evaluate) -> float:
        """Return the expected longest time of a run, of unit or evaluation; 0 while nothing is known.

        If some of its values were never measured, the longest measured time is a lower limit, because an
        unmeasured effect cannot be known.
        """
        known = self._limits.get(action.run)
        if known is not None:
            return known
        values = action.values if isinstance(action, RunUnit) else self._values.get(action.node)
        kinds = [self.units] if isinstance(action, RunUnit) else []
        kinds += [self.evaluations] if isinstance(action, Evaluate) or action.evaluate else []
        most = max(_longest_time(samples, values, action.worker) for samples in kinds)
        if action.run in self._limits:
            self._limits[action.run] = most
        return most


def _longest_time(samples: Samples, values: Values | None, worker: str) -> float:
    fit = samples.fit()
    if fit is None or values is None:
        return samples.longest
    constants = values.constants()
    most = fit.formula.of(values) * samples.factor(worker) * math.exp(_LIMIT_SPREADS * fit.spread(constants))
    return most if samples.seen.is_within(constants) else max(most, samples.longest)

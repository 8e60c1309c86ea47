"""The epochs that searches may still request: most of them decide step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, final

from hoptree.core.events import USER
from hoptree.core.plan import Trial
from hoptree.progress.run_stats import RunStats
from hoptree.search.budget_estimate import BudgetEstimate


class RemainingBudget(NamedTuple):
    """Epochs that may still be requested, relative to those requested so far; a 90 % interval."""

    least: float
    expected: float
    most: float


@final
class BudgetTracker:
    """Compares the budget estimate of every study with the epochs that its trials have been granted.

    Without estimates nothing more is expected. An estimate of None means that the study cannot tell what it will
    request. Requests of users do not count.
    """

    def __init__(self, estimates: Mapping[str, BudgetEstimate | None] | None = None) -> None:
        self._estimates = dict(estimates or {})

    @property
    def known(self) -> bool:
        """Whether all searches can tell what they will request."""
        return None not in self._estimates.values()

    def is_exceeded(self, stats: RunStats) -> bool:
        """Return whether a search has requested more than its estimate, so that the rest is unknown."""
        granted = self._granted(stats)
        return any(estimate and granted[name] > max(estimate) > 0 for name, estimate in self._estimates.items())

    def remaining(self, stats: RunStats) -> RemainingBudget:
        """Return what may still be requested, as far as it is known."""
        asked = sum(map(_epochs, stats.engine.trials.values()))
        granted = self._granted(stats)
        known = [(granted[name], estimate) for name, estimate in self._estimates.items() if estimate is not None]
        if not asked or not known:
            return RemainingBudget(0.0, 0.0, 0.0)
        parts = zip(
            *([max(0.0, epochs - before) for epochs in estimate] for before, estimate in known), strict=True
        )
        return RemainingBudget(*(sum(part) / asked for part in parts))

    def _granted(self, stats: RunStats) -> Counter[str]:
        """Return the epochs that searches have granted, by study."""
        granted: Counter[str] = Counter()
        for trial in stats.engine.trials.values():
            by_user = trial.asked_by is not None and trial.asked_by[0] == USER
            granted[trial.study] += 0 if by_user else _epochs(trial)
        return granted


def _epochs(trial: Trial) -> int:
    """Return the epochs that a trial was granted, without those before it branched off another trial."""
    return trial.until - trial.history[-1].start if len(trial.history) > 1 else trial.until

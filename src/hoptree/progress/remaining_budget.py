"""What searches may still ask for, beside what has been asked for: most of them go step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, final

from hoptree.core.events import USER
from hoptree.core.plan import Trial
from hoptree.progress.run_stats import RunStats
from hoptree.search.budget_estimate import BudgetEstimate


class RemainingBudget(NamedTuple):
    """What may still be asked for, in shares of what has been asked for; nine of ten times from least to most."""

    least: float
    expected: float
    most: float


@final
class BudgetTracker:
    """Compares the outlook of every study with the epochs that its trials have been granted.

    Without outlooks nothing more is asked for. A study whose outlook is None cannot say what it will ask for.
    What users have asked for is no part of it.
    """

    def __init__(self, outlooks: Mapping[str, BudgetEstimate | None] | None = None) -> None:
        self._outlooks = dict(outlooks or {})

    @property
    def known(self) -> bool:
        """Whether all searches can say what they will ask for."""
        return None not in self._outlooks.values()

    def is_surpassed(self, tally: RunStats) -> bool:
        """Return whether a search has asked for more than it was said to: what comes is not known any more."""
        granted = self._granted(tally)
        return any(outlook and granted[name] > max(outlook) > 0 for name, outlook in self._outlooks.items())

    def unasked(self, tally: RunStats) -> RemainingBudget:
        """Return what may still come, as far as that can be said."""
        asked = sum(map(_epochs, tally.engine.trials.values()))
        granted = self._granted(tally)
        told = [(granted[name], outlook) for name, outlook in self._outlooks.items() if outlook is not None]
        if not asked or not told:
            return RemainingBudget(0.0, 0.0, 0.0)
        parts = zip(*([max(0.0, epochs - before) for epochs in outlook] for before, outlook in told), strict=True)
        return RemainingBudget(*(sum(part) / asked for part in parts))

    def _granted(self, tally: RunStats) -> Counter[str]:
        """Return by study the epochs that its searches have granted."""
        granted: Counter[str] = Counter()
        for trial in tally.engine.trials.values():
            by_user = trial.asked_by is not None and trial.asked_by[0] == USER
            granted[trial.study] += 0 if by_user else _epochs(trial)
        return granted


def _epochs(trial: Trial) -> int:
    """Return the epochs that a trial was granted; what a branch follows was granted to another."""
    return trial.until - trial.history[-1].start if len(trial.history) > 1 else trial.until

"""Results: what a study found, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.schedules import Config
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    import pandas as pd


class Savings(msgspec.Struct, frozen=True):
    """The work that trials asked for, and the work that was done."""

    epochs_asked: float
    epochs_trained: float
    epochs_shared: float
    epochs_reused: float
    merge_rate: float
    bytes_hopped: int

    def __str__(self) -> str:
        return (
            f"{self.epochs_asked:g} epochs asked, {self.epochs_trained:g} trained, {self.epochs_shared:g} shared, "
            f"{self.epochs_reused:g} reused (merge rate {self.merge_rate:.2f})"
        )


@final
class TrialResult:
    """One trial: what it was, how it ended, and its curve."""

    def __init__(
        self,
        number: int,
        config: Config,
        state: str,
        curve: dict[int, Metrics],
        error: str,
        fingerprint: Callable[[], str],
        load: Callable[[], Any],
    ) -> None:
        self.number = number
        self.config = config
        self.state = state
        self.curve = curve
        self.error = error
        self._fingerprint = fingerprint
        self._load = load

    @property
    def epochs(self) -> int:
        """How many epochs have been reported."""
        return max(self.curve, default=0)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last report."""
        return self.curve[self.epochs] if self.curve else {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the state's arrays in name order: equal fingerprints are equal weights and optimizer."""
        return self._fingerprint()

    def load(self) -> Any:
        """Return the trained model."""
        return self._load()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.config.items())
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"trial {self.number} ({values}): {self.state} after {self.epochs} epochs: {metrics or self.error}"


@final
class Results:
    """All trials of a study."""

    def __init__(self, trials: Sequence[TrialResult], goal: Goal, savings: Savings) -> None:
        self.trials = list(trials)
        self.savings = savings
        self._goal = goal

    @property
    def best(self) -> TrialResult:
        """The complete trial with the best last report; NaN and failed trials come last."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        if not complete:
            raise LookupError("no trial is complete; see trials[…].error for what went wrong")
        return min(complete, key=lambda trial: (self._goal.loss(trial.metrics), trial.number))

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame, one row per trial."""
        import pandas as pd

        rows = [
            {
                "number": trial.number,
                "state": trial.state,
                "epochs": trial.epochs,
                **{name: value if isinstance(value, int | float | str) else str(value)
                   for name, value in trial.config.items()},
                **{f"metric.{name}": value for name, value in trial.metrics.items()},
                "error": trial.error,
            }
            for trial in self.trials
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{len(self.trials)} trials: {counts}; {self.savings}"

"""Jobs: the epochs that a search has granted and that are not trained yet."""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never, final

from hoptree.core.actions import EndTrial, Report
from hoptree.search.protocol import Goal


class EndedJob(NamedTuple):
    """A job that ended: its target epoch, and the loss there; infinite for NaN and for failures."""

    trial: int
    epoch: int
    loss: float


@final
class Jobs:
    """The running jobs, at most one per trial: a job ends at its target epoch, or fails before it.

    Searches act when a job ends, not at its last report: the end follows right after that report, and the trial can
    be extended only then. ``gone`` holds the trials that failed or were stopped, by anyone and at any time: their
    states are freed, so they cannot be extended.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._until: dict[int, int] = {}
        self._losses: dict[int, float] = {}
        self.gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._until)

    def grant(self, trial: int, until: int) -> None:
        """Set the target epoch of a trial."""
        self._until[trial] = until

    def tell(self, update: Report | EndTrial) -> EndedJob | None:
        """Process a report or the end of a trial, and return the job that ended with it, if any."""
        match update:
            case Report(trial, epoch, metrics):
                if self._until.get(trial) == epoch:
                    self._losses[trial] = self._goal.loss(metrics)
                return None
            case EndTrial(trial, ending):
                loss = self._losses.pop(trial, math.inf)
                if ending != "complete":
                    self.gone.add(trial)
                    loss = math.inf
                until = self._until.pop(trial, None)
                return None if until is None else EndedJob(trial, until, loss)
            case _:
                assert_never(update)

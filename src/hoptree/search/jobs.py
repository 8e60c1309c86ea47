"""Jobs: the epochs that a search has granted and that are not trained yet."""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never, final

from hoptree.core.actions import EndTrial, Report
from hoptree.search.protocol import Goal


class EndedJob(NamedTuple):
    """A job that ended: the epoch it was to reach, and the loss there; infinite for NaN and for failures."""

    trial: int
    epoch: int
    loss: float


@final
class Jobs:
    """The jobs under way, one for a trial: it is to reach an epoch, and ends there or fails before.

    Searches act when a job ends, not at its last report: the end comes right after that report, and only then
    can the trial be extended. ``gone`` are trials that failed or were stopped, by whomever, at any time: their
    states are let go, so nothing can be granted to them again.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._until: dict[int, int] = {}
        self._losses: dict[int, float] = {}
        self.gone: set[int] = set()

    def __len__(self) -> int:
        return len(self._until)

    def grant(self, trial: int, until: int) -> None:
        """Note that a trial is to reach an epoch."""
        self._until[trial] = until

    def tell(self, news: Report | EndTrial) -> EndedJob | None:
        """Take news in, and return the job that ended with it, if one did."""
        match news:
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
                assert_never(news)

"""A source of new trials: numbers them as they start, until there are enough or the sampler has no more."""

from __future__ import annotations

from typing import final

from hoptree.search.jobs import Jobs
from hoptree.search.protocol import Sampler, Train


@final
class TrialSource:
    """Starts trials with the sampler's configs: config n is trial n of the search."""

    def __init__(self, sampler: Sampler, jobs: Jobs, trials: float, until: int, every: int) -> None:
        self._sampler = sampler
        self._jobs = jobs
        self._trials = trials
        self._until = until
        self._every = every
        self.started = 0
        self.short = False  # whether the sampler had too few configs

    def train(self) -> Train | None:
        """Start the next trial; return None if there is none."""
        if self.started >= self._trials:
            return None
        config = self._sampler.ask()
        if config is None:
            self._trials = self.started  # do not ask again
            self.short = True
            return None
        self._jobs.grant(self.started, self._until)
        self.started += 1
        return Train(config, self._until, self._every)

"""Optuna's samplers: by themselves a procedure, and a source of configs for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate, exactly
from hoptree.search.jobs import Jobs
from hoptree.search.optuna_sampler import OptunaSampler
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Decision, Goal, Sampler, Search
from hoptree.search.trial_source import TrialSource
from hoptree.search.widening import EarlierSearch, only_more


@final
class Optuna(msgspec.Struct, frozen=True):
    """Train ``trials`` configs that Optuna's sampler ``method`` proposes, for ``epochs`` each.

    Configs are asked for in batches of ``batch``; a batch is told when all of it has ended, by trial number, so
    that the same study proposes the same configs on any number of workers. Take a batch of at least as many as
    there are workers; a smaller one learns more from fewer trials. ``options`` go to Optuna's sampler.

    A batch waits for its slowest trial. With ``asynchronous`` there are always ``batch`` trials under way: as one
    ends, the sampler learns its loss and proposes the next. What it proposes then depends on the order in which
    trials end, which the journal keeps: a study that goes on proposes what it would have, but another run of the
    same study may propose other configs.

    As a sampler for another procedure, ``trials`` and ``epochs`` are left out:
    ``Hyperband(max_epochs=27, sampler=Optuna("tpe"))`` is BOHB.
    """

    method: str = "tpe"
    trials: int | None = None
    epochs: int | None = None
    every: int = 1
    batch: int = 4
    options: dict[str, Any] = {}
    asynchronous: bool = False

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        if not isinstance(self.options, dict) or not all(isinstance(name, str) for name in self.options):
            raise WorkloadError(
                f"options: {self.options!r}; expected names and values for Optuna's sampler, for example "
                "{'n_startup_trials': 5}"
            )
        if self.trials is not None:
            checks.whole("trials", self.trials, 1)
        if self.epochs is not None:
            checks.whole("epochs", self.epochs, 1)
        checks.reports(self.every)
        checks.whole("batch", self.batch, 1)
        checks.truth("asynchronous", self.asynchronous, "whether a config is proposed as each trial ends")

    def outlook(self) -> BudgetEstimate:
        """Return the epochs that it grants in all."""
        return exactly((self.trials or 0) * (self.epochs or 0))

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        if self.trials is None or self.epochs is None:
            raise WorkloadError(
                f"trials={self.trials}, epochs={self.epochs}; expected both where Optuna is the search, for "
                'example Optuna("tpe", trials=32, epochs=10); without them it can be the sampler of another one'
            )
        sampler = OptunaSampler(space, seed, self.method, self.options)
        return _Batches(self, self.trials, self.epochs, sampler, goal)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more trials."""
        only_more(self, earlier, space, "trials")
        return self.search(space, goal, seed)


@final
class _Batches:
    """Asks for a batch when the one before it has ended; asynchronous: for one trial as each ends."""

    def __init__(self, settings: Optuna, trials: int, epochs: int, sampler: Sampler, goal: Goal) -> None:
        self._batch = settings.batch
        self._asynchronous = settings.asynchronous
        self._epochs = epochs
        self._sampler = sampler
        self._jobs = Jobs(goal)
        self._supply = TrialSource(sampler, self._jobs, trials, epochs, settings.every)
        self._losses: dict[int, float] = {}

    def start(self) -> Sequence[Decision]:
        """Return the first batch."""
        return self._next()

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Take a loss in; the last one of a batch, or each, makes the next."""
        ended = self._jobs.tell(news)
        if ended is None:
            return ()
        self._losses[ended.trial] = ended.loss
        if len(self._jobs) and not self._asynchronous:
            return ()
        for trial in sorted(self._losses):
            self._sampler.tell(trial, self._epochs, self._losses[trial])
        self._losses.clear()
        return self._next()

    def _next(self) -> list[Decision]:
        decisions: list[Decision] = []
        while len(self._jobs) < self._batch and (decision := self._supply.train()) is not None:
            decisions.append(decision)
        return decisions

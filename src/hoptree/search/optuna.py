"""Optuna's samplers: a procedure of their own, and a source of configs for other procedures."""

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

    Configs are requested in batches of ``batch``. The sampler is told the losses when the whole batch has ended, by
    trial number, so the same study proposes the same configs on any number of workers. Use a batch of at least the
    number of workers; a smaller one learns more from fewer trials. ``options`` are passed to Optuna's sampler.

    A batch waits for its slowest trial. With ``asynchronous``, ``batch`` trials are always running: when one ends,
    the sampler is told its loss and proposes the next. The proposals then depend on the order in which trials end.
    The journal records that order, so a resumed study proposes the same configs, but another run of the same study
    may propose others.

    As the sampler of another procedure, leave out ``trials`` and ``epochs``:
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
        checks.boolean("asynchronous", self.asynchronous, "whether to propose a config as each trial ends")

    def budget_estimate(self) -> BudgetEstimate:
        """Return the total epochs, which are known exactly."""
        return exactly((self.trials or 0) * (self.epochs or 0))

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        if self.trials is None or self.epochs is None:
            raise WorkloadError(
                f"trials={self.trials}, epochs={self.epochs}; expected both if Optuna is the search, for example "
                'Optuna("tpe", trials=32, epochs=10); without them it can only be the sampler of another search'
            )
        sampler = OptunaSampler(space, seed, self.method, self.options)
        return _Batches(self, self.trials, self.epochs, sampler, goal)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more trials."""
        only_more(self, earlier, space, "trials")
        return self.search(space, goal, seed)


@final
class _Batches:
    """Requests a batch when the previous one has ended, or, if asynchronous, a trial whenever one ends."""

    def __init__(self, settings: Optuna, trials: int, epochs: int, sampler: Sampler, goal: Goal) -> None:
        self._batch = settings.batch
        self._asynchronous = settings.asynchronous
        self._epochs = epochs
        self._sampler = sampler
        self._jobs = Jobs(goal)
        self._source = TrialSource(sampler, self._jobs, trials, epochs, settings.every)
        self._losses: dict[int, float] = {}

    def start(self) -> Sequence[Decision]:
        """Return the first batch."""
        return self._next()

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Process a report; the end of a batch, or of each trial if asynchronous, requests the next trials."""
        ended = self._jobs.tell(update)
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
        while len(self._jobs) < self._batch and (decision := self._source.train()) is not None:
            decisions.append(decision)
        return decisions

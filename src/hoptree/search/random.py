"""Random search: draw configs from the space, and train all for the same number of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import msgspec

from hoptree.core.schedules import Config
from hoptree.search import checks
from hoptree.search.budget_estimate import AT_ONCE, BudgetEstimate
from hoptree.search.fixed import Fixed
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal, Search
from hoptree.search.sampling import make_sampler
from hoptree.search.widening import EarlierSearch, drawn_one_by_one, only_more


@final
class Random(msgspec.Struct, frozen=True):
    """Train ``trials`` configs for ``epochs`` epochs, with a report every ``every`` epochs.

    All configs are drawn at the start, independent of losses. For a sampler that learns, see ``Optuna``.
    """

    trials: int
    epochs: int
    every: int = 1
    sampler: Any = "random"

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("trials", self.trials, 1)
        checks.whole("epochs", self.epochs, 1)
        checks.reports(self.every)

    def budget_estimate(self) -> BudgetEstimate:
        """Return zero: all epochs are requested at the start."""
        return AT_ONCE

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        return Fixed(self._configs(space, seed), self.epochs, self.every)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more trials, or more epochs of each."""
        only_more(self, earlier, space, "trials", "epochs")
        drawn_one_by_one(self, earlier[-1].procedure, "trials")
        lists = [(before._configs(space, seed), before.epochs) for before, _ in earlier]
        return Fixed.grown([*lists, (self._configs(space, seed), self.epochs)], self.every)

    def _configs(self, space: Space, seed: int) -> list[Config]:
        sampler = make_sampler(self.sampler, space, seed, self.trials)
        drawn = (sampler.ask() for _ in range(self.trials))
        return [config for config in drawn if config is not None]

"""Grid search: train every combination for the same number of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from hoptree.core.schedules import Config
from hoptree.search import checks
from hoptree.search.budget_estimate import AT_ONCE, BudgetEstimate
from hoptree.search.errors import NoExtensionError, SpaceError
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Goal, Search
from hoptree.search.space import Space, countable, grid
from hoptree.search.tree import identity, parameters, size
from hoptree.search.widening import EarlierSearch, only_grown

_LARGEST = 1_000_000


@final
class Grid(msgspec.Struct, frozen=True):
    """Train every combination of the space's values for ``epochs`` epochs, with a report every ``every`` epochs."""

    epochs: int
    every: int = 1

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("epochs", self.epochs, 1)
        checks.reports(self.every)

    def budget_estimate(self) -> BudgetEstimate:
        """Return zero: all epochs are requested at the start."""
        return AT_ONCE

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        return Fixed(self._configs(space), self.epochs, self.every)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space with additional values, or for more epochs."""
        only_grown(self, earlier[-1].procedure, "epochs")
        configs = self._configs(space)
        lists = [(before._configs(was), before.epochs) for before, was in earlier]
        keys = {identity(config) for config in configs}
        for config in lists[-1][0]:
            if identity(config) not in keys:
                raise NoExtensionError(f"the config {config} was in the grid and is not in it any more")
        return Fixed.grown([*lists, (configs, self.epochs)], self.every)

    def _configs(self, space: Space) -> list[Config]:
        root = countable(space)
        total = size(root) or 0
        if total > _LARGEST:
            largest = max(parameters(root), key=lambda parameter: parameter.count or 0)
            raise SpaceError(
                f"{largest.path}: {largest.count:,} values in a grid of {total:,} configs; expected a grid of "
                f"at most {_LARGEST:,}; use fewer values, a larger step, or another search"
            )
        return list(grid(space))

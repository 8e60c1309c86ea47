"""Successive halving: train many trials for a few epochs, the best of them for more, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import msgspec

from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate, exactly
from hoptree.search.halving import Halving
from hoptree.search.outlook import Outlook, side_by_side
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal, Search
from hoptree.search.rungs import Bracket, bracket, epochs_of, rung_epochs
from hoptree.search.sampling import make_sampler
from hoptree.search.widening import EarlierSearch, higher_rungs, only_more


@final
class SuccessiveHalving(msgspec.Struct, frozen=True):
    """Train ``trials`` for ``min_epochs``, the best one in ``factor`` of them ``factor`` times as long, and so on.

    The last rung is at ``max_epochs``. A rung waits for all its trials, and the result depends only on their
    losses. Promoted trials continue from their states; the others are stopped. With ``early``, a trial continues as
    soon as it is certain to be among the best of its rung; the same trials continue, but workers wait less.

    >>> SuccessiveHalving(27, max_epochs=9).rungs
    (Rung(trials=27, epochs=1), Rung(trials=9, epochs=3), Rung(trials=3, epochs=9))
    """

    trials: int
    max_epochs: int
    min_epochs: int = 1
    factor: int = 3
    every: int = 0
    sampler: Any = "random"
    early: bool = False

    added_later: ClassVar[dict[str, Any]] = {"early": False}

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("trials", self.trials, 1)
        checks.halving(self.min_epochs, self.max_epochs, self.factor)
        checks.reports(self.every)
        checks.boolean(
            "early", self.early, "whether trials continue as soon as they are certain to be among the best"
        )
        checks.enough(self.trials, self.min_epochs, self.max_epochs, self.factor)

    @property
    def rungs(self) -> Bracket:
        """The number of trials that reach each rung."""
        return bracket(self.trials, rung_epochs(self.min_epochs, self.max_epochs, self.factor), self.factor)

    def budget_estimate(self) -> BudgetEstimate:
        """Return the total epochs, which are known exactly."""
        return exactly(epochs_of(self.rungs))

    def stages(self) -> Outlook:
        """Return its rungs, of which each waits for all trials of the one before."""
        return side_by_side([self.rungs])

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        sampler = make_sampler(self.sampler, space, seed, self.trials)
        return Halving([self.rungs], self.factor, sampler, goal, every=self.every, early=self.early)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search with additional rungs above the last."""
        only_more(self, earlier, space, "max_epochs")
        higher_rungs(self, earlier[-1].procedure)
        return self.search(space, goal, seed)

"""Hyperband: successive halving in several brackets, from many short trials to a few long ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import msgspec

from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate, exactly
from hoptree.search.halving import Halving
from hoptree.search.outlook import Outlook, one_after_the_other, side_by_side
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal, Search
from hoptree.search.rungs import Bracket, bracket, epochs_of
from hoptree.search.sampling import make_sampler
from hoptree.search.widening import EarlierSearch, drawn_one_by_one, only_more


@final
class Hyperband(msgspec.Struct, frozen=True):
    """Hedge between many short trials and few long ones, by the formulas of Hyperband's algorithm 1.

    Bracket s, from the largest s with ``max_epochs / factor**s >= min_epochs`` down to 0, starts with
    ``ceil((s_max + 1) / (s + 1) * factor**s)`` trials for ``max_epochs / factor**s`` epochs, rounded down.
    Brackets run in parallel, or one after the other if the ``sampler`` learns from losses: ``Optuna("tpe")`` makes
    this BOHB. With ``early``, a trial continues as soon as it is certain to be among the best of its rung.

    >>> [[tuple(rung) for rung in rungs] for rungs in Hyperband(max_epochs=9).brackets]
    [[(9, 1), (3, 3), (1, 9)], [(5, 3), (1, 9)], [(3, 9)]]
    """

    max_epochs: int
    min_epochs: int = 1
    factor: int = 3
    rounds: int = 1
    every: int = 0
    sampler: Any = "random"
    early: bool = False

    added_later: ClassVar[dict[str, Any]] = {"early": False}

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.halving(self.min_epochs, self.max_epochs, self.factor)
        checks.whole("rounds", self.rounds, 1)
        checks.reports(self.every)
        checks.boolean(
            "early", self.early, "whether trials continue as soon as they are certain to be among the best"
        )

    @property
    def brackets(self) -> tuple[Bracket, ...]:
        """The rungs of every bracket of a round."""
        most, factor = 0, self.factor
        while self.min_epochs * factor ** (most + 1) <= self.max_epochs:
            most += 1
        brackets = []
        for s in range(most, -1, -1):
            trials = -(-(most + 1) * factor**s // (s + 1))  # integer division, rounded up
            brackets.append(bracket(trials, [self.max_epochs // factor**i for i in range(s, -1, -1)], factor))
        return tuple(brackets)

    def budget_estimate(self) -> BudgetEstimate:
        """Return the total epochs, which are known exactly."""
        return exactly(self.rounds * sum(map(epochs_of, self.brackets)))

    def stages(self) -> Outlook:
        """Return the rungs of all brackets, which run side by side unless the sampler learns."""
        brackets = self.brackets * self.rounds
        return side_by_side(brackets) if self._together else one_after_the_other(brackets)

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        brackets = self.brackets * self.rounds
        sampler = make_sampler(self.sampler, space, seed, sum(rungs[0].trials for rungs in brackets))
        together = self._together
        return Halving(brackets, self.factor, sampler, goal, every=self.every, together=together, early=self.early)

    @property
    def _together(self) -> bool:
        return isinstance(self.sampler, str)  # a sampler that learns is asked as late as possible

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more rounds."""
        only_more(self, earlier, space, "rounds")
        drawn_one_by_one(self, earlier[-1].procedure, "rounds")
        return self.search(space, goal, seed)

"""The contract of a procedure, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.search.contract import ProcedureContract

    class TestMine(ProcedureContract):
        @pytest.fixture
        def procedure(self):
            return Mine(trials=9, epochs=4)

Every test runs the procedure's search against the real engine, in some weather and order. ``check(procedure)``
does the same without pytest.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

from hoptree.search.contract_board import Weather, play
from hoptree.search.contract_play import Play
from hoptree.search.protocol import Goal, Procedure
from hoptree.search.reading import Space
from hoptree.search.values import choice, log

LOSS = Goal("loss", maximize=False)
SCORE = Goal("score", maximize=True)


class ProcedureContract:
    """What every procedure keeps to; a subclass gives the fixture ``procedure`` and may set what is below."""

    space: ClassVar[Space] = {"lr": log(1e-4, 1.0), "width": choice(8, 16, 32)}
    """What is searched; it must be large enough for all trials."""

    synchronous = False
    """Whether decisions depend on the losses only, not on the order in which they come."""

    most_epochs: int | None = None
    """The epochs that must not be exceeded, over all trials."""

    def test_it_ends_in_calm_weather(self, procedure: Procedure) -> None:
        """All trials end, and at least one is complete."""
        done = self._play(procedure, Weather())
        assert done.complete, "no trial is complete, though nothing failed"

    def test_one_failure_changes_how_far_nobody_else_gets(self, procedure: Procedure) -> None:
        """A trial that fails is counted as the worst: whoever waits for it must not wait for ever."""
        calm = self._play(procedure, Weather())
        for trial in range(min(calm.trials, 3)):
            rough = self._play(procedure, Weather(doomed=trial))
            assert rough.longest == calm.longest, (
                f"trials reach {rough.longest} epochs when trial {trial} fails, {calm.longest} when none does; "
                "does the search wait for a Report that never comes? EndTrial comes for every trial"
            )

    def test_it_ends_in_any_weather(self, procedure: Procedure) -> None:
        """Failures, NaN, ties, stops by others, any order; what failed is never trained further (see ``Play``)."""
        for seed in range(12):
            share = (seed % 4) / 4
            weather = Weather(seed, share / 4, share, ties=seed % 2 == 0, meddling=0.1 * (seed % 3))
            self._play(procedure, weather, order=seed)

    def test_it_ends_when_everything_fails(self, procedure: Procedure) -> None:
        """No trial gets anywhere, at once or by its numbers."""
        self._play(procedure, Weather(failures=1.0))
        self._play(procedure, Weather(nans=1.0))

    def test_the_same_news_gives_the_same_decisions(self, procedure: Procedure) -> None:
        """A study goes on after a crash by telling a new search the old news."""
        done = self._play(procedure, Weather(3, failures=0.05, nans=0.1))
        again = procedure.search(self.space, LOSS, 0)
        for news, decisions in done.told:
            given = list((again.start() if news is None else again.tell(news)) or ())
            assert given == decisions, f"after {news} a fresh search decides {given}, before it was {decisions}"

    def test_randomness_comes_from_the_seed(self, procedure: Procedure) -> None:
        """Nobody else's generator has a say."""
        before = random.getstate()
        try:
            plays = []
            for seed in (1, 2):
                random.seed(seed)
                plays.append(self._play(procedure, Weather(1)).decisions)
        finally:
            random.setstate(before)
        assert plays[0] == plays[1], "decisions changed with the seed of the random module"

    def test_the_direction_is_the_goals(self, procedure: Procedure) -> None:
        """To maximize a score is to minimize what it lacks."""
        weather = Weather(2, nans=0.1)
        low, high = (self._play(procedure, weather, goal=goal).decisions for goal in (LOSS, SCORE))
        assert low == high, "maximizing decides otherwise than minimizing the negative; use goal.loss(metrics)"

    def test_the_order_of_reports_changes_nothing(self, procedure: Procedure) -> None:
        """With a synchronous search the whole study is deterministic."""
        if self.synchronous:
            for seed in range(4):
                weather = Weather(seed, failures=0.02 * seed, nans=0.1, ties=True)
                plays = [self._play(procedure, weather, order=order).by_trial for order in range(5)]
                assert all(other == plays[0] for other in plays), "the order of reports changed the decisions"

    def _play(self, procedure: Procedure, weather: Weather, *, order: int = 0, goal: Goal = LOSS) -> Play:
        done = play(procedure.search(self.space, goal, 0), goal, weather, order)
        if self.most_epochs is not None:
            assert done.epochs <= self.most_epochs, f"{done.epochs} epochs were asked for, not {self.most_epochs}"
        return done


def check(procedure: Procedure, **attributes: Any) -> None:
    """Run all tests of the contract on a procedure; attributes are those of ``ProcedureContract``."""
    contract = type("Contract", (ProcedureContract,), attributes)()
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)(procedure)

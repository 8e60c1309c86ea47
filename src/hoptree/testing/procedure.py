"""The contract of a procedure, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.testing import ProcedureContract

    class TestMine(ProcedureContract):
        @pytest.fixture
        def procedure(self):
            return Mine(trials=9, epochs=4)

Every test runs the procedure's search against the real engine, under given conditions and in a given order.
"""

from __future__ import annotations

import random
from typing import ClassVar

from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal, Procedure
from hoptree.search.value_kinds import choice, log
from hoptree.testing.search_log import SearchLog
from hoptree.testing.search_run import Conditions, run_search

LOSS = Goal("loss", maximize=False)
SCORE = Goal("score", maximize=True)


class ProcedureContract:
    """The contract of every procedure; a subclass defines ``procedure`` and may set the attributes below."""

    space: ClassVar[Space] = {"lr": log(1e-4, 1.0), "width": choice(8, 16, 32)}
    """The search space; it must be large enough for all trials."""

    synchronous = False
    """Whether decisions depend only on the losses, not on the order in which they arrive."""

    most_epochs: int | None = None
    """The epochs that must not be exceeded, over all trials."""

    def test_it_ends_without_failures(self, procedure: Procedure) -> None:
        """All trials end, and at least one is complete."""
        done = self._run(procedure, Conditions())
        assert done.complete, "no trial is complete, though nothing failed"

    def test_one_failure_changes_how_far_nobody_else_gets(self, procedure: Procedure) -> None:
        """A failed trial counts as the worst: a search must not wait for it forever."""
        undisturbed = self._run(procedure, Conditions())
        for trial in range(min(undisturbed.trials, 3)):
            reached = self._run(procedure, Conditions(failing=trial)).longest
            assert reached == undisturbed.longest, (
                f"trials reach {reached} epochs when trial {trial} fails, {undisturbed.longest} when none does; "
                "does the search wait for a Report that never comes? EndTrial comes for every trial"
            )

    def test_it_ends_under_any_conditions(self, procedure: Procedure) -> None:
        """Failures, NaN, ties, stops by users, any order; a failed trial is never extended."""
        for seed in range(12):
            share = (seed % 4) / 4
            conditions = Conditions(seed, share / 4, share, ties=seed % 2 == 0, stops=0.1 * (seed % 3))
            self._run(procedure, conditions, order=seed)

    def test_it_ends_when_everything_fails(self, procedure: Procedure) -> None:
        """All trials fail, at once or one by one."""
        self._run(procedure, Conditions(failures=1.0))
        self._run(procedure, Conditions(nans=1.0))

    def test_the_same_news_gives_the_same_decisions(self, procedure: Procedure) -> None:
        """A study resumes after a crash by replaying the messages to a new search."""
        done = self._run(procedure, Conditions(3, failures=0.05, nans=0.1))
        again = procedure.search(self.space, LOSS, 0)
        for message, decisions in done.answers:
            given = list((again.start() if message is None else again.tell(message)) or ())
            assert given == decisions, f"after {message} a fresh search decides {given}, before it was {decisions}"

    def test_trials_that_users_train_again_are_borne(self, procedure: Procedure) -> None:
        """A failed trial may later report and complete: at any time, also after the search has ended."""
        for seed in range(6):
            conditions = Conditions(seed, failures=0.2, nans=0.1, retries=0.2 * (seed % 3) + 0.01)
            done = self._run(procedure, conditions, order=seed)
            assert done.complete, "no trial is complete, though all that failed were trained again with success"

    def test_randomness_comes_from_the_seed(self, procedure: Procedure) -> None:
        """Global random generators have no influence."""
        before = random.getstate()
        try:
            runs = []
            for seed in (1, 2):
                random.seed(seed)
                runs.append(self._run(procedure, Conditions(1)).decisions)
        finally:
            random.setstate(before)
        assert runs[0] == runs[1], "decisions changed with the seed of the random module"

    def test_the_direction_is_the_goals(self, procedure: Procedure) -> None:
        """Maximizing a score equals minimizing its negative."""
        conditions = Conditions(2, nans=0.1)
        low, high = (self._run(procedure, conditions, goal=goal).decisions for goal in (LOSS, SCORE))
        assert low == high, "maximizing decides otherwise than minimizing the negative; use goal.loss(metrics)"

    def test_the_order_of_reports_changes_nothing(self, procedure: Procedure) -> None:
        """With a synchronous search the whole study is deterministic."""
        if self.synchronous:
            for seed in range(4):
                conditions = Conditions(seed, failures=0.02 * seed, nans=0.1, ties=True)
                runs = [self._run(procedure, conditions, order=order).by_trial for order in range(5)]
                assert all(other == runs[0] for other in runs), "the order of reports changed the decisions"

    def _run(self, procedure: Procedure, conditions: Conditions, *, order: int = 0, goal: Goal = LOSS) -> SearchLog:
        done = run_search(procedure.search(self.space, goal, 0), goal, conditions, order)
        if self.most_epochs is not None:
            assert done.epochs <= self.most_epochs, f"{done.epochs} epochs were asked for, not {self.most_epochs}"
        return done

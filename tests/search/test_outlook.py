"""Outlooks: what a search says of its stages, and what a play of it with made-up reports grants."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.search import (
    ASHA,
    PBT,
    Goal,
    Hyperband,
    MedianStopping,
    Optuna,
    Random,
    Stop,
    SuccessiveHalving,
    Train,
)
from hoptree.search.grid import Grid
from hoptree.search.outlook import KnowsStages, split_brackets
from hoptree.search.played_stages import Grant, play
from hoptree.search.protocol import begin
from hoptree.search.tuner import Tuner
from hoptree.search.value_kinds import choice, uniform

SPACE = {"lr": uniform(0.0, 1.0), "width": choice(8, 16, 32)}
GOAL = Goal("loss", maximize=False)


def played(procedure: object, salt: int = 0) -> list[Grant]:
    return play(Tuner(begin(procedure, SPACE, GOAL, 0)), [GOAL.metric], salt)


def waves(grants: list[Grant]) -> list[tuple[int, int]]:
    """Return by wave how many trials train, and to which epoch."""
    count = Counter((grant.wave, grant.until) for grant in grants)
    return [(trials, until) for (_, until), trials in sorted(count.items())]


@settings(max_examples=30, deadline=None)
@given(st.integers(16, 40), st.integers(2, 4), st.integers(0, 3))
def test_a_play_of_successive_halving_grants_its_rungs(trials: int, factor: int, salt: int) -> None:
    procedure = SuccessiveHalving(trials, max_epochs=8, factor=factor)
    assert isinstance(procedure, KnowsStages)
    assert procedure.stages() == [list(procedure.rungs)]
    assert waves(played(procedure, salt)) == [tuple(rung) for rung in procedure.rungs]


def test_reports_of_a_grant_are_those_that_are_due() -> None:
    grants = played(SuccessiveHalving(3, max_epochs=3, every=2))
    assert [grant.reports for grant in grants] == [(1,), (1,), (1,), (2, 3)]
    assert [(grant.begin, grant.until) for grant in grants] == [(0, 1), (0, 1), (0, 1), (1, 3)]


def test_brackets_of_hyperband_run_side_by_side() -> None:
    procedure = Hyperband(max_epochs=9)
    brackets = [list(rungs) for rungs in procedure.brackets]
    assert procedure.stages() == brackets
    assert Hyperband(max_epochs=9, rounds=2).stages() == brackets * 2
    first = [grant for grant in played(procedure) if not grant.wave]
    assert Counter(grant.until for grant in first) == {1: 9, 3: 5, 9: 3}


def test_brackets_wait_for_each_other_if_the_sampler_learns() -> None:
    procedure = Hyperband(max_epochs=9, sampler=Optuna("tpe"))
    [rungs] = procedure.stages()
    assert split_brackets(rungs) == [list(bracket) for bracket in procedure.brackets]
    assert [(trials, until) for trials, until in waves(played(procedure)) if until == 1] == [(9, 1)]
    assert max(grant.wave for grant in played(procedure)) == 5


@pytest.mark.parametrize("procedure", [Grid(epochs=4), Random(trials=5, epochs=4)])
def test_what_is_asked_for_at_once_is_one_wave(procedure: object) -> None:
    space = {"width": choice(8, 16, 32)} if isinstance(procedure, Grid) else SPACE
    grants = play(Tuner(begin(procedure, space, GOAL, 0)), [GOAL.metric])
    assert {grant.wave for grant in grants} == {0}
    assert {grant.until for grant in grants} == {4}


@pytest.mark.parametrize("mode", ["promote", "stop"])
def test_asynchronous_halving_is_played_to_its_end(mode: str) -> None:
    procedure = ASHA(27, max_epochs=9, concurrent=9, mode=mode)  # type: ignore[arg-type]
    assert not hasattr(procedure, "stages")
    grants = played(procedure)
    assert len({grant.trial for grant in grants}) == 27
    assert max(grant.until for grant in grants) == 9
    assert all(wave <= 9 for wave in Counter(grant.wave for grant in grants if not grant.begin).values())


def test_branches_begin_where_they_leave_their_source() -> None:
    grants = played(PBT(population=4, epochs=6, interval=2))
    copied = [grant for grant in grants if len(grant.history) > 1]
    assert copied
    assert all(grant.begin >= grant.history[-1].start for grant in copied)


def test_grants_end_where_a_trial_is_stopped() -> None:
    grants = played(MedianStopping(trials=16, epochs=6, startup=2))
    assert len(grants) == 16
    stopped = [grant for grant in grants if grant.until < 6]
    assert stopped
    assert all(grant.reports == tuple(range(1, grant.until + 1)) for grant in grants)


class Endless:
    """Asks for another trial whenever one ends, without end."""

    def search(self, space: object, goal: Goal, seed: int) -> Endless:
        return self

    def start(self) -> list[Train]:
        return [Train({"lr": 0.1}, 1)]

    def tell(self, update: Report | EndTrial) -> list[Train | Stop]:
        return [Train({"lr": 0.1}, 1)] if isinstance(update, EndTrial) else [Stop(update.trial)]


def test_a_search_without_end_is_played_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hoptree.search.played_stages._MOST_GRANTS", 20)
    assert len(played(Endless())) == 20

"""Hyperband: the brackets of the paper, in parallel or one after the other."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random as Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search import Hyperband, Optuna, Train
from hoptree.search.halving import Halving
from hoptree.search.rungs import epochs_of
from hoptree.search.value_kinds import uniform
from tests.search.played_search import LOSS, PlayedSearch, Table, calm, orders, shuffled, tables

SPACE = {"lr": uniform(0.0, 1.0)}
PROCEDURES = st.builds(Hyperband, st.integers(1, 30), st.just(1), st.integers(2, 4))


def search(procedure: Hyperband) -> Any:
    return procedure.search(SPACE, LOSS, 0)


def test_the_brackets_of_the_papers_example():
    expected = [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]
    assert [[tuple(rung) for rung in rungs] for rungs in Hyperband(81).brackets] == expected


@given(st.integers(1, 300), st.integers(2, 5), st.integers(1, 20))
def test_brackets_follow_algorithm_1(high, factor, low):
    low = min(low, high)
    brackets = Hyperband(high, low, factor).brackets
    most = len(brackets) - 1
    assert low * factor**most <= high < low * factor ** (most + 1)
    for s, rungs in zip(range(most, -1, -1), brackets, strict=True):
        n = math.ceil(round((most + 1) / (s + 1) * factor**s, 9))
        assert [rung.trials for rung in rungs] == [max(1, n // factor**i) for i in range(s + 1)]
        assert [rung.epochs for rung in rungs] == [high // factor ** (s - i) for i in range(s + 1)]
        assert rungs[0].epochs >= low
        # Every bracket spends about the same: B = (s_max + 1) R, a rung at a time, and less as rungs resume.
        assert epochs_of(rungs) <= sum(rung.trials * rung.epochs for rung in rungs)


@settings(max_examples=60, deadline=None)
@given(PROCEDURES, calm, orders)
def test_it_trains_the_epochs_of_the_formula(procedure, losses, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    assert played.epochs == sum(map(epochs_of, procedure.brackets))
    assert len(played.grants) == sum(rungs[0].trials for rungs in procedure.brackets)


@settings(max_examples=60, deadline=None)
@given(PROCEDURES, tables, orders)
def test_in_every_bracket_the_best_continue(procedure, losses: Table, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    first = 0
    for rungs in procedure.brackets:
        members = set(range(first, first + rungs[0].trials))
        first += rungs[0].trials
        everyone = set(members)
        for below, above in pairwise(rungs):
            ranked = sorted(losses.rank(trial, below.epochs) for trial in members)
            members = {trial for loss, trial in ranked[: above.trials] if loss < math.inf}
            assert played.reached(above.epochs) & everyone == members


@settings(max_examples=30, deadline=None)
@given(PROCEDURES, tables)
def test_the_order_of_reports_changes_nothing_within_a_bracket(procedure, losses):
    """Brackets in parallel close their rungs in any order, with the same decisions."""
    plays = shuffled(lambda: search(procedure), losses)
    assert all(sorted(map(repr, play)) == sorted(map(repr, plays[0])) for play in plays)
    assert all(play[0] == plays[0][0] for play in plays)


class Learner:
    """A sampler that records calls of ask and tell."""

    def __init__(self) -> None:
        self.story: list[Any] = []
        self.asked = 0

    def ask(self) -> Config | None:
        self.story.append("ask")
        self.asked += 1
        return {"lr": float(self.asked)}

    def tell(self, config: int, epoch: int, loss: float) -> None:
        self.story.append((config, epoch, loss))


@settings(max_examples=30, deadline=None)
@given(tables)
def test_a_sampler_receives_a_whole_bracket_before_it_proposes_the_next(losses):
    stories = []
    plays = []
    for seed in range(3):
        learner = Learner()
        halving = Halving(Hyperband(9).brackets, 3, learner, LOSS, together=False)
        plays.append(PlayedSearch(halving, losses, Generator(seed)).play().batches)
        stories.append(learner.story)
    assert plays[0] == plays[1] == plays[2]
    assert repr(stories[0]) == repr(stories[1]) == repr(stories[2])
    story = stories[0]
    assert story[:9] == ["ask"] * 9
    played = [entry for entry in story[9 : story.index("ask", 9)] if entry != "ask"]
    assert [entry[:2] for entry in played[:9]] == [(trial, 1) for trial in range(9)]


def test_with_a_sampler_that_learns_it_is_bohb():
    played = PlayedSearch(
        search(Hyperband(9, sampler=Optuna("tpe", options={"n_startup_trials": 3}))), Table(1), Generator(0)
    ).play()
    trains = [[d for d in batch if isinstance(d, Train)] for batch in played.batches]
    assert [len(batch) for batch in trains if batch] == [9, 5, 3]
    assert played.epochs == sum(map(epochs_of, Hyperband(9).brackets))


def test_rounds_repeat_the_brackets():
    played = PlayedSearch(search(Hyperband(9, rounds=2)), Table(1), Generator(0)).play()
    assert played.epochs == 2 * sum(map(epochs_of, Hyperband(9).brackets))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"factor": 1}, "factor: 1; expected a whole number, at least 2"),
        ({"min_epochs": 0}, "min_epochs: 0; expected a whole number, at least 1: a rung is at least one epoch"),
        ({"min_epochs": 82}, "min_epochs: 82 with max_epochs 81; expected min_epochs up to max_epochs"),
        ({"max_epochs": 0}, "max_epochs: 0; expected"),
        ({"rounds": 0}, "rounds: 0; expected"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        Hyperband(**{"max_epochs": 81, **settings_})

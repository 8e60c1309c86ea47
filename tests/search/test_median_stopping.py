"""Median stopping against a direct implementation of its rule."""

from __future__ import annotations

from random import Random as Generator
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.search import MedianStopping, Stop
from hoptree.search.value_kinds import uniform
from tests.search.played_search import LOSS, PlayedSearch, Table, orders, tables

SPACE = {"lr": uniform(0.0, 1.0)}

PROCEDURES = st.builds(
    lambda trials, epochs, grace, every, startup, average, concurrent: MedianStopping(
        trials, epochs, min(grace, epochs), every, startup, average, concurrent
    ),
    st.integers(1, 25),
    st.integers(1, 8),
    st.integers(0, 4),
    st.integers(1, 3),
    st.integers(1, 5),
    st.booleans(),
    st.integers(1, 8),
)


def search(procedure: MedianStopping) -> Any:
    return procedure.search(SPACE, LOSS, 0)


@settings(max_examples=200, deadline=None)
@given(PROCEDURES, tables, orders)
def test_only_trials_worse_than_the_median_are_stopped(procedure, losses: Table, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    curves: dict[int, dict[int, float]] = {}
    stopped: set[int] = set()
    for trial, epoch, value in played.reports:
        if epoch < 0:
            continue  # it failed; what it reported before still counts
        curve = curves.setdefault(trial, {})
        curve[epoch] = LOSS.loss({"loss": value})
        others = [other for number, other in curves.items() if number != trial and epoch in other]
        is_compared = procedure.grace <= epoch < procedure.epochs and len(others) >= procedure.startup
        if is_compared and min(curve.values()) > median(bar(other, epoch, procedure.average) for other in others):
            stopped.add(trial)
    assert {trial for trial, ending in played.endings.items() if ending == "stopped"} == stopped
    assert len(played.grants) == procedure.trials
    assert played.epochs <= procedure.trials * procedure.epochs
    assert played.most_running <= procedure.concurrent


def bar(curve: dict[int, float], epoch: int, average: bool) -> float:
    upto = [loss for at, loss in curve.items() if at <= epoch]
    return sum(upto) / len(upto) if average else curve[epoch]


def test_the_better_half_is_left_alone():
    played = PlayedSearch(
        search(MedianStopping(40, 6, concurrent=1)), lambda trial, _: float(trial % 20), Generator(0)
    ).play()
    assert played.endings[0] == played.endings[20] == "complete"
    assert played.endings[39] == "stopped"
    assert played.done[39] == 1


def test_those_that_were_stopped_still_count():
    """A trial in the middle goes on, no matter how many of the worse half have been stopped."""
    losses = [*range(10), *range(11, 21), *[10] * 5]
    played = PlayedSearch(
        search(MedianStopping(25, 2, startup=5, concurrent=1)), lambda trial, _: float(losses[trial]), Generator(0)
    ).play()
    assert [trial for trial, ending in played.endings.items() if ending == "stopped"][-1] == 19
    assert {played.endings[trial] for trial in range(20, 25)} == {"complete"}


def test_ties_continue():
    played = PlayedSearch(search(MedianStopping(20, 4)), lambda *_: 1.0, Generator(0)).play()
    assert set(played.endings.values()) == {"complete"}


def test_reports_of_a_shared_prefix_may_come_all_at_once():
    """A trial with cached results reports them all before it can be stopped."""
    played = search(MedianStopping(12, 3, concurrent=1))
    played.start()
    for trial in range(6):
        for epoch in (1, 2, 3):
            assert played.tell(Report(trial, epoch, {"loss": 1.0})) == []
        played.tell(EndTrial(trial, "complete"))
    first = [decision for epoch in (1, 2, 3) for decision in played.tell(Report(6, epoch, {"loss": 9.0}))]
    assert first == [Stop(6)]
    assert len(played.tell(EndTrial(6, "complete"))) == 1
    assert played.tell(EndTrial(6, "stopped")) == ()


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"every": 0}, "every: 0; expected a whole number, at least 1: trials can be stopped only at reports"),
        ({"grace": 9}, "grace: 9 of 4 epochs; expected at most 4"),
        ({"grace": -1}, "grace: -1; expected"),
        ({"startup": 0}, "startup: 0; expected"),
        ({"trials": 0}, "trials: 0; expected"),
        ({"concurrent": 0}, "concurrent: 0; expected"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        MedianStopping(**{"trials": 8, "epochs": 4, **settings_})

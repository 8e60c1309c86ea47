"""Successive halving: promotions, trained epochs, and errors."""

from __future__ import annotations

from itertools import pairwise
from random import Random as Generator
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import Values
from hoptree.forecast.simulation import simulate
from hoptree.search import Extend, Stop, SuccessiveHalving
from hoptree.search.rungs import epochs_of, rung_epochs
from hoptree.search.stable_repr import stable_text
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, uniform
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search.played_search import LOSS, PlayedSearch, Table, calm, orders, shuffled, tables

SPACE = {"lr": uniform(0.0, 1.0)}


@st.composite
def procedures(draw: st.DrawFn) -> SuccessiveHalving:
    low, factor = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    high = draw(st.integers(low, low * factor**2 + 3))
    least = factor ** (len(rung_epochs(low, high, factor)) - 1)
    return SuccessiveHalving(least + draw(st.integers(0, 12)), high, low, factor)


def search(procedure: SuccessiveHalving) -> Any:
    return procedure.search(SPACE, LOSS, 0)


@settings(max_examples=150, deadline=None)
@given(procedures(), tables, orders)
def test_the_best_of_every_rung_continue_and_no_others(procedure, losses: Table, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    members = set(range(procedure.trials))
    for below, above in pairwise(procedure.rungs):
        ranked = sorted(losses.rank(trial, below.epochs) for trial in members)
        best = {trial for loss, trial in ranked[: above.trials] if loss < float("inf")}
        assert played.reached(above.epochs) == best
        members = best
    assert {trial for trial, ending in played.endings.items() if ending == "complete"} <= members


@settings(max_examples=150, deadline=None)
@given(procedures(), tables, orders)
def test_the_same_trials_continue_if_they_do_so_early(procedure, losses: Table, order):
    early = msgspec.structs.replace(procedure, early=True)
    seed = order.random()
    one = PlayedSearch(search(procedure), losses, Generator(seed)).play()
    other = PlayedSearch(search(early), losses, Generator(seed)).play()
    for rung in procedure.rungs:
        assert one.reached(rung.epochs) == other.reached(rung.epochs)
    assert one.endings == other.endings


def test_a_trial_that_is_certain_to_continue_does_not_wait_for_the_others() -> None:
    procedure = SuccessiveHalving(4, max_epochs=4, min_epochs=1, factor=2, early=True)
    played = PlayedSearch(search(procedure), lambda trial, epoch: float(trial), Generator(0))
    played.take(played.search.start())
    for trial in (2, 0):
        played.end_one(trial)
    assert played.batches[-1] == played.batches[0]  # two of four are promoted, and two may still be better
    played.end_one(3)
    assert played.batches[-1] == [Extend(0, 2)]  # one of two is to come: only trial 0 is certain
    played.end_one(0)
    played.end_one(1)
    assert Extend(1, 2) in played.batches[-1]
    while played.running:
        played.end_one(min(played.running))
    assert played.reached(4) == {0}


def test_a_study_of_an_earlier_version_has_the_same_search() -> None:
    text = "SuccessiveHalving(trials=9, max_epochs=9, min_epochs=1, factor=3, every=0, sampler='random')"
    assert stable_text(SuccessiveHalving(9, max_epochs=9)) == text
    assert stable_text(SuccessiveHalving(9, max_epochs=9, early=True)) == text[:-1] + ", early=True)"


@settings(max_examples=100, deadline=None)
@given(procedures(), calm, orders)
def test_it_trains_the_epochs_of_the_formula(procedure, losses, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    assert played.epochs == epochs_of(procedure.rungs)
    assert [len(played.reached(rung.epochs)) for rung in procedure.rungs] == [
        rung.trials for rung in procedure.rungs
    ]
    assert {trial for trial, ending in played.endings.items() if ending == "complete"} == played.reached(
        procedure.max_epochs
    )


@settings(max_examples=60, deadline=None)
@given(procedures(), tables, orders)
def test_the_budget_is_never_exceeded(procedure, losses, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    assert played.epochs <= epochs_of(procedure.rungs)
    assert max(played.done) <= procedure.max_epochs


@settings(max_examples=60, deadline=None)
@given(procedures(), tables)
def test_the_order_of_reports_changes_nothing(procedure, losses):
    plays = shuffled(lambda: search(procedure), losses)
    assert all(play == plays[0] for play in plays)


@given(st.integers(0, 5), st.integers(2, 4), st.integers(1, 5))
def test_rungs_are_the_papers_where_the_last_is_a_power(power, factor, low):
    high = low * factor**power
    procedure = SuccessiveHalving(factor**power + 1, high, low, factor)
    expected = [((factor**power + 1) // factor**k, low * factor**k) for k in range(power + 1)]
    assert [tuple(rung) for rung in procedure.rungs] == expected


def test_the_study_of_the_stage_tree_paper():
    procedure = SuccessiveHalving(448, max_epochs=120, min_epochs=15, factor=4)
    assert [tuple(rung) for rung in procedure.rungs] == [(448, 15), (112, 60), (28, 120)]


def test_all_ties_go_to_the_lower_numbers():
    played = PlayedSearch(search(SuccessiveHalving(9, 9)), lambda *_: 1.0, Generator(5)).play()
    assert [played.reached(epoch) for epoch in (1, 3, 9)] == [set(range(9)), {0, 1, 2}, {0}]


def test_stopped_trials_release_their_states_when_the_rung_closes():
    played = PlayedSearch(search(SuccessiveHalving(3, 3)), lambda trial, _: float(trial), Generator(0)).play()
    assert played.batches[1][1:] == [Stop(1), Stop(2)]


def test_a_smaller_space_makes_a_smaller_bracket():
    procedure = SuccessiveHalving(27, max_epochs=9)
    played = PlayedSearch(
        procedure.search({"width": choice(*range(7))}, LOSS, 0), lambda t, _: float(t), Generator(0)
    ).play()
    assert [len(played.reached(epoch)) for epoch in (1, 3, 9)] == [7, 2, 1]


@settings(max_examples=20, deadline=None)
@given(procedures(), st.integers(1, 3), st.integers(0, 9))
def test_rungs_resume_and_never_retrain(procedure, partitions, seed):
    assume(procedure.trials <= 40)
    landscape = Landscape(lambda _: 1.0, lambda values, epoch, key: {"loss": share(seed, key) / epoch})
    result = simulate(
        Workload(partitions=partitions),
        Cluster(workers=2),
        search=search(procedure),
        landscape=landscape,
        check=True,
    )
    assert result.units == epochs_of(procedure.rungs) * partitions


def test_trials_with_a_common_prefix_share_their_first_rungs():
    from hoptree.core.schedules import multistep

    rates = [multistep(0.1, at=[milestone], gamma=0.1) for milestone in range(1, 10)]

    def metrics(values: Values, epoch: int, key: str) -> dict[str, float]:
        return {"loss": 1 / epoch}

    result = simulate(
        Workload(partitions=2),
        Cluster(workers=2),
        search=SuccessiveHalving(9, max_epochs=9).search({"lr": choice(*rates)}, LOSS, 0),
        landscape=Landscape(lambda _: 1.0, metrics),
        check=True,
    )
    assert result.units < epochs_of(SuccessiveHalving(9, max_epochs=9).rungs) * 2
    assert result.work.merge_rate > 1


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"min_epochs": 0.5}, "min_epochs: 0.5; expected a whole number, at least 1: a rung is at least one epoch"),
        ({"min_epochs": 0}, "min_epochs: 0; .* a rung is at least one epoch"),
        ({"factor": 1}, "factor: 1; expected a whole number, at least 2: a rung keeps one in so many"),
        ({"factor": 2.5}, "factor: 2.5; expected a whole number"),
        ({"min_epochs": 10}, "min_epochs: 10 with max_epochs 9; expected min_epochs up to max_epochs"),
        ({"trials": 8}, "trials: 8; expected at least 9, so that one trial reaches 9 epochs; use more trials"),
        ({"trials": 0}, "trials: 0; expected"),
        ({"every": -1}, "every: -1; expected"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        SuccessiveHalving(**{"trials": 27, "max_epochs": 9, **settings_})

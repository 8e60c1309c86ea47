"""Random search: the number of configs and epochs is fixed, and the seed decides the configs."""

from __future__ import annotations

from random import Random as Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hoptree as ht
from hoptree.core.errors import WorkloadError
from hoptree.search import Random, Train
from hoptree.search.value_kinds import choice, uniform
from tests.search.played_search import LOSS, PlayedSearch, shuffled, tables

SPACE = {"lr": uniform(0.0, 1.0), "width": choice(8, 16)}


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 3), tables, st.integers(0, 99))
def test_every_config_is_trained_for_the_same_epochs(trials, epochs, every, losses, seed):
    search = Random(trials, epochs, every).search(SPACE, LOSS, seed)
    played = PlayedSearch(search, losses, Generator(seed)).play()
    assert played.grants == [[epochs]] * trials
    assert played.epochs <= trials * epochs
    assert played.every == [every] * trials


def test_the_order_of_reports_changes_nothing():
    plays = shuffled(lambda: Random(8, 3).search(SPACE, LOSS, 0), lambda trial, epoch: float(trial))
    assert all(play == plays[0] for play in plays)


def test_the_seed_decides():
    def configs(seed: int) -> list[object]:
        decisions = Random(5, 2).search(SPACE, LOSS, seed).start()
        return [decision.config for decision in decisions if isinstance(decision, Train)]

    assert configs(1) == configs(1)
    assert configs(1) != configs(2)


def test_a_space_that_runs_out_gives_fewer_trials():
    played = PlayedSearch(
        Random(9, 1).search({"width": choice(1, 2, 3)}, LOSS, 0), lambda *_: 0.0, Generator(0)
    ).play()
    assert sorted(config["width"] for config in played.configs) == [1, 2, 3]


@pytest.mark.parametrize("sampler", ["random", "sobol", "latin-hypercube"])
def test_any_sampler_can_be_the_source(sampler):
    played = PlayedSearch(Random(8, 1, sampler=sampler).search(SPACE, LOSS, 0), lambda *_: 0.0, Generator(0)).play()
    assert len({config["lr"] for config in played.configs}) == 8


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"trials": 0, "epochs": 1}, "trials: 0; expected a whole number, at least 1"),
        ({"trials": 2.5, "epochs": 1}, "trials: 2.5; expected a whole number"),
        ({"trials": True, "epochs": 1}, "trials: True; expected a whole number"),
        ({"trials": 1, "epochs": 0}, "epochs: 0; expected a whole number, at least 1"),
        ({"trials": 1, "epochs": 1, "every": -1}, "every: -1; expected a whole number, at least 0"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        Random(**settings_)


def test_a_sampler_that_is_not_known_is_refused():
    with pytest.raises(ht.HoptreeError, match="sampler: 'best'"):
        Random(3, 1, sampler="best").search(SPACE, LOSS, 0)

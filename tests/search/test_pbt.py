"""Population based training: who is replaced, by whom, and with which configs."""

from __future__ import annotations

import math
from random import Random as Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.forecast.simulation import simulate
from hoptree.search import PBT, Branch, Extend, Stop
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, uniform
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search.played_search import LOSS, PlayedSearch, Table, calm, orders, shuffled, tables

SPACE = {"lr": uniform(0.01, 1.0), "width": choice(8, 16, 32)}

PROCEDURES = st.builds(
    lambda population, epochs, interval, quantile: PBT(population, epochs, min(interval, epochs), quantile),
    st.integers(2, 12),
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from([0.1, 0.2, 0.25, 0.5]),
)


def search(procedure: PBT) -> Any:
    return procedure.search(SPACE, LOSS, 0)


@settings(max_examples=150, deadline=None)
@given(PROCEDURES, calm, orders)
def test_the_population_and_the_epochs_are_as_asked(procedure, losses, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    assert played.epochs == procedure.population * procedure.epochs
    assert sum(ending == "complete" for ending in played.endings.values()) == procedure.population
    assert played.most_running == procedure.population


@settings(max_examples=150, deadline=None)
@given(PROCEDURES, tables, orders)
def test_the_worst_trials_continue_from_the_best(procedure, losses: Table, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    members = set(range(procedure.population))
    count = max(1, int(procedure.population * procedure.quantile))
    at = 0
    for batch in played.batches[1:]:
        at = min(at + procedure.interval, procedure.epochs)
        ranked = sorted(losses_of(played, losses, trial, at) for trial in members)
        sound = [trial for loss, trial in ranked if loss < math.inf]
        best = set(sound[:count])
        branches = [decision for decision in batch if isinstance(decision, Branch)]
        extended = {decision.trial for decision in batch if isinstance(decision, Extend)}
        replaced = members - extended
        if not sound:
            assert not branches
            assert not extended
            break
        assert len(branches) == len(replaced)
        assert {branch.source for branch in branches} <= best
        assert not best & replaced
        lost = members - set(sound)
        assert lost <= replaced
        worst = [trial for _, trial in ranked[len(ranked) - len(replaced) :]]
        assert set(worst) == replaced
        assert len(replaced) == max(len(lost), min(count, len(members) - len(best)))
        started = sum(isinstance(d, Branch) for b in played.batches[: played.batches.index(batch)] for d in b)
        first = procedure.population + started
        members = extended | set(range(first, first + len(branches)))
    assert played.epochs <= procedure.population * procedure.epochs


def losses_of(played: PlayedSearch, losses: Table, trial: int, at: int) -> tuple[float, int]:
    """Return a member's rank; a failed trial is last."""
    begun = played.begun[trial]
    if any(losses(trial, epoch) is None for epoch in range(begun + 1, at + 1)):
        return math.inf, trial
    return LOSS.loss({"loss": losses(trial, at) or 0.0}), trial


@settings(max_examples=60, deadline=None)
@given(PROCEDURES, tables)
def test_the_order_of_reports_changes_nothing(procedure, losses):
    plays = shuffled(lambda: search(procedure), losses)
    assert all(play == plays[0] for play in plays)


def test_branches_come_before_extensions_and_stops():
    played = PlayedSearch(search(PBT(4, 2, 1)), lambda trial, _: float(trial), Generator(0)).play()
    kinds = [type(decision) for decision in played.batches[1]]
    assert kinds == [Branch, Extend, Extend, Extend, Stop]


def test_on_the_engine_a_branch_continues_from_the_state():
    landscape = Landscape(lambda _: 1.0, lambda values, epoch, key: {"loss": share(key, epoch)})
    result = simulate(
        Workload(partitions=3), Cluster(workers=2), search=search(PBT(6, 8, 2)), landscape=landscape, check=True
    )
    assert result.units <= 6 * 8 * 3
    assert len(result.engine.trials) == 6 + 3  # one of six is replaced, three times
    assert sum(trial.ending == "complete" for trial in result.engine.trials.values()) == 6


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"population": 1}, "population: 1; expected a whole number, at least 2: a single member has no other"),
        ({"interval": 0}, "interval: 0; expected a whole number, at least 1"),
        ({"interval": 11}, "interval: 11; expected at most the 10 epochs of a member"),
        ({"quantile": 0.6}, "quantile: 0.6; expected a number from 0.01 to 0.5: best and worst must not overlap"),
        ({"quantile": 0}, "quantile: 0; expected"),
        ({"resample": 2}, "resample: 2; expected a number from 0 to 1"),
        ({"factors": ()}, r"factors: \(\); expected numbers above 0"),
        ({"factors": (0.8, 0)}, "factors: .* expected numbers above 0"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        PBT(**{"population": 8, "epochs": 10, "interval": 2, **settings_})


def test_a_space_of_one_config_has_no_population():
    with pytest.raises(
        WorkloadError, match="population: 4, but the space has 1 configs; expected a space of at least 2"
    ):
        PBT(4, 4, 1).search({"lr": choice(0.1, 0.1)}, LOSS, 0)


def test_a_name_that_is_not_searched_cannot_change():
    with pytest.raises(HoptreeError, match="change: 'rate' is not searched; expected some of lr, width"):
        search(PBT(4, 4, 1, change=["rate"]))


@settings(max_examples=60, deadline=None)
@given(PROCEDURES, tables, orders)
def test_no_trial_is_the_same_as_another(procedure, losses, order):
    """The same config from the same state would train to the same bits: it would be a wasted member."""
    played = PlayedSearch(search(procedure), losses, order).play()
    for batch in played.batches[1:]:
        begun = [(d.source, sorted(d.config.items())) for d in batch if isinstance(d, Branch)]
        going_on = [(d.trial, sorted(played.configs[d.trial].items())) for d in batch if isinstance(d, Extend)]
        assert all((begun + going_on).count(each) == 1 for each in begun)

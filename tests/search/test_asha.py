"""ASHA, decision by decision, against a slow implementation of the paper's algorithm."""

from __future__ import annotations

import math
from random import Random as Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.forecast.simulation import simulate
from hoptree.search import ASHA, Decision, Extend, Random, Stop, Train
from hoptree.search.budget_estimate import total_budget_estimate
from hoptree.search.errors import NoExtensionError
from hoptree.search.rungs import rung_epochs
from hoptree.search.streams import share
from hoptree.search.value_kinds import choice, uniform
from hoptree.search.widening import EarlierSearch
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search.played_search import LOSS, PlayedSearch, Table, orders, tables

SPACE = {"lr": uniform(0.0, 1.0)}


@st.composite
def procedures(draw: st.DrawFn, mode: str) -> ASHA:
    low, factor = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    high = draw(st.integers(low, low * factor**2 + 2))
    least = factor ** (len(rung_epochs(low, high, factor)) - 1)
    trials = least + draw(st.integers(0, 25))
    return ASHA(trials, high, low, factor, mode=mode, concurrent=draw(st.integers(1, 8)))  # type: ignore[arg-type]


def search(procedure: ASHA) -> Any:
    return procedure.search(SPACE, LOSS, 0)


class Textbook:
    """Algorithm 2 of the paper: ``get_job`` searches all rungs whenever a job has ended."""

    def __init__(self, procedure: ASHA) -> None:
        self.procedure = procedure
        self.epochs = rung_epochs(procedure.min_epochs, procedure.max_epochs, procedure.factor)
        self.rungs: list[dict[int, float]] = [{} for _ in self.epochs]
        self.promoted: list[set[int]] = [set() for _ in self.epochs]
        self.level: dict[int, int] = {}
        self.under_way = 0

    def fill(self) -> list[Decision]:
        jobs: list[Decision] = []
        while self.under_way < self.procedure.concurrent and (job := self.get_job()) is not None:
            jobs.append(job)
            self.under_way += 1
        return jobs

    def get_job(self) -> Decision | None:
        factor = self.procedure.factor
        for k in range(len(self.epochs) - 2, -1, -1):
            rung = self.rungs[k]
            ranked = sorted((loss, trial) for trial, loss in rung.items())
            for loss, trial in ranked[: len(rung) // factor]:
                if trial not in self.promoted[k] and loss < math.inf:
                    self.promoted[k].add(trial)
                    self.level[trial] = k + 1
                    return Extend(trial, self.epochs[k + 1])
        if len(self.level) < self.procedure.trials:
            self.level[len(self.level)] = 0
            return Train({}, self.epochs[0])
        return None

    def ended(self, trial: int, loss: float) -> list[Decision]:
        self.under_way -= 1
        self.rungs[self.level[trial]][trial] = loss
        return self.fill()


def jobs(decisions: Any) -> list[Decision]:
    """Return the grants without configs; stops are separate."""
    kept: list[Decision] = []
    for decision in decisions:
        if isinstance(decision, Train):
            kept.append(Train({}, decision.until))
        elif isinstance(decision, Extend):
            kept.append(decision)
    return kept


@settings(max_examples=200, deadline=None)
@given(procedures("promote"), tables, orders)
def test_promotions_are_those_of_the_paper(procedure, losses: Table, order):
    ours, textbook = search(procedure), Textbook(procedure)
    running: dict[int, int] = {}
    decided = jobs(ours.start())
    expected = textbook.fill()
    started = 0
    stopped: set[int] = set()
    while True:
        assert decided == expected
        for decision in decided:
            if isinstance(decision, Train):
                running[started] = decision.until
                started += 1
            elif isinstance(decision, Extend):
                assert decision.trial not in stopped
                running[decision.trial] = decision.until
        assert len(running) <= procedure.concurrent
        if not running:
            break
        trial = order.choice(sorted(running))
        until = running.pop(trial)
        loss, _ = losses.rank(trial, until)
        if all(losses(trial, epoch) is not None for epoch in range(1, until + 1)):
            ours.tell(Report(trial, until, {"loss": losses(trial, until)}))
            given_ = ours.tell(EndTrial(trial, "complete"))
        else:
            given_ = ours.tell(EndTrial(trial, "failed", "it broke"))
        stopped |= {decision.trial for decision in given_ if isinstance(decision, Stop)}
        decided = jobs(given_)
        expected = textbook.ended(trial, loss)
    assert started == procedure.trials


@settings(max_examples=100, deadline=None)
@given(procedures("promote"), tables, orders)
def test_in_the_end_only_the_last_rung_is_complete(procedure, losses, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    top = played.reached(procedure.max_epochs)
    assert {trial for trial, ending in played.endings.items() if ending == "complete"} == {
        trial for trial in top if played.endings[trial] != "failed"
    }
    assert played.most_running <= procedure.concurrent
    assert max(played.done) <= procedure.max_epochs


@settings(max_examples=150, deadline=None)
@given(procedures("stop"), tables, orders)
def test_the_stopping_variant_keeps_who_is_in_the_top_of_those_before(procedure, losses: Table, order):
    played = PlayedSearch(search(procedure), losses, order).play()
    epochs = rung_epochs(procedure.min_epochs, procedure.max_epochs, procedure.factor)
    seen: dict[int, list[tuple[float, int]]] = {epoch: [] for epoch in epochs}
    verdicts: dict[tuple[int, int], bool] = {}
    for trial, epoch in played.ends:
        rank = losses.rank(trial, epoch)
        seen[epoch].append(rank)
        place = sorted(seen[epoch]).index(rank)
        verdicts[trial, epoch] = rank[0] < math.inf and place < max(1, len(seen[epoch]) // procedure.factor)
    for (trial, epoch), goes_on in verdicts.items():
        if epoch != procedure.max_epochs:
            assert (epochs[epochs.index(epoch) + 1] in played.grants[trial]) == goes_on
    assert len(played.grants) == procedure.trials
    assert played.most_running <= procedure.concurrent


def test_the_first_of_the_stopping_variant_continues():
    played = PlayedSearch(search(ASHA(1, 9, mode="stop")), lambda *_: 1.0, Generator(0)).play()
    assert played.grants == [[1, 3, 9]]


@pytest.mark.parametrize("mode", ["promote", "stop"])
def test_rungs_resume_and_never_retrain(mode):
    landscape = Landscape(lambda _: 1.0, lambda values, epoch, key: {"loss": share(key) / epoch})
    procedure = ASHA(40, 9, mode=mode, concurrent=6)
    result = simulate(
        Workload(partitions=2), Cluster(workers=3), search=search(procedure), landscape=landscape, check=True
    )
    assert result.units == 2 * sum(trial.reached for trial in result.engine.trials.values())
    assert len(result.engine.trials) == 40
    assert any(trial.ending == "complete" and trial.until == 9 for trial in result.engine.trials.values())


def test_a_space_that_runs_out_ends_the_search():
    played = PlayedSearch(
        ASHA(27, 9).search({"width": choice(*range(5))}, LOSS, 0), lambda t, _: float(t), Generator(0)
    ).play()
    assert len(played.grants) == 5
    assert sorted(played.grants) == [[1], [1], [1], [1], [1, 3, 9]]  # one trial is trained to the end
    assert played.grants[0] == [1, 3, 9]


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"factor": 1}, "factor: 1; expected a whole number, at least 2"),
        ({"min_epochs": 0}, "min_epochs: 0; expected a whole number, at least 1: a rung is at least one epoch"),
        ({"min_epochs": 10}, "min_epochs: 10 with max_epochs 9"),
        ({"trials": 3}, "trials: 3; expected at least 9, so that one trial reaches 9 epochs"),
        ({"mode": "pause"}, "mode: 'pause'; expected 'promote' or 'stop'"),
        ({"concurrent": 0}, "concurrent: 0; expected"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(WorkloadError, match=message):
        ASHA(**{"trials": 27, "max_epochs": 9, **settings_})


# --- without a number of trials -------------------------------------------------------------------------------


def test_without_a_number_of_trials_it_asks_as_long_as_jobs_end() -> None:
    asha = ASHA(trials=None, max_epochs=4, factor=2, concurrent=2)
    assert asha.endless
    assert asha.budget_estimate() is None
    assert total_budget_estimate([asha, Random(3, epochs=2)]) is None
    running = asha.search(SPACE, LOSS, seed=0)
    jobs, started = list(running.start()), 0
    grants: list[tuple[int, int]] = []
    for _ in range(100):
        for decision in jobs:
            if isinstance(decision, Train):
                grants.append((started, decision.until))
                started += 1
            elif isinstance(decision, Extend):
                grants.append((decision.trial, decision.until))
        trial, epoch = grants.pop(0)
        running.tell(Report(trial, epoch, {"loss": share(0, "loss", trial)}))
        jobs = list(running.tell(EndTrial(trial, "complete", "")))
    assert len(grants) == 1  # of two slots; the other one was freed last
    assert started > 50


def test_without_a_number_of_trials_a_sampler_that_needs_one_is_refused() -> None:
    asha = ASHA(trials=None, max_epochs=4, sampler="latin-hypercube")
    with pytest.raises(WorkloadError, match="latin-hypercube"):
        asha.search(SPACE, LOSS, seed=0)


def test_a_search_that_has_an_end_does_not_extend_one_without() -> None:
    endless, limited = (ASHA(trials=n, max_epochs=4, mode="stop") for n in (None, 20))
    endless.widen([EarlierSearch(limited, SPACE)], SPACE, LOSS, 0)
    with pytest.raises(NoExtensionError, match="trials"):
        limited.widen([EarlierSearch(endless, SPACE)], SPACE, LOSS, 0)

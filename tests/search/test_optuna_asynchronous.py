"""Optuna without batches: it proposes a config as each trial ends, and the same reports give the same configs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import pytest

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import Values
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.search import Decision, Optuna, Search, Train
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.search import landscape

QUICK = {"n_startup_trials": 4}
BATCHES = Optuna("tpe", trials=24, epochs=4, batch=4, options=QUICK)
FREE = Optuna("tpe", trials=24, epochs=4, batch=4, options=QUICK, asynchronous=True)


class Heard:
    """A search that records its updates and its decisions."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.first: list[Decision] = []
        self.heard: list[tuple[Report | EndTrial, list[Decision]]] = []

    def start(self) -> Sequence[Decision]:
        self.first = list(self._search.start())
        return self.first

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        decisions = list(self._search.tell(update))
        self.heard.append((update, decisions))
        return decisions


def play(procedure: Optuna, seed: int) -> tuple[Simulation, Heard]:
    """Run on 4 workers, with configs of which some take four times as long as others."""

    def metrics(values: Values, epoch: int, _key: str) -> dict[str, float]:
        return {"loss": landscape.loss(values.constants(), epoch, 0)}

    def seconds(values: Values) -> float:
        return float(values.constants()["depth"])  # type: ignore[arg-type]

    heard = Heard(procedure.search(landscape.SPACE, landscape.LOSS, 0))
    result = simulate(
        Workload(partitions=1),
        Cluster(workers=4, noise=0.5),
        search=heard,
        landscape=Landscape(seconds, metrics),
        seed=seed,
        check=True,
    )
    return result, heard


def idle(result: Simulation) -> float:
    """Return the makespan divided by the time of the work without idle workers."""
    return result.makespan / (result.busy_seconds / 4)


def test_no_worker_is_idle_until_the_last_trials():
    in_batches, without = ([play(procedure, seed)[0] for seed in range(4)] for procedure in (BATCHES, FREE))
    assert {result.units for result in (*in_batches, *without)} == {24 * 4}
    assert mean(map(idle, without)) < 1.2 < 1.25 < mean(map(idle, in_batches))


def test_as_a_trial_ends_one_begins():
    _, heard = play(FREE, 0)
    begun, ended = len(heard.first), 0
    assert begun == 4
    for update, decisions in heard.heard:
        ended += isinstance(update, EndTrial)
        begun += len(decisions)
        assert all(isinstance(decision, Train) for decision in decisions)
        assert begun - ended == min(4, 24 - ended)


def test_the_same_reports_in_the_same_order_give_the_same_configs():
    """A resumed study does this with its journal, from any point."""
    _, before = play(FREE, 1)
    again = FREE.search(landscape.SPACE, landscape.LOSS, 0)
    assert list(again.start()) == before.first
    for update, decisions in before.heard:
        assert list(again.tell(update)) == decisions


def test_what_is_proposed_depends_on_the_order_without_batches_only():
    def configs(procedure: Optuna) -> list[list[Any]]:
        return [[trial.history for trial in play(procedure, seed)[0].engine.trials.values()] for seed in (2, 3)]

    first, second = configs(BATCHES)
    assert first == second
    first, second = configs(FREE)
    assert first != second


def test_a_value_that_is_not_a_boolean_is_refused():
    with pytest.raises(WorkloadError, match=r"^asynchronous: 'yes'; expected True or False"):
        Optuna("tpe", trials=4, epochs=1, asynchronous="yes")  # type: ignore[arg-type]

"""Runs that follow a plan of nodes: on simulated nodes that come and go, and on nodes whose number is fixed."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.backends import Backend, TrainingJob
from hoptree.backends.protocol import NodeOffer
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.events import Event, WorkerJoined
from hoptree.driver.fixed_nodes import FixedNodes
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.simulator.elastic_nodes import ElasticNodes
from hoptree.simulator.workload import Workload
from tests.system.plain import study

SPACE = {"lr": ht.uniform(0.1, 1.0), "nap": 0.0}
INSTANCE = ht.Instance("large", devices=2, price=36.0, minimum=20.0, provision=10.0, start=2.0, max_count=16)
OFFERED = NodeOffer(scales=True, nodes=0, offered=True)


class Continued:
    """Simulated nodes whose time continues from the end of the last run."""

    def __init__(self, backend: SimulatedBackend, begun: float) -> None:
        self._backend = backend
        self._begun = begun
        self.start, self.submit, self.scale, self.stop = backend.start, backend.submit, backend.scale, backend.stop

    @property
    def now(self) -> float:
        return self._begun + self._backend.now

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        now, events = self._backend.wait(seconds)
        return self._begun + now, events


class Rented:
    """The settings of a backend of simulated nodes that come and go; a unit takes 4 seconds."""

    def __init__(self, offer: NodeOffer = OFFERED) -> None:
        self._offer = offer

    def offer(self, instance: ht.Instance) -> NodeOffer:
        return self._offer

    def open(self, job: TrainingJob) -> Backend:
        nodes = ElasticNodes(devices=INSTANCE.devices, provision=10.0, start=2.0)
        workload = Workload(configs=1, epochs=1, partitions=job.dataset.partitions, seconds=4.0)
        backend = SimulatedBackend(ht.Cluster(elastic=nodes), job.dataset.partitions, workload.landscape())
        return Continued(backend, job.begun)


def rented(folder: Path, **options: Any) -> ht.Study:
    return study(folder, space=SPACE, search=ht.SuccessiveHalving(16, 16, factor=4), **options)


def test_nodes_come_and_go_as_planned_and_the_run_says_what_it_cost(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    results = mine.run(backend=Rented(), instance=INSTANCE, deadline="5 min", quiet=True)
    assert [trial.state for trial in results.trials].count("complete") == 1
    cost = results.cost
    assert cost is not None
    assert cost.seconds <= 300.0
    assert len(cost.stages) == 3
    assert sum(stage.money for stage in cost.stages) == pytest.approx(cost.money)
    assert cost.forecast is not None
    assert 0 < (cost.forecast.deadline or 0) <= 300.0  # what is left of it after planning
    assert cost.forecast.cost.least < cost.forecast.cost.expected < cost.forecast.cost.most
    assert "$" in repr(results)
    timeline = mine.study_timeline()
    assert timeline.nodes is not None
    assert timeline.nodes.money == pytest.approx(cost.money)
    assert mine.results().cost is not None


def test_a_tighter_deadline_takes_more_nodes(tmp_path: Path) -> None:
    found = {}
    for deadline in ("90 s", "20 min"):
        mine = rented(tmp_path / deadline.replace(" ", ""))
        cost = mine.run(backend=Rented(), instance=INSTANCE, deadline=deadline, quiet=True).cost
        assert cost is not None
        found[deadline] = max(stage.nodes for stage in cost.stages), cost.seconds
    assert found["90 s"][0] > found["20 min"][0]
    assert found["90 s"][1] < found["20 min"][1]


def test_a_study_that_is_continued_plans_what_is_left_and_adds_to_its_cost(tmp_path: Path) -> None:
    found = []
    for epochs in (16, 64):
        search = ht.SuccessiveHalving(64, epochs, factor=4)
        mine = study(tmp_path, space=SPACE, search=search)
        found.append(mine.run(backend=Rented(), instance=INSTANCE, deadline="1 h", quiet=True))
    first, more = (results.cost for results in found)
    assert first is not None
    assert more is not None
    assert more.money > first.money
    assert more.nodes > first.nodes
    assert more.forecast == first.forecast  # what was planned at first
    assert sum(stage.money for stage in more.stages) == pytest.approx(more.money)
    assert found[1].best.epochs == 64


def test_a_finished_study_plans_nothing(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    first = mine.run(backend=Rented(), instance=INSTANCE, deadline="20 min", quiet=True)
    again = mine.run(backend=Rented(), instance=INSTANCE, deadline="1 s", quiet=True)
    assert first.cost is not None
    assert again.cost is not None
    assert again.cost.forecast == first.cost.forecast


def test_a_deadline_that_no_plan_meets_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(DeadlineError) as caught:
        rented(tmp_path).run(backend=Rented(), instance=INSTANCE, deadline="2 s", quiet=True)
    assert caught.value.earliest >= 12.0
    assert caught.value.cost > 0
    with rented(tmp_path).open_store() as store:
        assert store.catalog.all() == []


def test_a_budget_that_is_too_small_is_refused_with_the_least(tmp_path: Path) -> None:
    with pytest.raises(BudgetError) as caught:
        rented(tmp_path).run(backend=Rented(), instance=INSTANCE, budget=0.01, quiet=True)
    assert caught.value.least == pytest.approx(0.2, rel=0.01)  # the minimum of one node


def test_an_instance_that_the_cluster_does_not_offer_is_refused(tmp_path: Path) -> None:
    missing = Rented(NodeOffer(scales=False, nodes=0, offered=False))
    with pytest.raises(ht.RefusedError, match="instance: 'large'"):
        rented(tmp_path).run(backend=missing, instance=INSTANCE, deadline="1 h", quiet=True)


def test_local_workers_are_planned_for_as_they_are(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    with pytest.raises(DeadlineError) as caught:
        mine.run(workers=2, instance=INSTANCE, deadline=1e-3, quiet=True)
    assert caught.value.earliest > 0
    results = mine.run(workers=2, instance=INSTANCE, deadline="1 h", quiet=True)
    cost = results.cost
    assert cost is not None
    assert (cost.nodes, cost.lost) == (1, 0)
    assert 0 < cost.used_seconds <= cost.device_seconds
    assert cost.forecast is not None
    assert cost.forecast.method == "static"


@pytest.mark.parametrize("backend", ["local", Rented()], ids=["fixed", "elastic"])
def test_studies_that_run_together_are_planned_together(tmp_path: Path, backend: Any) -> None:
    first = rented(tmp_path)
    second = rented(tmp_path, name="second", data=first.data)
    both = ht.run([first, second], workers=2, backend=backend, instance=INSTANCE, deadline="1 h", quiet=True)
    assert both[0].cost is not None
    assert both[0].cost == both[1].cost
    assert both[0].cost.seconds <= 3600.0


def test_a_search_that_does_not_know_its_stages_is_simulated_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = study(tmp_path, space=SPACE, search=ht.ASHA(trials=9, max_epochs=9))
    with caplog.at_level(logging.WARNING, logger="hoptree"):
        results = mine.run(backend=Rented(), instance=INSTANCE, deadline="1 h", quiet=True)
    assert "simulation" in caplog.text
    assert results.cost is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": "1 h"}, "deadline: without an instance"),
        ({"budget": 3.0}, "budget: without an instance"),
        ({"instance": INSTANCE}, "instance: 'large' without a deadline or a budget"),
        ({"instance": INSTANCE, "deadline": "1 h", "budget": 3.0}, "expected one of them"),
        ({"instance": INSTANCE, "deadline": "soon"}, "deadline: 'soon'"),
        ({"instance": INSTANCE, "budget": -1}, "budget: -1"),
        ({"instance": INSTANCE, "budget": math.nan}, "budget: nan"),
        ({"instance": "p3.8xlarge", "budget": 3.0}, "instance: 'p3.8xlarge'"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ht.WorkloadError, match=message):
        rented(tmp_path).run(quiet=True, **options)
    assert not (tmp_path / "store" / "journal.db").exists()


class Joins:
    """A backend whose workers join one after the other, and one of them again."""

    def __init__(self) -> None:
        self.names = ["a", "b", "c", "a"]

    def start(self) -> None: ...

    def submit(self, action: object) -> None: ...

    def wait(self, seconds: float | None = None) -> tuple[float, list[Any]]:
        return 1.0, [WorkerJoined(self.names.pop(0), (0,))] if self.names else []

    def stop(self, *, failed: bool) -> None: ...


def test_workers_count_as_nodes_in_the_order_in_which_they_join() -> None:
    backend = FixedNodes(Joins(), devices=2)
    events = [event for _ in range(4) for event in backend.wait()[1]]
    assert [type(event).__name__ for event in events] == [
        "NodeStarted", "WorkerJoined", "WorkerJoined", "NodeStarted", "WorkerJoined", "WorkerJoined",
    ]  # fmt: skip
    assert [event.node for event in events] == ["node-0", "node-0", "node-0", "node-1", "node-1", "node-0"]  # type: ignore[union-attr]

"""Planning the nodes of a study: stages, times and latencies, and where each figure comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import AllocationPlanned, DriverStarted, NodeStarted, WorkerJoined
from hoptree.core.node_ledger import NodeLedger
from hoptree.core.profile import Profile, ProfileEntry
from hoptree.record.latencies import Latencies
from hoptree.study.plan_studies import PROVISION, START, speed_ups
from tests.driver.test_planned_run import INSTANCE, Rented, rented
from tests.record.test_cost import LARGE, SMALL, plan
from tests.system.plain import study

BARE = ht.Instance("large", devices=2, price=36.0)


def known(found: Any) -> dict[str, str]:
    return {source.figure: source.known for source in found.sources}


def test_a_plan_says_which_figures_are_measured_and_which_assumed(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    found = mine.plan(instance=BARE, deadline="2 h")
    assert found.instance.provision == PROVISION
    assert found.instance.start == START
    assert known(found)["time until a node runs"] == "assumed"
    assert known(found)["time of a unit"] == "measured"
    assert known(found)["price"] == "given"
    assert [stage.trials for stage in found.stages] == [16, 4, 1]
    assert found.cost > 0
    assert not found.simulated
    assert not (tmp_path / "store").exists()


def test_latencies_of_earlier_runs_are_remembered(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    mine.run(backend=Rented(), instance=INSTANCE, deadline="20 min", quiet=True)
    other = rented(tmp_path, name="other", seed=1)
    found = other.plan(instance=BARE)
    assert known(found)["time until a node runs"] == "measured"
    assert found.instance.provision == pytest.approx(10.0)
    assert found.instance.start == pytest.approx(2.0)


def test_a_resumed_study_is_planned_from_where_it_stands(tmp_path: Path) -> None:
    mine = rented(tmp_path)
    whole = mine.plan(instance=INSTANCE)
    assert len(whole.stages) == 3
    mine.run(backend=Rented(), instance=INSTANCE, deadline="20 min", quiet=True)
    with pytest.raises(ht.WorkloadError, match="nothing left to train"):
        mine.plan(instance=INSTANCE)


def test_stages_of_a_search_that_does_not_know_them_are_simulated(tmp_path: Path) -> None:
    mine = study(tmp_path, space={"lr": ht.uniform(0.1, 1.0)}, search=ht.ASHA(trials=9, max_epochs=9))
    found = mine.plan(instance=INSTANCE, deadline="2 h")
    assert found.simulated
    assert "simulation" in str(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instance": "large"}, "instance: 'large'; expected"),
        ({"instance": BARE, "deadline": "1 h", "budget": 1.0}, "expected one of them, not both"),
        ({"instance": BARE, "deadline": -1}, "deadline: -1"),
        ({"instance": BARE, "budget": 0}, "budget: 0"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ht.WorkloadError, match=message):
        rented(tmp_path).plan(**options)


def test_speed_ups_are_the_mean_over_architectures() -> None:
    def entry(width: int, devices: int, seconds: float) -> ProfileEntry:
        return ProfileEntry({"width": width}, "data" if devices > 1 else "single", devices, "cpu", seconds, 0)

    profile = Profile((entry(8, 1, 4.0), entry(8, 2, 2.0), entry(16, 1, 9.0), entry(16, 2, 6.0)))
    assert speed_ups(profile) == {1: 1.0, 2: pytest.approx(1.75)}


def test_latencies_are_those_of_the_instance_type_only() -> None:
    first, mixed = NodeLedger(), NodeLedger()
    first.note(AllocationPlanned(plan(LARGE)), 0.0)
    first.note(NodeStarted("a", 4, waited=20.0), 20.0)
    first.note(WorkerJoined("w", (0,), node="a"), 26.0)
    first.note(NodeStarted("b", 4, waited=40.0), 40.0)
    for instance in (LARGE, SMALL):
        mixed.note(DriverStarted(), 100.0)
        mixed.note(AllocationPlanned(plan(instance)), 100.0)
        mixed.note(NodeStarted("a", 4, waited=500.0), 600.0)
    assert Latencies.of([first, mixed], "large") == Latencies(30.0, 6.0, 2)
    assert Latencies.of([first], "small") == Latencies(None, None, 0)

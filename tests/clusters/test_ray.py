"""Studies on a real Ray cluster of several nodes: the same bits as on one machine, whatever happens there."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import Event, StateLost, UnitFailed, WorkerJoined
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.store import Store
from hoptree.ui.studies_view import find_study
from tests.clusters.conftest import Nodes
from tests.system.plain import Plain, dataset, study
from tests.system.processes import alive, units_done_twice
from tests.system.sabotage import Sabotage


class Slow(Plain):
    """Takes its time: the bits are those of ``Plain``."""

    def __init__(self, nap: float, size: int = 16) -> None:
        super().__init__(size)
        self.nap = nap

    def train(self, model: Any, data: Any, unit: Any) -> None:
        time.sleep(self.nap)
        super().train(model, data, unit)


class Patient(Slow):
    """Goes on after the first epoch when so many workers have been given it, each in a process of its own."""

    def __init__(self, nap: float, here: Path, workers: int, patience: float = 500.0, size: int = 16) -> None:
        super().__init__(nap, size)
        self.patience = patience
        self.made_by = os.getpid()
        self.here = here
        self.workers = workers

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if os.getpid() != self.made_by:
            with (self.here / "workers").open("ab") as file:
                file.write(b".")

    def train(self, model: Any, data: Any, unit: Any) -> None:
        end = time.monotonic() + self.patience
        while unit.unit >= unit.partitions > 1 and self._count() < self.workers:
            assert time.monotonic() < end
            time.sleep(0.05)
        super().train(model, data, unit)

    def _count(self) -> int:
        """Return how many workers have come; a folder that is listed would count as what is trained with."""
        with suppress(FileNotFoundError):
            return os.path.getsize(self.here / "workers")
        return 0


def some_study(folder: Path, happens: dict[int, Callable[[], None]] | None = None, **options: Any) -> ht.Study:
    folder.mkdir(exist_ok=True)
    search = Sabotage(ht.Grid(epochs=3), happens or {})
    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[1], gamma=0.5))}
    settings = {"data": dataset(folder, partitions=4), "search": search, "space": space, **options}
    return study(folder, **settings)


def prints(results: ht.Results) -> list[str]:
    assert [trial.state for trial in results.trials] == ["complete"] * len(results.trials)
    return [trial.fingerprint for trial in results.trials]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return prints(some_study(tmp_path_factory.mktemp("local") / "s").run(workers=1))


def events(folder: Path) -> list[Event]:
    with Store(folder / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        record = Record(StudySpec.read(known.spec).settings)
        return [step.event for step in record.replay(store.journal.read("plain"))]


def joined(folder: Path) -> list[WorkerJoined]:
    return [event for event in events(folder) if isinstance(event, WorkerJoined)]


def test_bits_do_not_depend_on_nodes_and_each_holds_its_share(
    tmp_path: Path, nodes: Nodes, expected: list[str]
) -> None:
    nodes.add(2)
    (tmp_path / "here").mkdir()
    patient = Patient(0.05, tmp_path / "here", workers=2)
    results = some_study(tmp_path / "s", trainer=patient).run(backend=nodes.where())
    assert prints(results) == expected
    assert results.savings.bytes_between_nodes == results.savings.bytes_hopped > 0  # each node has one worker
    held = {event.worker: event.partitions for event in joined(tmp_path / "s")}  # at last: one may come later
    assert sorted(map(len, held.values())) == [2, 2]
    assert sorted(sum(held.values(), ())) == [0, 1, 2, 3]
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0
    again = some_study(tmp_path / "s", trainer=patient)
    assert prints(again.run(backend=nodes.where())) == expected  # nothing left to train


@pytest.mark.slow
def test_nodes_of_different_size_are_all_used(tmp_path: Path, nodes: Nodes, expected: list[str]) -> None:
    nodes.add(1, cpus=1)
    nodes.add(1, cpus=3)
    results = some_study(tmp_path / "s").run(backend=nodes.where(copy=True))
    assert prints(results) == expected
    assert 0 < results.savings.bytes_between_nodes <= results.savings.bytes_hopped
    held = sorted(len(event.partitions) for event in joined(tmp_path / "s"))
    assert held == [1, 3, 3, 3]
    with Store(tmp_path / "s" / "store", create=False) as store:
        shown = find_study(store, "plain").nodes.values()
    assert sorted((count, len(partitions)) for count, partitions in shown) == [(1, 1), (3, 3)]


def test_a_node_that_is_removed_costs_no_result(
    tmp_path: Path, nodes: Nodes, expected: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    nodes.add(3)
    results = some_study(tmp_path / "s", {2: nodes.remove}, trainer=Slow(0.02)).run(backend=nodes.where(copy=True))
    assert prints(results) == expected
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0
    assert "(raylet)" not in "".join(capfd.readouterr())  # Ray would print the end of the node's log


@pytest.mark.slow
def test_a_node_that_joins_takes_its_share(tmp_path: Path, nodes: Nodes, expected: list[str]) -> None:
    nodes.add(1)
    (tmp_path / "here").mkdir()
    patient = some_study(tmp_path / "s", {1: nodes.add}, trainer=Patient(0.4, tmp_path / "here", workers=2))
    assert prints(patient.run(backend=nodes.where())) == expected
    assert len({event.worker for event in joined(tmp_path / "s")}) == 2
    assert joined(tmp_path / "s")[0].partitions == (0, 1, 2, 3)
    assert len(joined(tmp_path / "s")[-1].partitions) == 2


@pytest.mark.slow
def test_with_replicas_two_of_four_nodes_may_be_lost(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(4)

    def remove_two() -> None:
        """Both that hold the first partition: it is brought again from the dataset's files."""
        holders = {event.worker.split("-")[1] for event in joined(tmp_path / "s") if 0 in event.partitions}
        found = [index for index, node in enumerate(nodes.here) if node.node_id[:6] in holders]
        assert len(found) == 2
        for index in reversed(found):
            nodes.remove(index)

    size = 60_000  # too large to be passed on in messages: states lie on nodes
    expected = prints(some_study(tmp_path / "l", trainer=Slow(0.02, size)).run(workers=1))
    (tmp_path / "here").mkdir()
    patient = Patient(0.02, tmp_path / "here", workers=4, size=size)
    results = some_study(tmp_path / "s", {4: remove_two}, trainer=patient).run(backend=nodes.where(replicas=2))
    assert prints(results) == expected
    assert not [event for event in events(tmp_path / "s") if isinstance(event, StateLost)]
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0  # what is finished is not trained again
    assert sum(len(event.partitions) for event in joined(tmp_path / "s")[:4]) == 8


@pytest.mark.slow
def test_an_actor_that_is_killed_costs_no_result(
    tmp_path: Path, nodes: Nodes, expected: list[str], look: Callable[[], Any]
) -> None:
    nodes.add(2)

    def kill() -> None:
        running = [actor["Pid"] for actor in look() if actor["State"] == "ALIVE" and actor["Pid"] > 0]
        os.kill(running[0], 9)

    results = some_study(tmp_path / "s", {2: kill, 4: kill}, trainer=Slow(0.02)).run(backend="ray")
    assert prints(results) == expected
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0


@pytest.mark.slow
def test_a_stopped_actor_is_replaced(
    tmp_path: Path, nodes: Nodes, expected: list[str], look: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """For Ray it is alive: no call fails, and none is answered."""
    nodes.add(2)
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(next(actor["Pid"] for actor in look() if actor["State"] == "ALIVE" and actor["Pid"] > 0))
        os.kill(stopped[0], signal.SIGSTOP)

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(stopped[0], signal.SIGCONT)

    with caplog.at_level(logging.WARNING, logger="hoptree"):
        job = some_study(tmp_path / "s", {2: stop, 8: go_on}, trainer=Slow(0.02))
        results = job.run(backend="ray", heartbeat_limit=2.0)
    assert prints(results) == expected
    assert "no heartbeat for 2 s" in caplog.text
    assert not [event for event in events(tmp_path / "s") if isinstance(event, UnitFailed)]
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0
    assert alive(stopped, patience=300.0) == []


@pytest.mark.slow
def test_states_lost_with_their_node_are_trained_again(tmp_path: Path, nodes: Nodes) -> None:
    nodes.add(3)
    large = {"trainer": Slow(0.02, size=60_000)}  # too large to be passed on in messages: they lie on their node
    expected = prints(some_study(tmp_path / "l", **large).run(workers=1))
    results = some_study(tmp_path / "s", {2: nodes.remove, 5: nodes.remove}, **large).run(backend=nodes.where())
    assert prints(results) == expected
    assert units_done_twice(tmp_path / "s" / "store", "plain") == 0


@pytest.mark.parametrize(
    ("act", "reasons"),
    [
        ("raise", ["ValueError: lone \\ud800 surrogate", "in misbehave"]),
        pytest.param("exit", ["the worker died unexpectedly"], marks=pytest.mark.slow),
        pytest.param("hang", ["more than 3 s", "in spin_for_ever"], marks=pytest.mark.slow),
    ],
)
def test_user_code_that_fails_ends_its_trial_only(
    tmp_path: Path, nodes: Nodes, act: str, reasons: list[str]
) -> None:
    nodes.add(2)
    results = study(tmp_path, "fine", act).run(backend=nodes.where(), unit_limit=3.0)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    for reason in reasons:
        assert reason in results.trials[1].error


def test_nothing_is_left_in_the_cluster(tmp_path: Path, nodes: Nodes, look: Callable[[], Any]) -> None:
    import gc

    from ray._private.worker import global_worker

    nodes.add(2)
    some_study(tmp_path / "s", trainer=Plain(60_000)).run(backend="ray")
    gc.collect()
    assert look() == []
    assert global_worker.core_worker.get_all_reference_counts() == {}
    assert not any(path.name.startswith("driver-") for path in (tmp_path / "s" / "store").rglob("*"))


@pytest.mark.slow
def test_the_output_of_workers_is_shown(tmp_path: Path, nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.add(1)
    study(tmp_path, trainer=Talkative()).run(backend=nodes.where())
    printed = capsys.readouterr()
    said = [line for line in printed.out.splitlines() if line.startswith("unit")]
    assert said == [f"unit {number}{what}" for number in range(4) for what in ("", " begins", " goes on")]
    assert [line for line in printed.err.splitlines() if "warn" in line] == [f"warn {n}" for n in range(4)]


class Talkative(Plain):
    fingerprint = "talkative"

    def train(self, model: Any, data: Any, unit: Any) -> None:
        if unit.partitions > 1:
            print(f"unit {unit.unit}")
            print(f"warn {unit.unit}", file=sys.stderr)
            sys.stdout.writelines([f"unit {unit.unit} begins\n", f"unit {unit.unit} goes on\n"])
        super().train(model, data, unit)

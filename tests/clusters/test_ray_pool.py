"""The Ray pool by itself: what it does when workers, nodes or files go away at a bad moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.backends.ray_settings import RayPoolOptions
from hoptree.backends.state_tracker import StateLocation
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.store import FolderStates
from hoptree.worker.messages import HoldPartitions, PartitionsHeld, WorkerMessage, WorkerReady
from hoptree.worker.model_cache import LostStateError
from tests.clusters.conftest import Nodes
from tests.system.plain import Plain, dataset, study

pytestmark = pytest.mark.slow


class Alone:
    """A pool without a backend: its workers, and their messages."""

    def __init__(self, folder: Path, settings: ht.Ray, copies: int = 0) -> None:
        from hoptree.backends.ray_pool import RayPool

        self.states = FolderStates(folder / "states")
        data = dataset(folder, partitions=4)
        self.pool = RayPool(settings, Plain(), data, self.states, "alone", RayPoolOptions(copies=copies))
        self.workers: dict[str, WorkerHandle] = {}

    def recruit(self) -> None:
        self.workers |= {worker.name: worker for worker in self.pool.recruit(self.workers, 1)}

    def receive(self) -> list[tuple[WorkerHandle, WorkerMessage | None]]:
        """Return the next messages."""
        end = time.monotonic() + 900
        while time.monotonic() < end:
            found = self.pool.messages(wait(self.pool.sources(), timeout=1.0))
            if found:
                return list(found)
        raise AssertionError("no message arrived")

    def receive_forever(self) -> None:
        """Receive messages until an error is raised."""
        while True:
            self.receive()

    def join_all(self) -> None:
        """Wait until all workers are ready."""
        while not all(worker.joined for worker in self.workers.values()):
            for worker, message in self.receive():
                assert isinstance(message, WorkerReady)
                worker.partitions = message.partitions
                worker.join()

    def kill(self, *killed: WorkerHandle) -> None:
        """Kill workers, and wait until they have exited."""
        for worker in killed:
            worker.kill()
        while any(worker.name in self.workers for worker in killed):
            for worker, message in self.receive():
                if message is None:
                    del self.workers[worker.name]


@pytest.fixture
def alone(tmp_path: Path, nodes: Nodes) -> Iterator[Callable[..., Alone]]:
    made: list[Alone] = []

    def make(copies: int = 0, **settings: Any) -> Alone:
        made.append(Alone(tmp_path, nodes.where(**settings), copies))
        return made[-1]

    yield make
    for each in made:
        each.pool.close(list(each.workers.values()), at_once=True, failed=False)


def test_a_node_that_another_job_uses_is_not_used(tmp_path: Path, nodes: Nodes) -> None:
    import ray

    nodes.add(2)
    nodes.wait_for(3)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        other: Any = ray.remote(num_cpus=1)(Other).remote()
        ray.get(other.here.remote())
        results = study(tmp_path, data=dataset(tmp_path, partitions=4)).run(backend="ray")
    finally:
        ray.shutdown()
    assert [trial.state for trial in results.trials] == ["complete"]


class Other:
    """Somebody else's actor."""

    def here(self) -> None: ...


def test_a_worker_that_has_not_started_is_not_asked_to_save(nodes: Nodes, alone: Callable[..., Alone]) -> None:
    """Another worker has taken the place of one that was killed, and has no store yet."""
    import ray

    nodes.add(1)
    here = alone()
    here.recruit()
    here.pool._references.hold("slot", ray.put(({"w": np.ones(3)}, {"units": 1})))
    here.pool.transport.write(StateLocation("aa", "slot", "killed", 24))
    assert here.states.get("aa")[0]["w"].tolist() == [1.0, 1.0, 1.0]


def test_a_state_that_went_with_its_node_cannot_be_saved(nodes: Nodes, alone: Callable[..., Alone]) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes.add(2)
    here = alone()
    here.recruit()
    here.join_all()
    first = nodes.here[0].node_id
    near = ray.remote(num_cpus=0, max_retries=0)(lambda: ({"w": np.ones(60_000)}, {}))
    made: Any = near.options(scheduling_strategy=NodeAffinitySchedulingStrategy(first, soft=False)).remote()
    ray.wait([made], fetch_local=False)
    here.pool._references.hold("slot", made)
    nodes.remove(0)
    nodes.wait_for(2)
    with pytest.raises(LostStateError, match="the state aa was lost with its node"):
        here.pool.transport.write(StateLocation("aa", "slot", next(iter(here.workers)), 480_000))
    assert "aa" not in here.states


def test_partitions_that_no_node_can_bring_end_the_study(
    tmp_path: Path, nodes: Nodes, alone: Callable[..., Alone]
) -> None:
    nodes.add(2)
    here = alone(copy=True)
    here.recruit()
    here.join_all()
    for file in (tmp_path / "data").glob("*.arrow"):
        file.unlink()
    for worker in here.workers.values():
        worker.send(HoldPartitions((0, 1, 2, 3)))
    with pytest.raises(ht.RefusedError, match=r"node \w+: FileNotFoundError: .*train-0000\d\.arrow"):
        here.receive_forever()


def test_a_node_that_cannot_copy_goes_on_with_its_share(
    tmp_path: Path, nodes: Nodes, alone: Callable[..., Alone], caplog: pytest.LogCaptureFixture
) -> None:
    nodes.add(2)
    here = alone(copies=10**6, copy=True)
    here.recruit()
    here.join_all()
    first, second = here.workers.values()
    share = first.partitions
    for file in (tmp_path / "data").glob("*.arrow"):
        file.unlink()
    here.pool.copy_partitions([first.name], second.partitions)
    assert here.receive() == [(first, PartitionsHeld(share))]
    assert "does without copies: node" in caplog.text


def test_copies_stay_on_a_node_as_long_as_it_has_a_worker(nodes: Nodes, alone: Callable[..., Alone]) -> None:
    nodes.add(1, cpus=2)
    nodes.add(1, cpus=1)
    here = alone(copies=10**6, copy=True)
    here.recruit()
    here.join_all()
    first, second = (worker for worker in here.workers.values() if len(worker.partitions) == 3)
    assert first.node == second.node
    (missing,) = {0, 1, 2, 3} - set(first.partitions)
    here.pool.copy_partitions([first.name, second.name, "one that has left"], [missing])
    answers: dict[str, WorkerMessage | None] = {}
    while len(answers) < 2:
        answers |= {worker.name: message for worker, message in here.receive()}
    assert answers == dict.fromkeys((first.name, second.name), PartitionsHeld((0, 1, 2, 3)))
    here.kill(first)
    here.recruit()
    here.join_all()
    (third,) = (worker for worker in here.workers.values() if worker.node == second.node and worker is not second)
    assert third.partitions == (0, 1, 2, 3)
    here.kill(second, third)
    here.recruit()
    here.join_all()
    assert [len(worker.partitions) for worker in here.workers.values() if worker.node == first.node] == [3, 3]

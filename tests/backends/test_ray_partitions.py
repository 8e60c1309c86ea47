"""What the workers of a Ray node are told to hold: their share, and copies within a budget."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.backends.ray_partitions import PartitionHolders
from hoptree.backends.ray_states import StateReferences
from hoptree.worker.messages import HoldPartitions, PartitionsHeld, decode_command, encode
from tests.system.plain import dataset


class Holding:
    """In place of an actor: it holds what it is told to, and has no other answers."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return Call(self if name == "hold_partitions" else None)


class Call:
    """In place of one of its methods, and of a reference to the result of a call."""

    def __init__(self, actor: Holding | None) -> None:
        self._actor = actor
        self._answer: Future[Any] = Future()

    def remote(self, *arguments: Any) -> Call:
        if self._actor is not None:
            command = decode_command(arguments[0])
            assert isinstance(command, HoldPartitions)
            self._actor.told.append(command.partitions)
            self._answer.set_result(encode(PartitionsHeld(command.partitions)))
        return self

    def future(self) -> Future[Any]:
        return self._answer


class Cluster:
    """Two nodes with two workers each, which hold the first and the last two of four partitions."""

    SHARES = {"a": (0, 1), "b": (2, 3)}  # noqa: RUF012 never changed

    def __init__(self, folder: Path, copies: float) -> None:
        data = dataset(folder, partitions=4)
        size = data.manifest.train[0].bytes
        assert {file.bytes for file in data.manifest.train} == {size}
        self.holders = PartitionHolders(data, copies * size)
        self.workers: list[RayWorkerHandle] = []
        self.holders.hold(self.SHARES, [])
        for node in "aabb":
            self.add(node)

    def add(self, node: str) -> RayWorkerHandle:
        """Start a worker, which begins with what its node holds."""
        name = f"{node}{len(self.workers)}"
        worker = RayWorkerHandle(name, node, Holding(), StateReferences(), lambda _: None, echo=False)
        worker.partitions = self.holders.of(node)
        worker.join()
        self.workers.append(worker)
        return worker

    def told(self, node: str) -> list[list[tuple[int, ...]]]:
        return [worker.actor.told for worker in self.workers if worker.node == node]

    def settle(self) -> None:
        """Let the workers answer."""
        for worker in self.workers:
            for message in worker.messages():
                assert isinstance(message, PartitionsHeld)
                worker.partitions = message.partitions


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, copies=1)


def test_all_workers_of_the_node_hold_the_copies(cluster: Cluster) -> None:
    cluster.holders.copy("b", (0,), cluster.workers)
    assert cluster.told("b") == [[(0, 2, 3)]] * 2
    assert cluster.told("a") == [[], []]
    assert cluster.holders.of("b") == (0, 2, 3)


@pytest.mark.parametrize("copies", [0, 0.9, 1, 1.9, 2, 5])
def test_copies_stay_within_the_budget_of_the_node(tmp_path: Path, copies: float) -> None:
    cluster = Cluster(tmp_path, copies)
    for partition in (0, 1, 1, 2):  # by workers that replace each other, so that the engine cannot count
        cluster.holders.copy("b", (partition,), cluster.workers)
    assert len(cluster.holders.of("b")) == 2 + min(2, int(copies))


def test_copies_survive_that_shares_are_computed_again(cluster: Cluster) -> None:
    cluster.holders.copy("b", (0,), cluster.workers)
    cluster.settle()
    assert cluster.holders.held == {"a": {0, 1}, "b": {2, 3}}, "shares do not follow copies"
    assert cluster.holders.hold(cluster.SHARES, cluster.workers) == []
    assert cluster.holders.of("b") == (0, 2, 3)
    assert cluster.add("b").partitions == (0, 2, 3), "a worker that replaces another one holds them too"


def test_a_copy_may_become_a_share(cluster: Cluster) -> None:
    cluster.holders.copy("b", (0,), cluster.workers)
    cluster.settle()
    alone = [worker for worker in cluster.workers if worker.node == "b"]
    cluster.holders.keep_nodes({"b"})
    cluster.holders.hold({"b": (0, 1, 2, 3)}, alone)
    assert cluster.holders.held == {"b": {0, 1, 2, 3}}
    assert cluster.told("b")[0][-1] == (0, 1, 2, 3)


def test_a_share_is_released_only_when_copies_have_arrived(cluster: Cluster) -> None:
    """Else an answer that is on its way says that the node holds what it is about to release."""
    cluster.holders.hold({"a": (0,), "b": (1, 2, 3)}, cluster.workers)
    cluster.holders.copy("b", (0,), cluster.workers)
    for worker in cluster.workers:
        if worker.node == "b":
            worker.partitions = (1, 2, 3)
    assert cluster.holders.hold({"a": (0,), "b": (1, 2, 3)}, cluster.workers) == []
    cluster.settle()
    released = cluster.holders.hold({"a": (0,), "b": (1, 2, 3)}, cluster.workers)
    assert [(worker.node, message) for worker, message in released] == [("a", PartitionsHeld((0,)))] * 2


def test_a_node_that_releases_takes_copies_afterwards(cluster: Cluster) -> None:
    target = {"a": (0,), "b": (1, 2, 3)}
    cluster.holders.hold(target, cluster.workers)
    cluster.settle()
    assert cluster.holders.hold(target, cluster.workers)
    cluster.holders.copy("a", (2,), cluster.workers)
    assert cluster.told("a") == [[], []], "a unit on the partition that it releases may be on its way"
    cluster.holders.hold(target, cluster.workers)
    assert cluster.told("a") == [[(0, 2)]] * 2


def test_a_node_without_workers_has_no_copies(cluster: Cluster) -> None:
    cluster.holders.copy("b", (0,), cluster.workers)
    cluster.holders.keep_copies({"a"})
    assert cluster.holders.of("b") == (2, 3)


def test_a_worker_that_fails_to_copy_goes_on_with_its_share(cluster: Cluster) -> None:
    first, second, third, _ = cluster.workers[2:] + cluster.workers[:2]
    cluster.holders.copy("b", (0,), cluster.workers)
    assert cluster.holders.give_up_copies(first, cluster.workers)
    assert cluster.holders.of("b") == (2, 3)
    assert cluster.holders.give_up_copies(second, cluster.workers), "it was told at the same time"
    assert cluster.told("b") == [[(0, 2, 3), (2, 3), (2, 3)]] * 2
    assert not cluster.holders.give_up_copies(first, cluster.workers), "then its share is what it cannot hold"
    assert not cluster.holders.give_up_copies(third, cluster.workers), "it was told of no copies"


def test_a_node_that_has_left_gets_none(cluster: Cluster) -> None:
    cluster.holders.keep_nodes({"a"})
    cluster.holders.copy("b", (0,), cluster.workers)
    assert cluster.told("b") == [[], []]

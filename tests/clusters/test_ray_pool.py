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
from hoptree.backends.state_tracker import StateLocation
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.store import FolderStates
from hoptree.worker.messages import HoldPartitions, WorkerMessage, WorkerReady
from hoptree.worker.model_cache import LostStateError
from tests.clusters.conftest import Nodes
from tests.system.plain import Plain, dataset, study

pytestmark = pytest.mark.slow


class Alone:
    """A pool without a backend: its members, and what is heard of them."""

    def __init__(self, folder: Path, settings: ht.Ray) -> None:
        from hoptree.backends.ray_pool import RayPool

        self.states = FolderStates(folder / "states")
        self.pool = RayPool(settings, Plain(), dataset(folder, partitions=4), self.states, "alone")
        self.members: dict[str, WorkerHandle] = {}

    def recruit(self) -> None:
        self.members |= {member.name: member for member in self.pool.recruit(self.members, 1)}

    def hear(self) -> list[tuple[WorkerHandle, WorkerMessage | None]]:
        """Return the next news that there are."""
        end = time.monotonic() + 900
        while time.monotonic() < end:
            found = self.pool.news(wait(self.pool.sources(), timeout=1.0))
            if found:
                return list(found)
        raise AssertionError("nothing was heard")

    def hear_on(self) -> None:
        """Listen until something is raised."""
        while True:
            self.hear()

    def greet(self) -> None:
        """Wait until everybody has said hello."""
        while not all(member.ready for member in self.members.values()):
            for member, news in self.hear():
                assert isinstance(news, WorkerReady)
                member.ready, member.partitions = True, news.partitions


@pytest.fixture
def alone(tmp_path: Path, nodes: Nodes) -> Iterator[Callable[..., Alone]]:
    made: list[Alone] = []

    def make(**settings: Any) -> Alone:
        made.append(Alone(tmp_path, nodes.where(**settings)))
        return made[-1]

    yield make
    for each in made:
        each.pool.close(list(each.members.values()), at_once=True, failed=False)


def test_a_node_that_another_job_uses_is_done_without(tmp_path: Path, nodes: Nodes) -> None:
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


def test_who_has_not_begun_is_not_asked_to_save(nodes: Nodes, alone: Callable[..., Alone]) -> None:
    """Another worker has taken the place of one that was killed, and has no store yet."""
    import ray

    nodes.add(1)
    here = alone()
    here.recruit()
    here.pool._references["slot"] = ray.put(({"w": np.ones(3)}, {"units": 1}))
    here.pool.write(StateLocation("aa", "slot", "killed", 24))
    assert here.states.get("aa")[0]["w"].tolist() == [1.0, 1.0, 1.0]


def test_a_state_that_went_with_its_node_cannot_be_saved(nodes: Nodes, alone: Callable[..., Alone]) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes.add(2)
    here = alone()
    here.recruit()
    here.greet()
    first = nodes.here[0].node_id
    near = ray.remote(num_cpus=0, max_retries=0)(lambda: ({"w": np.ones(60_000)}, {}))
    made: Any = near.options(scheduling_strategy=NodeAffinitySchedulingStrategy(first, soft=False)).remote()
    ray.wait([made], fetch_local=False)
    here.pool._references["slot"] = made
    nodes.remove(0)
    nodes.wait_for(2)
    with pytest.raises(LostStateError, match="the state aa is gone with its node"):
        here.pool.write(StateLocation("aa", "slot", next(iter(here.members)), 480_000))
    assert "aa" not in here.states


def test_partitions_that_no_node_can_bring_end_the_study(
    tmp_path: Path, nodes: Nodes, alone: Callable[..., Alone]
) -> None:
    nodes.add(2)
    here = alone(copy=True)
    here.recruit()
    here.greet()
    for file in (tmp_path / "data").glob("*.arrow"):
        file.unlink()
    for member in here.members.values():
        member.send(HoldPartitions((0, 1, 2, 3)))
    with pytest.raises(ht.RefusedError, match=r"node \w+: FileNotFoundError: .*train-0000\d\.arrow"):
        here.hear_on()

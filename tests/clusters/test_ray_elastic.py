"""Nodes that come when a run asks for them, and are given back at once: the same bits as on one machine."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.backends import Backend, TrainingJob
from hoptree.backends.choice import node_offer
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.protocol import NodeOffer, ScalesNodes, Task
from hoptree.backends.ray_settings import RayPoolOptions
from hoptree.core.events import (
    Event,
    NodeLost,
    NodeReleased,
    NodeStarted,
    StateEvaluated,
    StateLost,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.elastic.instance import Instance
from tests.clusters.conftest import Nodes
from tests.clusters.scaling import autoscaling_cluster, wait_for
from tests.clusters.test_ray import events, prints, some_study
from tests.system.plain import Plain
from tests.testing.test_backends import NoLedger

pytestmark = pytest.mark.slow

SMALL = Instance("small", devices=1, price=1.0)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return prints(some_study(tmp_path_factory.mktemp("local") / "s").run(workers=1))


@pytest.fixture(scope="module")
def scaling() -> Iterator[str]:
    types = {
        "small": {"resources": {"CPU": 1, "small": 1}},
        "pair": {"resources": {"CPU": 2}, "labels": {"kind": "pair"}},
    }
    with autoscaling_cluster(types) as address:
        yield address


def small(address: str) -> ht.Ray:
    """Return settings by which workers fit small nodes only: Ray's first autoscaler does not know labels."""
    return ht.Ray(address=address, resources_per_worker={"CPU": 1, "small": 1})


class Scripted:
    """A Ray backend that scales when so many units were trained, and goes on when the nodes are there.

    ``script`` are calls by numbers of units; each returns the events that have to happen before the next unit ends.
    """

    def __init__(self, where: ht.Ray, instance: Instance, script: dict[int, Callable[[Scripted], Counter[type]]]):
        self.where = where
        self.instance = instance
        self.script = dict(script)
        self.nodes: list[str] = []  # that have started, in this order
        self._inner: Any = None
        self._units = 0
        self._due: Counter[type] = Counter()
        self._held: list[Event] = []

    def open(self, job: TrainingJob) -> Backend:
        from hoptree.backends.ray_pool import RayPool

        options = RayPoolOptions(instance=self.instance)
        pool = RayPool(self.where, job.trainer, job.dataset, job.states, job.study, options)
        self._inner = PoolBackend(pool, job.states, seed=job.seed, ledger=NoLedger())
        return self

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        assert isinstance(self._inner, ScalesNodes)
        self._inner.scale(nodes, release)

    def start(self) -> None:
        self._act()
        self._inner.start()

    def submit(self, action: Task) -> None:
        self._inner.submit(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        now, found = self._inner.wait(None if not self._held or self._due else 0.0)
        for event in found:
            self._due[type(event)] -= self._due[type(event)] > 0
            if isinstance(event, NodeStarted):
                self.nodes.append(event.node)
        self._due = +self._due
        self._held += [event for event in found if isinstance(event, UnitFinished | StateEvaluated)]
        events = [event for event in found if event not in self._held]
        while self._held and not self._due:
            events.append(self._held.pop(0))
            self._units += isinstance(events[-1], UnitFinished)
            self._act()
        return now, events

    def stop(self, *, failed: bool) -> None:
        self._inner.stop(failed=failed)

    def _act(self) -> None:
        if (act := self.script.pop(self._units, None)) is not None:
            self._due = act(self)


def scaled(count: int, release: Sequence[int] = (), **due: int) -> Callable[[Scripted], Counter[type]]:
    """Return a step of a script; nodes are released by their numbers."""
    types = {"started": NodeStarted, "joined": WorkerJoined, "released": NodeReleased, "lost": NodeLost}

    def act(backend: Scripted) -> Counter[type]:
        backend.scale(count, [backend.nodes[number] for number in release])
        return Counter({types[name]: number for name, number in due.items()})

    return act


def nodes_alive(address: str) -> int:
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        return sum(node["Alive"] for node in ray.nodes()) - 1
    finally:
        ray.shutdown()


def test_nodes_come_and_go_as_the_run_asks(tmp_path: Path, scaling: str, expected: list[str]) -> None:
    script = {
        0: scaled(1, started=1, joined=1),
        2: scaled(3, started=2, joined=2),
        6: scaled(1, release=[0], released=2),
    }
    backend = Scripted(small(scaling), SMALL, script)
    assert prints(some_study(tmp_path / "s").run(backend=backend)) == expected
    assert not backend.script
    seen = events(tmp_path / "s")
    started = [event for event in seen if isinstance(event, NodeStarted)]
    assert [event.devices for event in started] == [1, 1, 1]
    assert all(event.waited > 0 for event in started)
    released = {event.node for event in seen if isinstance(event, NodeReleased)}
    assert released == {started[0].node, started[2].node}  # the one that was named, and the one that came last
    assert not [event for event in seen if isinstance(event, StateLost | UnitFailed | NodeLost)]
    joined = [event for event in seen if isinstance(event, WorkerJoined)]
    assert {event.node for event in joined} == {event.node for event in started}
    wait_for(lambda: nodes_alive(scaling) == 0, "nodes are not given back")


def test_states_in_the_object_store_do_not_keep_a_node(tmp_path: Path, scaling: str) -> None:
    script = {
        0: scaled(2, started=2, joined=2),
        6: scaled(1, release=[0], released=1),
        9: scaled(2, started=1, joined=1),
        12: scaled(1, release=[1], released=1),
    }
    backend = Scripted(small(scaling), SMALL, script)
    results = some_study(tmp_path / "s", trainer=Plain(size=60_000)).run(backend=backend)
    (tmp_path / "l").mkdir()
    assert prints(results) == prints(some_study(tmp_path / "l", trainer=Plain(size=60_000)).run(workers=1))
    assert not backend.script
    seen = events(tmp_path / "s")
    assert [event.node for event in seen if isinstance(event, NodeReleased)] == backend.nodes[:2]
    assert not [event for event in seen if isinstance(event, StateLost | UnitFailed | NodeLost)]


def test_a_node_that_dies_costs_retries_only(tmp_path: Path, scaling: str, expected: list[str]) -> None:
    def kill(backend: Scripted) -> Counter[type]:
        kill_node(backend.nodes[0])
        return Counter({NodeLost: 1, WorkerLost: 1})

    script = {0: scaled(2, started=2, joined=2), 5: kill}
    backend = Scripted(small(scaling), SMALL, script)
    assert prints(some_study(tmp_path / "s").run(backend=backend)) == expected
    assert not backend.script
    seen = events(tmp_path / "s")
    assert [event.node for event in seen if isinstance(event, NodeLost)] == backend.nodes[:1]
    assert not [event for event in seen if isinstance(event, UnitFailed) and event.fault == "user"]
    wait_for(lambda: nodes_alive(scaling) == 0, "nodes are not given back")


def kill_node(node: str) -> None:
    """Kill the processes of a node with signal 9: those that have its id in their environment."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and node.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def test_workers_start_on_all_devices_of_an_instance(tmp_path: Path, scaling: str, expected: list[str]) -> None:
    where = ht.Ray(address=scaling, instance_label="kind")
    backend = Scripted(where, Instance("pair", devices=2, price=1.0), {0: scaled(1, started=1, joined=2)})
    assert prints(some_study(tmp_path / "s").run(backend=backend)) == expected
    seen = events(tmp_path / "s")
    (started,) = (event for event in seen if isinstance(event, NodeStarted))
    assert started.devices == 2
    assert {event.node for event in seen if isinstance(event, WorkerJoined)} == {started.node}


def test_an_instance_that_the_cluster_does_not_offer_is_refused(tmp_path: Path, scaling: str) -> None:
    large = Instance("large", devices=4, price=1.0)
    where = small(scaling)
    assert node_offer(where, large, Plain()) == NodeOffer(scales=True, nodes=0, offered=None)
    with pytest.raises(ht.RefusedError, match=r"instance: 'large'.*starts no node with 4 CPU"):
        some_study(tmp_path / "s").run(backend=Scripted(where, large, {}))
    assert nodes_alive(scaling) == 0


def test_without_an_autoscaler_the_number_of_nodes_is_fixed(
    tmp_path: Path, nodes: Nodes, expected: list[str]
) -> None:
    nodes.add(2)
    nodes.wait_for(3)
    assert node_offer(nodes.where(), SMALL, Plain()) == NodeOffer(scales=False, nodes=2, offered=True)
    backend = Scripted(nodes.where(), SMALL, {0: scaled(5, started=2, joined=2), 4: scaled(1)})
    assert prints(some_study(tmp_path / "s").run(backend=backend)) == expected
    seen = events(tmp_path / "s")
    assert [type(event) for event in seen if isinstance(event, NodeStarted | NodeReleased | NodeLost)] == [
        NodeStarted
    ] * 2


def test_an_instance_is_refused_where_nothing_has_room_for_its_workers(tmp_path: Path, nodes: Nodes) -> None:
    nodes.wait_for(1)
    assert node_offer(nodes.where(), SMALL, Plain()) == NodeOffer(scales=False, nodes=0, offered=False)
    with pytest.raises(ht.RefusedError, match=r"instance: 'small'.*no autoscaler"):
        some_study(tmp_path / "s").run(backend=Scripted(nodes.where(), SMALL, {}))

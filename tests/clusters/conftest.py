"""A real Ray cluster of several nodes on this machine, with its door closed, started once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import hoptree as ht


class Nodes:
    """The cluster of a test: a head that trains nothing, and nodes that come and go."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.here: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, count: int = 1, cpus: int = 1, **environment: str) -> None:
        """Start nodes; their workers have these environment variables."""
        for _ in range(count):
            node = self._cluster.add_node(
                num_cpus=cpus, object_store_memory=100 * 1024**2, env_vars=environment or None
            )
            self.here.append(node)

    def remove(self, index: int = 0) -> None:
        """Kill a node: its processes end with signal 9, and nobody is told."""
        self._cluster.remove_node(self.here.pop(index), allow_graceful=False)

    def wait_for(self, count: int) -> None:
        """Wait until so many nodes are alive, the head among them."""
        end = time.monotonic() + 900
        while sum(node["Alive"] for node in self._cluster.global_state.node_table()) != count:
            assert time.monotonic() < end
            time.sleep(0.1)

    def clear(self) -> None:
        while self.here:
            self.remove()
        self._cluster.wait_for_nodes()

    def where(self, **settings: Any) -> ht.Ray:
        return ht.Ray(address=self.address, **settings)


@contextmanager
def token_required() -> Iterator[None]:
    """Have clusters ask for a token, also on a machine that has none yet."""
    from hoptree.backends.ray_cluster import require_token, set_authentication

    require_token()
    yield
    set_authentication({"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    system = {"health_check_period_ms": 500, "health_check_failure_threshold": 4, "health_check_timeout_ms": 2000}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": system}
    with token_required():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def nodes(cluster: Any) -> Iterator[Nodes]:
    found = Nodes(cluster)
    yield found
    found.clear()


@pytest.fixture
def look(cluster: Any) -> Iterator[Callable[[], Any]]:
    """Look into the cluster from outside, as another job: what actors are alive, and where."""
    import ray
    from ray._private.state import actors

    def alive() -> list[dict[str, Any]]:
        return [actor for actor in actors().values() if actor["State"] != "DEAD"]

    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield alive
    ray.shutdown()

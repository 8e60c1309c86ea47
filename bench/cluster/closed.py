"""A Ray cluster of several nodes on this machine, closed to others, and what can be seen of it from outside."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, final

from bench.speed.race import RAY

PATIENCE = 60.0  # seconds


def close_doors() -> None:
    """Have every cluster and every program from here on ask for a token, and listen on 127.0.0.1 only.

    Ray reads this when it is imported, so this is called first.
    """
    os.environ.update(RAY, RAY_AUTH_TOKEN=secrets.token_hex(32))


class Shape(NamedTuple):
    """So many nodes, and what each has: CPUs, that is workers, and bytes of object store."""

    nodes: int
    cpus: int = 1
    memory: int = 1 << 30

    def __str__(self) -> str:
        return f"{self.nodes} {'node' if self.nodes == 1 else 'nodes'} of {self.cpus} CPU{'s' * (self.cpus > 1)}"


@contextmanager
def cluster(shape: Shape, folder: Path, *, head: bool = False, **system: int) -> Iterator[str]:
    """Start a cluster with settings of Ray's; give its address, and stop it.

    ``head``: the first node is the head, as on small clusters; else the head is one more, which trains nothing.
    """
    from ray.cluster_utils import Cluster

    has = {"num_cpus": shape.cpus, "object_store_memory": shape.memory}
    first = {"include_dashboard": False, "temp_dir": str(folder / "ray"), "_system_config": system}
    started = Cluster(initialize_head=True, head_node_args={**first, **(has if head else {"num_cpus": 0})})
    try:
        for _ in range(shape.nodes - head):
            started.add_node(**has)
        yield str(started.address)
    finally:
        started.shutdown()


class Store(NamedTuple):
    """What a node's object store says of itself, in bytes."""

    used: int
    referred: int  # in use; the rest is evicted when memory is needed
    created: int  # since it began: created there, or fetched from other nodes
    spilled: int  # since it began: written to disk because memory was full


class Worker(NamedTuple):
    """An actor: its process, and its node."""

    pid: int
    node: str


@final
class Observer:
    """Looks at a cluster as a job of its own, which neither runs nor keeps anything."""

    def __init__(self, address: str) -> None:
        import ray

        ray.init(address=address, log_to_driver=False, logging_level="ERROR")

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        ray.shutdown()

    def stores(self) -> dict[str, Store]:
        """Return every node's object store."""
        import ray
        from ray._private.internal_api import node_stats

        found = {}
        for node in ray.nodes():
            if node["Alive"]:
                asked: Any = node_stats(
                    node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False
                )
                stats = asked.store_stats
                found[node["NodeID"]] = Store(
                    stats.object_store_bytes_used,
                    stats.object_store_bytes_primary_copy,
                    stats.cumulative_created_bytes,
                    stats.spilled_bytes_total,
                )
        return found

    def workers(self) -> list[Worker]:
        """Return the actors that are alive."""
        from ray._private.state import actors

        alive = [actor for actor in actors().values() if actor["State"] == "ALIVE"]
        return [Worker(actor["Pid"], actor["Address"]["NodeID"]) for actor in alive]

    def references(self) -> int:
        """Return how many references to objects any process of the cluster holds."""
        import ray
        from ray._private.internal_api import node_stats

        found: Any = [
            node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).core_workers_stats
            for node in ray.nodes()
            if node["Alive"]
        ]
        return sum(len(worker.object_refs) for workers in found for worker in workers)

    def settled(self) -> dict[str, Store]:
        """Return the stores when they are empty and no actor is left, or as they are when patience ends."""
        end = time.monotonic() + PATIENCE
        while True:
            stores = self.stores()
            if time.monotonic() > end or not (self.workers() or any(store.used for store in stores.values())):
                return stores
            time.sleep(0.1)


def nodes_of() -> list[str]:
    """Return the nodes of the cluster that this process is connected to, without its head."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def on_node(what: Any, node: str) -> Any:
    """Return a function as a task, or a class as an actor, of that node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=1)(what).options(scheduling_strategy=strategy)

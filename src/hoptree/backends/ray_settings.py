"""The settings of a Ray cluster; Ray itself is imported only when a study runs on it."""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance

_LEAST = 0.0001  # of a resource: Ray's resolution


@final
class Ray(msgspec.Struct, frozen=True):
    """Train on a Ray cluster.

    ``address`` is the cluster's; by default that of ``RAY_ADDRESS``, else a cluster is started on this machine
    and stopped at the end. ``workers`` defaults to one per GPU of the cluster if the trainer may use it, else
    one per the trainer's ``threads`` CPUs; ``resources_per_worker`` sets what a worker takes instead, for
    example ``{"GPU": 1, "CPU": 4}``, with ``memory`` in bytes. ``replicas`` is the number of nodes that hold
    each partition. ``copy`` says whether nodes copy their partitions from the dataset's folder to a local disk
    (by default, nodes on other machines than the driver do). ``autoscale`` requests nodes from Ray's autoscaler
    while there is work for them, and releases them afterwards. ``instance_label`` is the label of nodes that names
    their instance type, for runs with an instance. ``runtime_env`` is Ray's, for code that nodes do not have.
    """

    address: str | None = None
    workers: int | None = None
    resources_per_worker: dict[str, float] = {}
    replicas: int = 1
    copy: bool | None = None
    autoscale: bool = False
    dashboard: bool = False
    runtime_env: dict[str, Any] = {}
    instance_label: str = "ray.io/node-group"

    def __post_init__(self) -> None:
        if self.address is not None and (not isinstance(self.address, str) or not self.address):
            raise WorkloadError(f"address: {self.address!r}; expected HOST:PORT of a cluster, 'auto' or 'local'")
        if self.workers is not None:
            check_count("workers", self.workers)
        check_count("replicas", self.replicas)
        _check_resources(self.resources_per_worker)
        _check_flag("copy", self.copy, None)
        _check_flag("autoscale", self.autoscale)
        _check_flag("dashboard", self.dashboard)
        if not isinstance(self.runtime_env, dict):
            raise WorkloadError(
                f"runtime_env: {self.runtime_env!r}; expected a dictionary that ray.init accepts, for example "
                "{'pip': ['torch']}"
            )
        if not isinstance(self.instance_label, str) or not self.instance_label:
            raise WorkloadError(
                f"instance_label: {self.instance_label!r}; expected the name of a label of nodes, for example "
                "'ray.io/node-group'"
            )
        if self.autoscale and self.workers is None:
            raise WorkloadError("autoscale=True: give workers=…, the largest number of workers")
        if self.workers is not None and self.replicas > self.workers:
            raise WorkloadError(
                f"replicas: {self.replicas}, but workers: {self.workers}; each copy of a partition needs a node "
                "with a worker: ask for as many workers, or for fewer replicas"
            )

    def asked(self, workers: int | None) -> Ray:
        """Return these settings with the number of workers that ``run`` was given."""
        return self if workers is None else msgspec.structs.replace(self, workers=workers)


@final
class RayPoolOptions(msgspec.Struct, frozen=True):
    """Options of a pool of Ray workers.

    ``heartbeat`` is the seconds between two heartbeats, ``memory`` the limit of a worker in bytes, 0 if there is
    none. A node that holds a part of the data may take ``copies`` of so many bytes. ``instance`` is the type of the
    nodes if these are paid for: then nodes come and go as the run asks.
    """

    heartbeat: float = beat_interval(LIMIT)
    memory: int = 0
    copies: int = 0
    instance: Instance | None = None


def check_count(name: str, value: object) -> None:
    """Raise an error unless this is a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WorkloadError(f"{name}: {value!r}; expected a whole number")
    if value < 1:
        raise WorkloadError(f"{name}: {value}; expected at least 1")


def _check_flag(name: str, value: object, *others: object) -> None:
    if not isinstance(value, bool) and value not in others:
        raise WorkloadError(f"{name}: {value!r}; expected True or False")


def _check_resources(resources: object) -> None:
    example = 'for example {"GPU": 1, "CPU": 4}'
    if not isinstance(resources, dict):
        raise WorkloadError(f"resources_per_worker: {resources!r}; expected names with amounts, {example}")
    for name, amount in resources.items():
        if not isinstance(name, str) or not name:
            raise WorkloadError(
                f"resources_per_worker: {name!r} is not the name of a resource; expected one, {example}"
            )
        if name == "object_store_memory":
            raise WorkloadError(
                "resources_per_worker: object_store_memory belongs to nodes; set it in `ray start`, and give a "
                "worker's memory as memory, in bytes"
            )
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
            raise WorkloadError(f"resources_per_worker: {name} is {amount!r}; expected a number above 0")
        if amount < _LEAST:
            raise WorkloadError(
                f"resources_per_worker: {name} is {amount}; expected at least {_LEAST}, Ray's smallest amount"
            )

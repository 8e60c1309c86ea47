"""A Ray cluster as a user describes it; Ray itself is imported when a study runs there."""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.core.errors import WorkloadError

_LEAST = 0.0001  # of a resource: Ray counts in such steps


@final
class Ray(msgspec.Struct, frozen=True):
    """Where to train: a Ray cluster.

    ``address`` is a cluster's; without one it is that of ``RAY_ADDRESS``, or a cluster is started on this machine
    and stopped at the end. ``workers`` defaults to one per GPU of the cluster, or per ``threads`` CPUs of the
    trainer; ``resources_per_worker`` says what one takes instead, for example ``{"GPU": 1, "CPU": 4}``; ``memory``
    is in bytes.
    ``replicas`` is on how many nodes each partition lies. ``copy`` says whether nodes copy their partitions from
    the dataset's folder to a disk of their own (by default those on other machines than the driver do).
    ``autoscale`` asks Ray's autoscaler for nodes while there is work for them, and lets them go when there is
    not. ``runtime_env`` is Ray's, for code that nodes do not have.
    """

    address: str | None = None
    workers: int | None = None
    resources_per_worker: dict[str, float] = {}
    replicas: int = 1
    copy: bool | None = None
    autoscale: bool = False
    dashboard: bool = False
    runtime_env: dict[str, Any] = {}

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
                f"runtime_env: {self.runtime_env!r}; expected a dictionary as ray.init takes it, for example "
                "{'pip': ['torch']}"
            )
        if self.autoscale and self.workers is None:
            raise WorkloadError("autoscale=True: give workers=…, the most that may be asked for")
        if self.workers is not None and self.replicas > self.workers:
            raise WorkloadError(
                f"replicas: {self.replicas}, but workers: {self.workers}; each copy of a partition lies on a node "
                "with a worker: ask for as many workers, or for fewer replicas"
            )

    def asked(self, workers: int | None) -> Ray:
        """Return these settings with the number of workers that ``run`` was given."""
        return self if workers is None else msgspec.structs.replace(self, workers=workers)


def check_count(name: str, value: object) -> None:
    """Refuse what is not a number of things."""
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
            raise WorkloadError(f"resources_per_worker: {name!r} is no name of a resource; expected one, {example}")
        if name == "object_store_memory":
            raise WorkloadError(
                "resources_per_worker: object_store_memory belongs to nodes; set it in `ray start`, and what a "
                "worker takes as memory, in bytes"
            )
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
            raise WorkloadError(f"resources_per_worker: {name} is {amount!r}; expected a number above 0")
        if amount < _LEAST:
            raise WorkloadError(
                f"resources_per_worker: {name} is {amount}; expected at least {_LEAST}: Ray's least"
            )

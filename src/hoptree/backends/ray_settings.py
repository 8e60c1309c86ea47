"""A Ray cluster as a user describes it; Ray itself is imported when a study runs there."""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.core.errors import WorkloadError


@final
class Ray(msgspec.Struct, frozen=True):
    """Where to train: a Ray cluster.

    ``address`` is a cluster's; without one it is that of ``RAY_ADDRESS``, or a cluster is started on this machine
    and stopped at the end. ``workers`` defaults to one per GPU of the cluster, or per ``threads`` CPUs of the
    trainer; ``resources_per_worker`` says what one takes instead, for example ``{"GPU": 1, "CPU": 4}``.
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
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 1):
            raise WorkloadError(f"workers: {self.workers!r}; expected at least 1")
        if not isinstance(self.replicas, int) or self.replicas < 1:
            raise WorkloadError(f"replicas: {self.replicas!r}; expected at least 1")
        for name, amount in self.resources_per_worker.items():
            if not isinstance(amount, int | float) or not 0 < amount < float("inf"):
                raise WorkloadError(f"resources_per_worker: {name} is {amount!r}; expected a number above 0")
        if self.autoscale and self.workers is None:
            raise WorkloadError("autoscale=True: give workers=…, the most that may be asked for")

    def asked(self, workers: int | None) -> Ray:
        """Return these settings with the number of workers that ``run`` was given."""
        return self if workers is None else msgspec.structs.replace(self, workers=workers)

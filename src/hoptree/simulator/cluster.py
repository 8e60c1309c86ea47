"""A simulated cluster: its workers, their partitions, their speed and the network between them."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.simulator.elastic_nodes import ElasticNodes
from hoptree.simulator.faults import Crash, Fault, NodeLoss
from hoptree.simulator.scaling import check_nodes, check_scaling, share


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker; with empty ``partitions`` the cluster places them by its replicas."""

    name: str
    speed: float = 1.0
    partitions: tuple[int, ...] = ()
    joins: float = 0.0
    machine: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise WorkloadError(f"workers: {self.name} has speed {self.speed}; expected a number above 0")
        if not (math.isfinite(self.joins) and self.joins >= 0):
            raise WorkloadError(f"workers: {self.name} joins at {self.joins}; expected a time >= 0")


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that a workload runs on.

    ``noise`` is the relative spread of unit times (log-normal), ``stragglers`` the fraction of units that take
    ``straggling`` times as long, ``bandwidth`` the bytes per second of a hop (0: hops take no time),
    ``provisioning`` the delay of every worker before it joins.

    With ``nodes`` there is a worker for each device of each node, and a node holds partitions in proportion to its
    devices. ``scaling`` says by layout how much faster a unit is on several devices: ``"linear"``, or speed-ups by
    the number of devices, powers of two. Without it every unit is trained by one device. ``replicate_idle`` is how
    many bytes of other nodes' partitions an idle node may copy, and ``partition_bytes`` the size of each.

    With ``elastic`` nodes come and go as they are requested and given back.
    """

    workers: int | list[WorkerSpec] = 8
    nodes: list[int] = []
    elastic: ElasticNodes | None = None
    replicate_idle: float = 0.0
    partition_bytes: float = 1.0
    scaling: dict[str, Literal["linear"] | dict[int, float]] = {}
    replicas: int = 1
    bandwidth: float = 0.0
    latency: float = 0.0
    noise: float = 0.0
    stragglers: float = 0.0
    straggling: float = 3.0
    provisioning: float = 0.0
    faults: list[Fault] = []

    def __post_init__(self) -> None:
        if not isinstance(self.workers, int | list):
            raise WorkloadError(f"workers: {self.workers!r}; expected a number or a list of workers")
        if isinstance(self.workers, int):
            if self.workers < 1:
                raise WorkloadError(f"workers: {self.workers}; expected at least one")
        elif not self.workers:
            raise WorkloadError("workers: an empty list; expected at least one worker")
        else:
            names = [worker.name for worker in self.workers]
            repeated = next((name for name in names if names.count(name) > 1), None)
            if repeated is not None:
                raise WorkloadError(f"workers: two are named {repeated!r}; expected different names")
        if self.nodes:
            check_nodes(self.nodes)
        check_scaling(self.scaling)
        self._check_elastic()
        count = len(self._specs())
        if self.nodes and (self.workers != 8 or self.replicas != 1):
            raise WorkloadError("nodes: given beside workers or replicas; expected one or the other")
        if not isinstance(self.replicas, int) or not 1 <= self.replicas <= count:
            raise WorkloadError(f"replicas: {self.replicas} on {count} workers; expected 1 to {count}")
        for field in ("bandwidth", "latency", "noise", "provisioning", "replicate_idle", "partition_bytes"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
                raise WorkloadError(f"{field}: {value}; expected a finite number, 0 or more")
        if not 0 <= self.stragglers < 1:
            raise WorkloadError(f"stragglers: {self.stragglers}; expected a share from 0 to below 1")
        if not (math.isfinite(self.straggling) and self.straggling >= 1):
            raise WorkloadError(f"straggling: {self.straggling}; expected a factor of 1 or more")

    def _check_elastic(self) -> None:
        if self.elastic is None:
            if any(isinstance(fault, NodeLoss) for fault in self.faults):
                raise WorkloadError("faults: a node is lost; expected Cluster(elastic=ElasticNodes(…))")
            return
        if self.nodes or self.workers != 8 or self.replicas != 1:
            raise WorkloadError(
                "elastic: given beside workers, nodes or replicas; expected one of them; "
                "the nodes that there are at first are ElasticNodes(begin=…)"
            )
        if any(isinstance(fault, Crash) for fault in self.faults):
            raise WorkloadError("faults: a worker crashes; expected NodeLoss, since nodes come and go")

    def placed(self, partitions: int) -> list[WorkerSpec]:
        """Return the workers with their partitions; raise an error if a partition could never be trained.

        Partitions are assigned in turn, and each is also placed on the next ``replicas - 1`` workers.
        """
        if self.elastic is not None:
            return []
        if self.nodes:
            return self._placed_on_nodes(partitions)
        specs = self._specs()
        count = len(specs)
        placed: list[WorkerSpec] = []
        for index, spec in enumerate(specs):
            own_partitions = spec.partitions or tuple(
                partition
                for partition in range(partitions)
                if any((partition + copy) % count == index for copy in range(self.replicas))
            )
            if count > partitions and not spec.partitions:
                own_partitions = tuple(sorted({(index + copy) % partitions for copy in range(self.replicas)}))
            placed.append(msgspec.structs.replace(spec, partitions=own_partitions))
        self._check(placed, partitions)
        return placed

    def _specs(self) -> list[WorkerSpec]:
        """Return the workers as they are given, without their partitions."""
        if self.nodes:
            return [
                WorkerSpec(name=f"n{node}.{device}", machine=f"n{node}")
                for node, devices in enumerate(self.nodes)
                for device in range(devices)
            ]
        if isinstance(self.workers, int):
            return [WorkerSpec(name=f"w{index}") for index in range(self.workers)]
        return self.workers

    def _placed_on_nodes(self, partitions: int) -> list[WorkerSpec]:
        """Give each node partitions in proportion to its devices; all its devices hold them."""
        holders = share(partitions, self.nodes)
        placed = [
            msgspec.structs.replace(
                spec, partitions=tuple(p for p, node in enumerate(holders) if spec.machine == f"n{node}")
            )
            for spec in self._specs()
        ]
        self._check(placed, partitions)
        return placed

    def _check(self, placed: list[WorkerSpec], partitions: int) -> None:
        for spec in placed:
            for partition in spec.partitions:
                if not 0 <= partition < partitions:
                    raise WorkloadError(
                        f"workers: {spec.name} holds partition {partition}; expected 0 to {partitions - 1}"
                    )
        names = {spec.name for spec in placed}
        for fault in self.faults:
            if isinstance(fault, Crash) and fault.worker not in names:
                raise WorkloadError(f"faults: {fault.worker!r} crashes, but no worker has that name")
        for partition in range(partitions):
            if not any(partition in spec.partitions for spec in placed):
                raise WorkloadError(f"partitions: no worker holds partition {partition}; place it on a worker")

"""Simulation: workloads, clusters, costs, faults and a virtual clock."""

from hoptree.simulator.cluster import Cluster, WorkerSpec
from hoptree.simulator.faults import Crash, Fault, FlakyUnits, StateLoss
from hoptree.simulator.workload import Workload

__all__ = ["Cluster", "Crash", "Fault", "FlakyUnits", "StateLoss", "WorkerSpec", "Workload"]

"""Hoptree finds the best deep net on your data for the least compute, reproducible bit by bit."""

from hoptree import optimize
from hoptree.core.errors import (
    HoptreeError,
    InvariantError,
    MissingExtraError,
    ProtocolError,
    ScheduleError,
    WorkloadError,
)
from hoptree.core.schedules import (
    Schedule,
    constant,
    cosine,
    cyclic,
    exponential,
    linear,
    multistep,
    piecewise,
    warmup,
)
from hoptree.simulation import Simulation, simulate
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Crash",
    "FlakyUnits",
    "HoptreeError",
    "InvariantError",
    "MissingExtraError",
    "ProtocolError",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "StateLoss",
    "WorkerSpec",
    "Workload",
    "WorkloadError",
    "__version__",
    "constant",
    "cosine",
    "cyclic",
    "exponential",
    "linear",
    "multistep",
    "optimize",
    "piecewise",
    "simulate",
    "warmup",
]

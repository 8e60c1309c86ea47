"""Backends: where units run."""

from hoptree.backends.job import BackendSettings, TrainingJob
from hoptree.backends.protocol import Backend, FindsStates, ReportsTraffic, Wakeable
from hoptree.backends.simulated import SimulatedBackend

__all__ = [
    "Backend",
    "BackendSettings",
    "FindsStates",
    "ReportsTraffic",
    "SimulatedBackend",
    "TrainingJob",
    "Wakeable",
]

"""Backends: where units run."""

from hoptree.backends.job import BackendSettings, TrainingJob
from hoptree.backends.protocol import Accounts, Backend, FindsStates, Wakes
from hoptree.backends.simulated import SimulatedBackend

__all__ = [
    "Accounts",
    "Backend",
    "BackendSettings",
    "FindsStates",
    "SimulatedBackend",
    "TrainingJob",
    "Wakes",
]

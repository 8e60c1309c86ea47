"""Backends: where units run."""

from hoptree.backends.protocol import Backend
from hoptree.backends.simulated import SimulatedBackend

__all__ = ["Backend", "SimulatedBackend"]

"""Hoptree finds the best deep net on your data for the least compute, reproducible bit by bit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hoptree import optimize
from hoptree.core.errors import (
    HoptreeError,
    InvariantError,
    MissingExtraError,
    ProtocolError,
    RefusedError,
    ScheduleError,
    StudyChangedError,
    WorkloadError,
)
from hoptree.core.schedules import Schedule
from hoptree.search.asha import ASHA
from hoptree.search.grid import Grid
from hoptree.search.hyperband import Hyperband
from hoptree.search.median_stopping import MedianStopping
from hoptree.search.optuna import Optuna
from hoptree.search.pbt import PBT
from hoptree.search.random import Random
from hoptree.search.schedules import (
    constant,
    cosine,
    cyclic,
    exponential,
    linear,
    multistep,
    piecewise,
    warmup,
)
from hoptree.search.space import SpaceError, choice, integer, log, uniform, where
from hoptree.search.successive_halving import SuccessiveHalving
from hoptree.simulation import Simulation, simulate
from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload

if TYPE_CHECKING:
    from hoptree import plot
    from hoptree.backends.ray_settings import Ray
    from hoptree.data import Dataset
    from hoptree.group import run
    from hoptree.results import Results
    from hoptree.study import Study
    from hoptree.trainers import Functions, Torch, Trainer, accuracy

__version__ = "0.1.0"

__all__ = [
    "ASHA",
    "PBT",
    "Cluster",
    "Crash",
    "Dataset",
    "FlakyUnits",
    "Functions",
    "Grid",
    "HoptreeError",
    "Hyperband",
    "InvariantError",
    "MedianStopping",
    "MissingExtraError",
    "Optuna",
    "ProtocolError",
    "Random",
    "Ray",
    "RefusedError",
    "Results",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "SpaceError",
    "StateLoss",
    "Study",
    "StudyChangedError",
    "SuccessiveHalving",
    "Torch",
    "Trainer",
    "WorkerSpec",
    "Workload",
    "WorkloadError",
    "__version__",
    "accuracy",
    "choice",
    "constant",
    "cosine",
    "cyclic",
    "exponential",
    "integer",
    "linear",
    "log",
    "multistep",
    "optimize",
    "piecewise",
    "plot",
    "run",
    "simulate",
    "uniform",
    "warmup",
    "where",
]

# What training needs is imported when it is used: `import hoptree` stays fast.
_LATER = {
    "Dataset": "hoptree.data",
    "Functions": "hoptree.trainers",
    "Ray": "hoptree.backends.ray_settings",
    "Results": "hoptree.results",
    "Study": "hoptree.study",
    "Torch": "hoptree.trainers",
    "Trainer": "hoptree.trainers",
    "accuracy": "hoptree.trainers",
    "run": "hoptree.group",
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("hoptree.plot")
    if name not in _LATER:
        raise AttributeError(f"module 'hoptree' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)

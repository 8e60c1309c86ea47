"""Hoptree finds the best deep net on your data for the least compute, reproducible bit by bit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from hoptree import optimize
    from hoptree.backends.plugins import load_plugin, plugins
    from hoptree.backends.ray_settings import Ray
    from hoptree.core.policies import Policy
    from hoptree.core.schedules import Schedule
    from hoptree.data import Dataset
    from hoptree.elastic.instance import Instance
    from hoptree.forecast.simulation import Simulation, simulate
    from hoptree.identity.files import file
    from hoptree.mirror.wandb_mirror import WandB
    from hoptree.record.results import Results
    from hoptree.report import plot
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
    from hoptree.simulator import Cluster, Crash, FlakyUnits, StateLoss, WorkerSpec, Workload
    from hoptree.study.run_studies import run
    from hoptree.study.study import Study
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
    "Instance",
    "InvariantError",
    "MedianStopping",
    "MissingExtraError",
    "Optuna",
    "Policy",
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
    "WandB",
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
    "file",
    "integer",
    "linear",
    "load_plugin",
    "log",
    "multistep",
    "optimize",
    "piecewise",
    "plot",
    "plugins",
    "run",
    "simulate",
    "uniform",
    "warmup",
    "where",
]

# All but errors is imported when it is used, so that `import hoptree` takes no time.
_HOMES = {
    "hoptree": ("optimize",),
    "hoptree.backends.ray_settings": ("Ray",),
    "hoptree.core.policies": ("Policy",),
    "hoptree.core.schedules": ("Schedule",),
    "hoptree.data": ("Dataset",),
    "hoptree.elastic.instance": ("Instance",),
    "hoptree.study.run_studies": ("run",),
    "hoptree.identity.files": ("file",),
    "hoptree.mirror.wandb_mirror": ("WandB",),
    "hoptree.backends.plugins": ("load_plugin", "plugins"),
    "hoptree.record.results": ("Results",),
    "hoptree.report": ("plot",),
    "hoptree.search.asha": ("ASHA",),
    "hoptree.search.grid": ("Grid",),
    "hoptree.search.hyperband": ("Hyperband",),
    "hoptree.search.median_stopping": ("MedianStopping",),
    "hoptree.search.optuna": ("Optuna",),
    "hoptree.search.pbt": ("PBT",),
    "hoptree.search.random": ("Random",),
    "hoptree.search.schedules": (
        "constant", "cosine", "cyclic", "exponential", "linear", "multistep", "piecewise", "warmup",
    ),
    "hoptree.search.space": ("SpaceError", "choice", "integer", "log", "uniform", "where"),
    "hoptree.search.successive_halving": ("SuccessiveHalving",),
    "hoptree.forecast.simulation": ("Simulation", "simulate"),
    "hoptree.simulator": ("Cluster", "Crash", "FlakyUnits", "StateLoss", "WorkerSpec", "Workload"),
    "hoptree.study.study": ("Study",),
    "hoptree.trainers": ("Functions", "Torch", "Trainer", "accuracy"),
}  # fmt: skip
_MODULES = ("optimize", "plot")
_LATER = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        raise AttributeError(f"module 'hoptree' has no attribute {name!r}")
    value = import_module(f"{home}.{name}") if name in _MODULES else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

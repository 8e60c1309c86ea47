"""Trainers: all framework-specific code. A framework is imported only when its trainer is first used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hoptree.core.errors import MissingExtraError
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import Diverged, MissingValue, TrainerError
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.metrics import accuracy
from hoptree.trainers.rehearsal import rehearse

if TYPE_CHECKING:
    from hoptree.trainers.functions import Functions
    from hoptree.trainers.torch_trainer import Torch

__all__ = [
    "Columns",
    "Diverged",
    "Functions",
    "HyperParameters",
    "MissingValue",
    "ModelState",
    "Torch",
    "Trainer",
    "TrainerError",
    "UnitSpec",
    "accuracy",
    "rehearse",
]

_LAZY = {"Torch": "hoptree.trainers.torch_trainer", "Functions": "hoptree.trainers.functions"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("torch") is None:
        raise MissingExtraError(f"{name}: needs torch, which is not installed; pip install 'hoptree[torch]'")
    return getattr(import_module(_LAZY[name]), name)

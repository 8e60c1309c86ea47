"""The device of a torch trainer: its name is checked anywhere, the device is looked for only where models train."""

from __future__ import annotations

import os

import torch

from hoptree.core.errors import RefusedError
from hoptree.trainers.errors import TrainerError

_NAMES = ("auto", "cuda", "cpu")
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # without it, torch refuses deterministic products of matrices on a GPU


class DeviceMissingError(TrainerError, RefusedError):
    """The trainer needs a GPU, and torch finds none in this process."""


def check_device(name: object) -> str:
    """Return the name of a device; raise an error for an unknown one. Does not ask torch for GPUs."""
    if isinstance(name, str) and name.startswith("cuda:"):
        raise TrainerError(
            f"device: {name!r}; expected 'cuda': every worker sees one GPU. To use certain GPUs, name them in the "
            "environment variable CUDA_VISIBLE_DEVICES of this program"
        )
    if name not in _NAMES:
        raise TrainerError(f"device: {name!r}; expected 'cpu', 'cuda' or 'auto'")
    return str(name)


def find_device(name: str) -> torch.device:
    """Return the device of this process; "auto" is a GPU if torch finds one, else the CPU."""
    if name == "cpu" or not torch.cuda.is_available():
        if name == "cuda":
            raise DeviceMissingError(
                f"device: {name!r}, but torch finds no GPU in this process; install a driver and a torch with CUDA "
                "there, use machines with GPUs, or set device='auto' (a GPU where there is one) or 'cpu'"
            )
        return torch.device("cpu")
    os.environ.setdefault(_CUBLAS, ":4096:8")
    return torch.device("cuda")

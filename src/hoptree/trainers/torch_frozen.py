"""Evaluation by a user-defined loop: the module cannot learn, and is restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import Module
from torch.optim import Optimizer

from hoptree.trainers.torch_model import evaluating

__all__ = ["Module", "Optimizer", "dtype_and_device", "frozen"]


@contextmanager
def frozen(module: Module) -> Iterator[None]:
    """Disable the gradients of all parameters and switch to evaluation mode; undo both at the end.

    Buffers are restored too, because a loop that calls ``module.train()`` would update running averages.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        for parameter in trainable:
            parameter.requires_grad_(False)
        with evaluating(module):
            yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def dtype_and_device() -> tuple[torch.dtype, torch.device]:
    """Return the data type and the device for user-defined loops."""
    return torch.float32, torch.device("cuda" if torch.cuda.is_available() else "cpu")

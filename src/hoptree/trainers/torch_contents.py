"""The contents of a torch model, by the names that its author knows: buffers, attributes, gradients, optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.trainers.model_contents import digest, leaves
from hoptree.trainers.state_digests import array_digest, text_digest
from hoptree.trainers.torch_attributes import INTERNAL, optimizer_internal


def contents(module: nn.Module, optimizer: Optimizer) -> dict[str, str]:
    """Return a digest of everything in a module and its optimizer, by name."""
    return {name: _digest(value) for name, value in _all(module, optimizer)}


def memory(module: nn.Module, optimizer: Optimizer) -> dict[str, int]:
    """Return the address of every non-empty tensor, by name."""
    found = {}
    for name, value in _all(module, optimizer):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            address = value.untyped_storage().data_ptr()
            if address:
                found[name] = address
    return found


def _all(module: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Any]]:
    for prefix, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield f"parameter {_dotted(prefix, name)}", parameter
                if parameter.grad is not None:
                    yield f"gradient left on {_dotted(prefix, name)}", parameter.grad
        for name, buffer in part._buffers.items():
            if buffer is not None:
                kind = "buffer that is not persistent" if name in part._non_persistent_buffers_set else "buffer"
                yield f"{kind} {_dotted(prefix, name)}", buffer
        for name, value in vars(part).items():
            if name not in INTERNAL and not isinstance(value, nn.Module):
                yield from leaves(value, f"attribute {_dotted(prefix, name)} ({type(part).__name__})")
    kind = type(optimizer).__name__
    for name, value in vars(optimizer).items():
        if name not in optimizer_internal():
            yield from leaves(value, f"attribute {name} of the optimizer ({kind})")
    for number, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if name != "params":
                yield from leaves(value, f"option {name} of the optimizer's group {number}")
        for index, parameter in enumerate(group["params"]):
            for name, value in optimizer.state.get(parameter, {}).items():
                yield from leaves(value, f"optimizer's {name} of parameter {index} in group {number}")


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _digest(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        whole = value.detach()
        if whole.layout is not torch.strided:
            whole = whole.to_dense()
        raw = whole.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return text_digest(f"{value.dtype} {tuple(value.shape)} {array_digest(np.asarray(raw))}")
    return digest(value)

"""Extract a torch module's state dict from a stored state."""

from __future__ import annotations

from pathlib import Path

import torch

from hoptree.core.errors import MissingExtraError
from hoptree.trainers.base import ModelState


def save(state: ModelState, path: Path) -> None:
    """Write the weights in the format of ``module.load_state_dict``."""
    weights = state_dict(state)
    if path.suffix == ".pt":
        torch.save(weights, path)
        return
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingExtraError(f"{path}: needs safetensors; pip install 'hoptree[torch]', or write .pt") from error
    save_file(weights, path)


def state_dict(state: ModelState) -> dict[str, torch.Tensor]:
    """Return the module's tensors by name; raw bytes get their type back."""
    found = {}
    for name, array in state.arrays.items():
        if name.startswith("model."):
            tensor = torch.from_numpy(array.copy())
            kind = state.meta.get("dtypes", {}).get(name)
            found[name.removeprefix("model.")] = tensor if kind is None else tensor.view(getattr(torch, kind))
    return found

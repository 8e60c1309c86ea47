"""Write trained weights to files that can be read without Hoptree."""

from __future__ import annotations

from pathlib import Path

from hoptree.core.errors import MissingExtraError
from hoptree.trainers.base import ModelState
from hoptree.trainers.errors import TrainerError

SUFFIXES = (".safetensors", ".pt")


def save_weights(state: ModelState, path: str | Path) -> Path:
    """Write a torch module's state dict as `.safetensors`, or as `.pt` for ``torch.load(…, weights_only=True)``.

    The optimizer's part of the state is left out. For other trainers, all arrays are written.
    """
    path = check_weights(path)
    if any(name.startswith("model.") for name in state.arrays):
        try:
            from hoptree.trainers import torch_weights
        except ImportError as error:
            raise MissingExtraError(f"{path}: needs torch; pip install 'hoptree[torch]'") from error
        torch_weights.save(state, path)
        return path
    if path.suffix == ".pt":
        raise TrainerError(
            f"{path}: the state is not a torch module's: it has {', '.join(sorted(state.arrays)[:3])}; "
            f"expected weights of ht.Torch or ht.Functions; write it as {path.stem}.safetensors"
        )
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise MissingExtraError(f"{path}: needs safetensors; pip install 'hoptree[safetensors]'") from error
    save_file({name: array.copy() for name, array in state.arrays.items()}, path)
    return path


def check_weights(path: str | Path) -> Path:
    """Check the suffix and the folder of a file for weights, before anything is read."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise TrainerError(
            f"{path}: suffix is {path.suffix!r}; expected {' or '.join(SUFFIXES)}, "
            f"for example {path.stem or 'model'}.safetensors"
        )
    if not path.absolute().parent.is_dir():
        raise TrainerError(f"{path}: the folder {path.parent} does not exist; create it first")
    return path

"""States of torch models: the module's and the optimizer's tensors as named arrays, the rest as JSON.

Names: ``model.<name in the state dict>`` and ``optimizer.<number of the parameter>.<name>``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.trainers.base import Arrays, ModelState
from hoptree.trainers.errors import TrainerError

_NUMPY = {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32}
_NUMPY |= {torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128}
_RAW = {1: torch.uint8, 2: torch.uint16}  # for types that numpy lacks: the same bytes as whole numbers


def dump(module: nn.Module, optimizer: Optimizer) -> ModelState:
    """Return the state; on the CPU its arrays are views of the tensors."""
    arrays: Arrays = {}
    dtypes: dict[str, str] = {}
    plain: dict[str, Any] = {}
    for name, value in _items(module, optimizer):
        if isinstance(value, torch.Tensor):
            arrays[name] = _contiguous(_array(value))
            if value.dtype not in _NUMPY:
                dtypes[name] = str(value.dtype).removeprefix("torch.")
        else:
            plain[name] = _json(name, value)
    groups = [
        {name: _option(value) for name, value in group.items() if name != "params" and _is_option(value)}
        for group in optimizer.param_groups
    ]
    return ModelState(arrays, {"dtypes": dtypes, "plain": plain, "groups": groups})


def load(module: nn.Module, optimizer: Optimizer, state: ModelState) -> None:
    """Copy a state into the resident tensors; what the optimizer does not hold yet is made."""
    own = {f"model.{name}": value for name, value in module.state_dict().items()}
    given = [name for name in (*state.arrays, *state.meta["plain"]) if name.startswith("model.")]
    _same_names(own, given)
    for name, value in own.items():
        if isinstance(value, torch.Tensor):
            _copy(name, value, state)
    _load_extra(module, state.meta["plain"])
    _load_optimizer(optimizer, state)


def _items(module: nn.Module, optimizer: Optimizer) -> Iterable[tuple[str, Any]]:
    for name, value in module.state_dict().items():
        yield f"model.{name}", value
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            yield f"optimizer.{index}.{name}", value


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype not in _NUMPY:
        tensor = tensor.view(_RAW[tensor.itemsize])
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def _contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if array.flags.c_contiguous else array.copy(order="C")


def _copy(name: str, tensor: torch.Tensor, state: ModelState) -> None:
    array = state.arrays.get(name)
    dtype = state.meta["dtypes"].get(name)
    mine = str(tensor.dtype).removeprefix("torch.") if tensor.dtype not in _NUMPY else None
    if array is None or tuple(array.shape) != tuple(tensor.shape) or dtype != mine:
        found = "nothing" if array is None else f"{dtype or array.dtype} of shape {tuple(array.shape)}"
        raise TrainerError(
            f"state: {name} is {found}, but the model's is {tensor.dtype} of shape {tuple(tensor.shape)}; "
            "expected a model built by the same function for the same values"
        )
    if tensor.device.type == "cpu":
        np.copyto(_array(tensor), array, casting="equiv")  # torch would warn that the array is read-only
    else:
        raw = torch.from_numpy(array.copy())
        tensor.detach().copy_(raw if mine is None else raw.view(tensor.dtype))


def _same_names(own: Iterable[str], given: Iterable[str]) -> None:
    missing, unexpected = sorted(set(own) - set(given)), sorted(set(given) - set(own))
    if missing or unexpected:
        raise TrainerError(
            f"state: it lacks {', '.join(missing[:5]) or 'nothing'} of the model and has "
            f"{', '.join(unexpected[:5]) or 'nothing'} beyond it; expected a model "
            "built by the same function for the same values"
        )


def _load_extra(module: nn.Module, plain: dict[str, Any]) -> None:
    for name, value in plain.items():
        if name.startswith("model."):
            path = name.removeprefix("model.").removesuffix("_extra_state").rstrip(".")
            module.get_submodule(path).set_extra_state(value)


def _load_optimizer(optimizer: Optimizer, state: ModelState) -> None:
    parameters = _parameters(optimizer)
    wanted: dict[int, list[str]] = {}
    for name in (*state.arrays, *state.meta["plain"]):
        if name.startswith("optimizer."):
            index = int(name.split(".", 2)[1])
            wanted.setdefault(index, []).append(name)
    if len(state.meta["groups"]) != len(optimizer.param_groups) or max(wanted, default=-1) >= len(parameters):
        raise TrainerError(
            f"state: its optimizer has {len(state.meta['groups'])} groups, the model's "
            f"{len(optimizer.param_groups)}; expected a model built by the same function for the same values"
        )
    for group, given in zip(optimizer.param_groups, state.meta["groups"], strict=True):
        for name, value in given.items():
            group[name] = tuple(value) if isinstance(value, list) else value
    for index, parameter in enumerate(parameters):
        if index not in wanted:
            optimizer.state.pop(parameter, None)
            continue
        slots = optimizer.state[parameter]
        names = {name.split(".", 2)[2]: name for name in wanted[index]}
        for stale in [name for name in slots if name not in names]:
            del slots[stale]
        for short, name in names.items():
            if name in state.arrays:
                slots[short] = _slot(slots.get(short), parameter, name, state)
                _copy(name, slots[short], state)
            else:
                slots[short] = state.meta["plain"][name]


def _slot(present: Any, parameter: torch.Tensor, name: str, state: ModelState) -> torch.Tensor:
    array, kind = state.arrays[name], state.meta["dtypes"].get(name)
    dtype: torch.dtype = getattr(torch, kind or array.dtype.name)
    if isinstance(present, torch.Tensor) and present.shape == array.shape and present.dtype == dtype:
        return present
    if array.shape == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    return torch.zeros(array.shape, dtype=dtype)  # counters stay on the CPU, where optimizers keep them


def _is_option(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_option(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str) or _is_number_tensor(value)


def _option(value: Any) -> Any:
    return value.item() if _is_number_tensor(value) else list(value) if isinstance(value, tuple) else value


def _is_number_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 0


def _json(name: str, value: Any) -> Any:
    try:
        if json.loads(json.dumps(value)) == value:
            return value
    except (TypeError, ValueError):
        pass
    raise TrainerError(
        f"state: {name} is a {type(value).__name__}; expected tensors, or values that JSON keeps as they are"
    )

"""States of torch models: the tensors of module and optimizer as named arrays, the rest as JSON.

Names: ``model.<name in the state dict>``, ``buffer.<name>`` for buffers outside the state dict, and
``optimizer.<number of the parameter>.<name>``. Other values, such as a list of tensors, are *packed*:
``torch_encoding`` turns them into arrays and JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.trainers.base import Arrays, ModelState
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_encoding import MISSING, Decoder, Encoder, Opaque, pack, unpack
from hoptree.trainers.torch_mapped import unmap_all
from hoptree.trainers.torch_part import storage_is_empty

_NUMPY = {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32}
_NUMPY |= {torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128}
_RAW = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}  # raw bytes, for types that numpy lacks


def dump(
    module: nn.Module, optimizer: Optimizer, hidden: Iterable[str] = (), attributes: Mapping[str, Any] | None = None
) -> ModelState:
    """Return the state; on the CPU its arrays are views of the tensors.

    ``hidden`` are buffers outside the state dict, ``attributes`` the encoded attributes that have changed.
    """
    arrays: Arrays = {}
    dtypes: dict[str, str] = {}
    plain: dict[str, Any] = {}
    packed: dict[str, Any] = {}
    for name, value in _items(module, optimizer, hidden):
        if isinstance(value, torch.Tensor):
            arrays[name] = _contiguous(_array(name, value))
            if value.dtype not in _NUMPY:
                dtypes[name] = str(value.dtype).removeprefix("torch.")
        elif _is_json(value):
            plain[name] = value
        elif name.startswith("model."):
            raise _no_json(name, value)
        else:
            packed[name] = _encoded(name, value, optimizer)
    groups = [
        {name: _option(value) for name, value in group.items() if name != "params" and _is_option(value)}
        for group in optimizer.param_groups
    ]
    packed |= {**_other_options(optimizer), **(attributes or {})}
    meta: dict[str, Any] = {"dtypes": dtypes, "plain": plain, "groups": groups}
    if packed:
        meta["packed"] = {name: pack(name, content, arrays) for name, content in packed.items()}
    return ModelState(arrays, meta)


Place = Callable[[dict[str, Any]], None]


def load(
    module: nn.Module,
    optimizer: Optimizer,
    state: ModelState,
    hidden: Iterable[str] = (),
    place: Place | None = None,
) -> dict[str, Any]:
    """Copy a state into the existing tensors; create missing tensors of the optimizer.

    Returns the encoded attributes of the state. Parameters that another worker holds are left out; ``place`` moves
    the optimizer's tensors of one parameter to where they stay.
    """
    _fit_buffers(module, state, hidden)
    own = {f"model.{name}": value for name, value in module.state_dict().items()}
    given = [name for name in (*state.arrays, *state.meta["plain"]) if name.startswith("model.")]
    _same_names(own, given)
    for name, value in own.items():
        if isinstance(value, torch.Tensor) and not storage_is_empty(value):
            _copy(name, value, state)
            unmap_all([value])
    for name in hidden:
        owner, short = _owner(module, name)
        if isinstance(value := owner._buffers[short], torch.Tensor) and f"model.{name}" not in own:
            _copy(f"buffer.{name}", value, state)
    _load_extra(module, state.meta["plain"])
    packed = {name: unpack(content, state.arrays) for name, content in state.meta.get("packed", {}).items()}
    _load_optimizer(optimizer, state, packed, place)
    return {name: content for name, content in packed.items() if name.startswith(("attribute", "requires_grad"))}


def hidden_buffers(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers outside the state dict, including those that are still None."""
    known = module.state_dict().keys()
    names = [f"{path}.{name}" if path else name for path, part in module.named_modules() for name in part._buffers]
    return tuple(name for name in names if name not in known)


def _fit_buffers(module: nn.Module, state: ModelState, hidden: Iterable[str]) -> None:
    """Give the state's shape to buffers that training resizes or that the first batch creates."""
    names = {*hidden, *(name for name, _ in module.named_buffers())}
    for name in names:
        owner, short = _owner(module, name)
        full = f"model.{name}" if f"model.{name}" in state.arrays else f"buffer.{name}"
        array, present = state.arrays.get(full), owner._buffers[short]
        if array is None:
            if name in hidden:
                owner._buffers[short] = None
        elif present is None or tuple(present.shape) != tuple(array.shape):
            dtype = getattr(torch, state.meta["dtypes"].get(full) or array.dtype.name)
            device = next((tensor.device for tensor in module.parameters()), None)
            owner._buffers[short] = torch.zeros(array.shape, dtype=dtype, device=device)


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, short = name.rpartition(".")
    return module.get_submodule(path), short


def _items(module: nn.Module, optimizer: Optimizer, hidden: Iterable[str]) -> Iterable[tuple[str, Any]]:
    known = module.state_dict()
    for name, value in known.items():
        yield f"model.{name}", value
    for name in hidden:
        owner, short = _owner(module, name)
        if owner._buffers.get(short) is not None and name not in known:
            yield f"buffer.{name}", owner._buffers[short]
    parameters = _parameters(optimizer)
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            yield f"optimizer.{index}.{name}", value
    for key in _other_keys(optimizer):
        yield f"optimizer/{key}", optimizer.state[key]


def _other_keys(optimizer: Optimizer) -> list[Any]:
    """Return the keys of a user's optimizer state that belong to no parameter."""
    keys: Iterable[Any] = optimizer.state
    return [key for key in keys if isinstance(key, str)]


def _encoded(name: str, value: Any, optimizer: Optimizer) -> Any:
    content = Encoder({id(each): str(n) for n, each in enumerate(_parameters(optimizer))}).encode(value)
    if _has_opaque(content):
        raise _no_json(name, value)
    return content


def _has_opaque(content: Any) -> bool:
    return isinstance(content, Opaque) or (isinstance(content, list) and any(map(_has_opaque, content)))


def _other_options(optimizer: Optimizer) -> dict[str, Any]:
    """Return the group options that are more than numbers and text, if they can be encoded."""
    found = {}
    for number, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if name != "params" and not _is_option(value):
                content = Encoder({}).encode(value)
                if not _has_opaque(content):  # the optimizer's constructor sets the others, such as functions
                    found[f"group.{number}.{name}"] = content
    return found


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _array(name: str, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    if tensor.layout is not torch.strided:
        raise TrainerError(
            f"state: {name} is a tensor of layout {str(tensor.layout).removeprefix('torch.')}; expected a dense "
            "tensor, so keep its indices and values instead"
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
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
        np.copyto(_array(name, tensor), array, casting="equiv")  # torch would warn about a read-only array
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


def _load_optimizer(
    optimizer: Optimizer, state: ModelState, packed: Mapping[str, Any], place: Place | None
) -> None:
    parameters = _parameters(optimizer)
    decoder = {str(number): parameter for number, parameter in enumerate(parameters)}
    wanted: dict[int, list[str]] = {}
    for name in (*state.arrays, *state.meta["plain"], *packed):
        if name.startswith("optimizer.") and "#" not in name:
            index = int(name.split(".", 2)[1])
            wanted.setdefault(index, []).append(name)
    if len(state.meta["groups"]) != len(optimizer.param_groups) or max(wanted, default=-1) >= len(parameters):
        raise TrainerError(
            f"state: its optimizer has {len(state.meta['groups'])} groups, the model's "
            f"{len(optimizer.param_groups)}; expected a model built by the same function for the same values"
        )
    _load_groups(optimizer, state, packed)
    for index, parameter in enumerate(parameters):
        if index not in wanted or storage_is_empty(parameter):
            optimizer.state.pop(parameter, None)
            continue
        slots = optimizer.state[parameter]
        names = {name.split(".", 2)[2]: name for name in wanted[index]}
        for stale in [name for name in slots if name not in names]:
            del slots[stale]
        for short, name in names.items():
            if name in packed:
                slots[short] = Decoder(decoder).decode(packed[name], slots.get(short, MISSING))
            elif name in state.arrays:
                slots[short] = _slot(slots.get(short), parameter, name, state)
                _copy(name, slots[short], state)
            else:
                slots[short] = deepcopy(state.meta["plain"][name])
        if place is not None:
            place(slots)
    for key in _other_keys(optimizer):
        del optimizer.state[key]
    for name in (*state.arrays, *state.meta["plain"], *packed):
        if name.startswith("optimizer/") and "#" not in name:
            others: dict[Any, Any] = optimizer.state
            others[name.removeprefix("optimizer/")] = _whole(name, state, packed, decoder)


def _whole(name: str, state: ModelState, packed: Mapping[str, Any], decoder: Mapping[str, Any]) -> Any:
    if name in packed:
        return Decoder(decoder).decode(packed[name])
    if name in state.meta["plain"]:
        return deepcopy(state.meta["plain"][name])
    array, kind = state.arrays[name], state.meta["dtypes"].get(name)
    tensor = torch.zeros(array.shape, dtype=getattr(torch, kind or array.dtype.name))
    _copy(name, tensor, state)
    return tensor


def _load_groups(optimizer: Optimizer, state: ModelState, packed: Mapping[str, Any]) -> None:
    for number, (group, given) in enumerate(zip(optimizer.param_groups, state.meta["groups"], strict=True)):
        for name, value in given.items():
            if isinstance(present := group.get(name), torch.Tensor) and not isinstance(value, list | str | None):
                present.fill_(value)
            else:
                group[name] = tuple(value) if isinstance(value, list) else value
        start = f"group.{number}."
        for name in [name for name in packed if name.startswith(start)]:
            short = name.removeprefix(start)
            group[short] = Decoder({}).decode(packed[name], group.get(short, MISSING))


def _slot(present: Any, parameter: torch.Tensor, name: str, state: ModelState) -> torch.Tensor:
    array, kind = state.arrays[name], state.meta["dtypes"].get(name)
    dtype: torch.dtype = getattr(torch, kind or array.dtype.name)
    if isinstance(present, torch.Tensor) and present.shape == array.shape and present.dtype == dtype:
        return present
    if array.shape == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
    return torch.zeros(array.shape, dtype=dtype)  # counters stay on the CPU, as in torch's optimizers


def _is_option(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_option(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str) or _is_number_tensor(value)


def _option(value: Any) -> Any:
    return value.item() if _is_number_tensor(value) else list(value) if isinstance(value, tuple) else value


def _is_number_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 0


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def _no_json(name: str, value: Any) -> TrainerError:
    return TrainerError(
        f"state: {name} is a {type(value).__name__}; expected tensors, or values that JSON keeps as they are"
    )

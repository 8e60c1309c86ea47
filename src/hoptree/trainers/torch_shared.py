"""Detect modules, parameters and buffers that training changes and that two models share.

A worker trains many models in turn. Shared content depends on which model was trained before, so other workers, or
another order, would give different bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_encoding import Bits, bits

_FIX = "create it inside the model function, or copy it there (copy.deepcopy)"


class _TensorOwner(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    root: weakref.ref[nn.Module]


_modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # all parts of models that have tensors
_tensors: dict[int, _TensorOwner] = {}  # by address
_constants: dict[int, str] = {}  # shared tensors that must not change, by address, with their content


def register(module: nn.Module, name: str) -> None:
    """Record the parts of a new model; raise an error if it shares trainable parts with another model."""
    if module in _modules:
        raise TrainerError(
            f"{name}: it returned the same module twice; expected a new module at every call, "
            "so that trials do not share weights by accident"
        )
    for part_name, part in module.named_modules():
        if part in _modules and _trainable(part):
            raise TrainerError(f"{name}: layer {part_name!r} is the same object in every model; {_FIX}")
    for tensor_name, tensor in _named(module):
        address = tensor.data_ptr()
        known = _tensors.get(address)
        other = None if known is None else known.tensor()
        if known is None or other is None or known.root() is module or other.data_ptr() != address:
            _tensors[address] = _TensorOwner(weakref.ref(tensor), weakref.ref(module))
            _constants.pop(address, None)  # the old tensor was freed and its memory reused
        elif tensor.requires_grad or other.requires_grad:
            raise TrainerError(f"{name}: {tensor_name!r} has the same memory in every model; {_FIX}")
        else:
            _constants.setdefault(address, _content(tensor))
    _modules.update(part for part in module.modules() if next(_named(part), None) is not None)
    _modules.add(module)
    if len(_tensors) > 10_000:
        _remove_freed()


def check_constants(module: nn.Module, name: str) -> None:
    """Raise an error if the model has changed a tensor that it shares with another model."""
    if not _constants:
        return
    for tensor_name, tensor in _named(module):
        address = tensor.data_ptr()
        before = _constants.get(address)
        if before is not None and _tensors[address].tensor() is not None and before != _content(tensor):
            raise TrainerError(
                f"{name}: {tensor_name!r} is the same tensor in every model, and training changes it; {_FIX}"
            )


@contextmanager
def only_own_parts(module: nn.Module) -> Iterator[None]:
    """Raise an error if the module calls one that is not part of it and that has something to train or change.

    A frozen module in evaluation mode, such as a teacher, is a constant.
    """
    own = set(module.modules())

    def check(called: nn.Module, _: Any) -> None:
        if called not in own and (_trainable(called) or (called.training and any(True for _ in called.buffers()))):
            raise TrainerError(
                f"model: it calls a {type(called).__name__} that is not one of its parts, so it is missing in the "
                f"optimizer and in states; assign it to an attribute of the module, and {_FIX}"
            )

    handle = register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()


def check_leaves(loss: torch.Tensor, module: nn.Module) -> None:
    """Raise an error if the loss depends on a tensor with a gradient that is not a parameter of the module."""
    own = {id(parameter) for parameter in module.parameters()}
    stack, seen = [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own:
            raise TrainerError(
                f"model or loss: the loss depends on a tensor of shape {tuple(leaf.shape)} with a gradient that is "
                "not a parameter of the module, so it is missing in states; make it a parameter of the module, or "
                "detach it if it must not be trained"
            )
        stack += [following for following, _ in node.next_functions]


def check_parameters(optimizer: torch.optim.Optimizer, module: nn.Module, name: str) -> None:
    """Raise an error if an optimizer holds a parameter that is not the module's."""
    own = {id(parameter) for parameter in module.parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in own:
                raise TrainerError(
                    f"{name}: it holds a parameter of shape {tuple(parameter.shape)} that does not belong to the "
                    "model, so it is missing in states; make it a parameter of the module"
                )


def _named(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.numel() and tensor.layout is torch.strided and not tensor.is_meta:
            yield name, tensor


def _trainable(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


def _content(tensor: torch.Tensor) -> str:
    found = bits(tensor)
    assert isinstance(found, Bits)
    return blake2b(found.content.tobytes(), digest_size=16).hexdigest()


def _remove_freed() -> None:
    for address in [address for address, known in _tensors.items() if known.tensor() is None]:
        del _tensors[address]
        _constants.pop(address, None)

"""What a model must not share with another one: modules, parameters and buffers that training changes.

A worker trains many models in turn. What two of them share depends on who trained before, so other workers, or
another order, would give other bits.
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

_FIX = "make it inside the model function, or copy it there (copy.deepcopy)"


class _Known(NamedTuple):
    tensor: weakref.ref[torch.Tensor]
    root: weakref.ref[nn.Module]


_modules: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # all parts of models with something to train
_tensors: dict[int, _Known] = {}  # by address
_constants: dict[int, str] = {}  # shared tensors that may not change, by address, with their content


def register(module: nn.Module, name: str) -> None:
    """Note what a new model is made of; raise if another model has some of it, and it can be trained."""
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
            _tensors[address] = _Known(weakref.ref(tensor), weakref.ref(module))
            _constants.pop(address, None)  # what was there is gone, and its memory used again
        elif tensor.requires_grad or other.requires_grad:
            raise TrainerError(f"{name}: {tensor_name!r} has the same memory in every model; {_FIX}")
        else:
            _constants.setdefault(address, _content(tensor))
    _modules.update(part for part in module.modules() if next(_named(part), None) is not None)
    _modules.add(module)
    if len(_tensors) > 10_000:
        _forget_dead()


def check_constants(module: nn.Module, name: str) -> None:
    """Raise if the model has changed a tensor that another model has, too."""
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
    """Raise if the module calls another one that is no part of it, and that has something to train or change.

    A frozen one in evaluation mode, such as a teacher, is a constant.
    """
    own = set(module.modules())

    def look(called: nn.Module, _: Any) -> None:
        if called not in own and (_trainable(called) or (called.training and any(True for _ in called.buffers()))):
            raise TrainerError(
                f"model: it calls a {type(called).__name__} that is not one of its parts, so that neither the "
                f"optimizer nor a state has it; assign it to an attribute of the module, and {_FIX}"
            )

    handle = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


def check_leaves(loss: torch.Tensor, module: nn.Module) -> None:
    """Raise if the loss depends on a tensor with a gradient that is no parameter of the module."""
    own = {id(parameter) for parameter in module.parameters()}
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own:
            raise TrainerError(
                f"model or loss: the loss depends on a tensor of shape {tuple(leaf.shape)} with a gradient that is "
                "no parameter of the module, so that no state has it; make it a parameter of the module, or "
                "detach it if it is not to be trained"
            )
        waiting += [following for following, _ in node.next_functions]


def check_held(optimizer: torch.optim.Optimizer, module: nn.Module, name: str) -> None:
    """Raise if an optimizer trains what is no parameter of the module."""
    own = {id(parameter) for parameter in module.parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in own:
                raise TrainerError(
                    f"{name}: it holds a parameter of shape {tuple(parameter.shape)} that is none of the model's, "
                    "so that no state has it; make it a parameter of the module"
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


def _forget_dead() -> None:
    for address in [address for address, known in _tensors.items() if known.tensor() is None]:
        del _tensors[address]
        _constants.pop(address, None)

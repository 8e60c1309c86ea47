"""Activation checkpointing: blocks keep their inputs only, and are computed again for the backward pass.

The second computation starts from the same generators, and leaves buffers as the first one has set them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from math import isqrt
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import nn

from hoptree.trainers.errors import TrainerError

Again = Callable[[], AbstractContextManager[Any]]
Uses = Callable[[nn.Parameter], int]


@contextmanager
def recomputed(module: nn.Module, again: Again = nullcontext) -> Iterator[Uses]:
    """Compute the blocks of a module again in backward passes, within ``again``.

    Yield a function that returns how often the gradient of a parameter will be added to: once by each block that
    was computed with it, and once by what is outside of all blocks.
    """
    if is_sequence(module):
        assert isinstance(module, nn.Sequential)
        made = _blocks_of(list(module), again)
        calls: list[tuple[nn.Module, Callable[..., Any]]] = [(module, _chain(made))]
    else:
        parts = blocks(module)
        made = [_Block(part._call_impl, [part], again) for part in parts]
        calls = list(zip(parts, made, strict=True))
    inside = {id(part) for block in made for part in block.owners}
    outside = {id(p) for part in module.modules() if id(part) not in inside for p in part.parameters(recurse=False)}

    def uses(parameter: nn.Parameter) -> int:
        own = id(parameter)
        return sum(block.calls for block in made if own in block.parameters) + (own in outside)

    for block, call in calls:
        block._compiled_call_impl = call
    try:
        yield uses
    finally:
        for block, _ in calls:
            del block._compiled_call_impl


def is_sequence(module: nn.Module) -> bool:
    """Return whether a module calls its layers one after the other, and does nothing else."""
    plain = type(module).forward is nn.Sequential.forward and type(module).__call__ is nn.Module.__call__
    return plain and not any(getattr(module, name) for name in _HOOKS)


def in_segments(layers: Sequence[nn.Module], again: Again = nullcontext) -> Callable[[Any], Any]:
    """Return a function that calls layers in order, as many in each block as there are blocks."""
    return _chain(_blocks_of(layers, again))


def _blocks_of(layers: Sequence[nn.Module], again: Again) -> list[_Block]:
    return [_Block(_chain(segment), segment, again) for segment in _segments(layers)]


def _segments(layers: Sequence[nn.Module]) -> list[list[nn.Module]]:
    size = max(1, isqrt(len(layers)))
    segments: list[list[nn.Module]] = [[]]
    used: set[int] = set()  # by the segment: no parameter twice, see ``ambiguous``
    for layer in layers:
        own = set(_used(layer))
        if (len(segments[-1]) >= size or used & own) and not _works_in_place(layer):
            segments.append([])
            used = set()
        segments[-1].append(layer)
        used |= own
    return segments


def ambiguous(module: nn.Module) -> str:
    """Return the name of a parameter whose gradient would be added in another order; "" if there is none.

    A block adds what its own uses of a parameter come to; if one with several uses is not the only block, the sum
    over all uses has other brackets than without blocks.
    """
    if is_sequence(module):
        assert isinstance(module, nn.Sequential)
        groups = _segments(list(module))
    else:
        groups = [[block] for block in blocks(module)]
    uses = [Counter(number for layer in group for number in _used(layer)) for group in groups]
    for name, parameter in module.named_parameters():
        found = [own[id(parameter)] for own in uses if own[id(parameter)]]
        if len(found) > 1 and max(found) > 1:
            return name
    return ""


def _used(layer: nn.Module) -> list[int]:
    """Return the ids of the parameters of a layer, as often as its parts have them."""
    return [id(parameter) for _, parameter in layer.named_parameters(remove_duplicate=False)]


def blocks(module: nn.Module) -> list[nn.Module]:
    """Return the outermost parts of a module that consist of several layers, and recurrent layers."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            for element in child.children():
                found += [element] if _worth_it(element) else blocks(element)
        elif _worth_it(child):
            found.append(child)
    return found


def _worth_it(module: nn.Module) -> bool:
    return isinstance(module, nn.RNNBase) or next(module.children(), None) is not None


def _works_in_place(layer: nn.Module) -> bool:
    """Return whether a layer changes its input, which is needed again if a block begins with it."""
    first = next(layer.children(), None) if isinstance(layer, nn.Sequential) else None
    return bool(getattr(layer, "inplace", False)) if first is None else _works_in_place(first)


def _chain(layers: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        for layer in layers:
            value = layer(value)
        return value

    return call


@final
class _Block:
    """A part of a model that is computed again in the backward pass."""

    def __init__(self, call: Callable[..., Any], parts: Sequence[nn.Module], again: Again) -> None:
        self.call = call
        self.again = again
        self.name = f"the layer {type(parts[0]).__name__}"
        self.calls = 0  # that have a backward pass
        self.owners = [owner for part in parts for owner in part.modules()]
        self.parameters = {id(each) for part in parts for each in part.parameters()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.call(*args, **kwargs)
        self.calls += 1
        tensors: list[torch.Tensor] = []
        shape = _take_out((args, kwargs), tensors)
        started = torch.zeros((), requires_grad=True)  # so that the result has a backward pass in any case
        result: list[Any] = []
        outputs = _Recompute.apply(self, shape, result, started, *tensors)  # type: ignore[no-untyped-call]
        return _put_back(result[0], list(outputs))

    def conditions(self) -> _Conditions:
        """Return what the computation of the block starts from now, besides its inputs."""
        buffers = [
            (owner, name, tensor if tensor is None else tensor.clone())
            for owner in self.owners
            for name, tensor in owner._buffers.items()
        ]
        autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _kinds()]
        on_gpu = torch.cuda.get_rng_state() if "cuda" in _kinds() else None
        states = torch.get_rng_state(), on_gpu
        return _Conditions(random.getstate(), np.random.get_state(), states, autocast, buffers)

    def computed_again(self, then: _Conditions) -> AbstractContextManager[Any]:
        """Return the context of the second computation: everything as it was in the first one."""
        stack = ExitStack()
        stack.enter_context(then.restored(self.conditions))
        stack.enter_context(self.again())
        stack.enter_context(torch.enable_grad())
        return stack


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: _Block, shape: Any, result: list[Any], _started: Any, *tensors: Any) -> Any:
        ctx.block, ctx.shape, ctx.then = block, shape, block.conditions()
        ctx.set_materialize_grads(False)  # zeros in place of absent gradients could change the sign of a zero
        ctx.save_for_backward(*tensors)
        args, kwargs = _put_back(shape, list(tensors))
        found: list[torch.Tensor] = []
        versions = [tensor._version for tensor in tensors]
        result.append(_take_out(block.call(*args, **kwargs), found))
        if [tensor._version for tensor in tensors] != versions:
            raise TrainerError(
                f"checkpoint: {block.name} changes its input in place, so it cannot be computed again; expected "
                "inplace=False in its first layer, or use checkpoint=False"
            )
        given = {id(tensor) for tensor in tensors}
        found = [each.view_as(each) if id(each) in given else each for each in found]
        ctx.mark_non_differentiable(*(each for each in found if not _floating(each)))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs = [
            each.detach().requires_grad_(needed)
            for each, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[4:], strict=True)
        ]
        args, kwargs = _put_back(ctx.shape, list(inputs))
        with ctx.block.computed_again(ctx.then):
            found: list[torch.Tensor] = []
            _take_out(ctx.block.call(*args, **kwargs), found)
        both = zip(found, gradients, strict=True)
        pairs = [(one, two) for one, two in both if one.requires_grad and two is not None]
        with ctx.block.again():
            torch.autograd.backward([one for one, _ in pairs], [two for _, two in pairs])
        return None, None, None, None, *(each.grad for each in inputs)


class _Conditions(NamedTuple):
    """Generators, precision and buffers."""

    python: Any
    numpy: Any
    torch_states: tuple[torch.Tensor, torch.Tensor | None]  # of the CPU, and of the GPU if there is one
    autocast: list[tuple[str, bool, torch.dtype]]  # by kind of device
    buffers: list[tuple[nn.Module, str, torch.Tensor | None]]

    @contextmanager
    def restored(self, now: Callable[[], _Conditions]) -> Iterator[None]:
        """Go back to these conditions for a while."""
        before = now()
        tensors = [owner._buffers[name] for owner, name, _ in self.buffers]
        self._set(self.buffers)
        try:
            with ExitStack() as stack:
                for kind, enabled, dtype in self.autocast:
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
                yield
        finally:
            pairs = zip(self.buffers, tensors, strict=True)
            before._set([(owner, name, tensor) for (owner, name, _), tensor in pairs])

    def _set(self, buffers: list[tuple[nn.Module, str, torch.Tensor | None]]) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        on_cpu, on_gpu = self.torch_states
        torch.set_rng_state(on_cpu)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu)
        for owner, name, tensor in buffers:
            owner._buffers[name] = tensor


def _kinds() -> list[str]:
    """Return the kinds of devices that this process computes on."""
    has_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return ["cpu", "cuda"] if has_gpu else ["cpu"]


class _Slot(NamedTuple):
    number: int


def _take_out(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a nested value with numbers in place of tensors, which are appended to a list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Slot(len(tensors) - 1)
    if isinstance(value, dict):
        return {name: _take_out(each, tensors) for name, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_take_out(each, tensors) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_take_out(each, tensors) for each in value))
    return value


def _put_back(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Slot):
        return tensors[value.number]
    if isinstance(value, dict):
        return {name: _put_back(each, tensors) for name, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_put_back(each, tensors) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_put_back(each, tensors) for each in value))
    return value


def _floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

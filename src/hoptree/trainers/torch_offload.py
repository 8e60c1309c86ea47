"""Training with little memory: gradients and optimizer state in mapped files, one parameter's step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim import Optimizer

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_mapped import mapped, unmap_all, unmap_pages
from hoptree.trainers.torch_part import ModelPart
from hoptree.trainers.torch_tree import Tensors, add_gradients

_JOINT = ("LBFGS",)  # optimizers whose step for one parameter depends on others


def separable(optimizer: Optimizer) -> str:
    """Return "" if an optimizer may make its step for some parameters apart from the others, else why not."""
    kind = type(optimizer)
    if kind.__module__.startswith("torch.optim.") and kind.__name__ not in _JOINT:
        return ""
    return (
        f"the optimizer {kind.__name__} may compute its step from several parameters together; expected one of "
        "torch.optim other than LBFGS"
    )


@contextmanager
def pages_given_back(module: nn.Module) -> Iterator[None]:
    """Give back the pages of mapped parameters as soon as the layer that has them was called."""
    own = set(module.modules())

    def after(called: nn.Module, _inputs: Any, _output: Any) -> None:
        if called in own:
            unmap_all(parameter.data for parameter in called.parameters(recurse=False))

    handle = register_module_forward_hook(after)  # one for all modules: a hook of a module would be part of it
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def offloaded_gradients(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Move each gradient to a mapped file as soon as it is complete."""

    def after(parameter: torch.Tensor) -> None:
        if parameter.grad is not None and parameter.grad.layout is torch.strided:
            parameter.grad = mapped(parameter.grad)
            unmap_pages(parameter.grad)
        unmap_pages(parameter.data)

    tensors: list[Any] = [each for each in parameters if each.requires_grad]  # torch declares no type for hooks
    handles = [each.register_post_accumulate_grad_hook(after) for each in tensors]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def step_apart(optimizer: Optimizer, part: ModelPart) -> None:
    """Make the optimizer's step one parameter at a time, so that one has its pages at a time."""
    gradients = [parameter.grad for parameter in part.parameters]
    for parameter in part.parameters:
        parameter.grad = None
    for number, gradient in enumerate(gradients):
        if gradient is None:
            continue
        parameter = part.parameters[number]
        if gradient.layout is not torch.strided:
            raise TrainerError(
                f"offload: the gradient of {part.names[number]!r} is sparse; expected dense gradients, so build "
                "its layer without sparse=True, or use offload=False"
            )
        parameter.grad = gradient
        optimizer.step()
        parameter.grad = None
        part.settle(number, optimizer)
        gradients[number] = None


def clip_apart(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Clip gradients as ``clip_grad_norm_`` does, one at a time, so that one has its pages at a time."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    norms = []
    for gradient in gradients:
        norms.append(torch.linalg.vector_norm(gradient))
        unmap_pages(gradient)
    factor = torch.clamp(most / (torch.linalg.vector_norm(torch.stack(norms)) + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
        unmap_pages(gradient)


def add_apart(left: Tensors, right: Tensors) -> Tensors:
    """Add gradients as ``add_gradients`` does, one parameter at a time."""
    result: list[torch.Tensor | None] = []
    for one, two in zip(left, right, strict=True):
        result += add_gradients([one], [two])
        unmap_all([one, two])
    return result

"""Call ``model_fn`` again for changed values, although the model is built only once.

The new module is only compared with the old one: if it differs, the change is an error. The new optimizer is moved
to the parameters of the model in training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import TrainerError
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.torch_attributes import INTERNAL
from hoptree.trainers.torch_encoding import Encoder, Opaque, TooLargeError
from hoptree.trainers.torch_session import preserved_generators

ModelAndOptimizer = tuple[nn.Module, Optimizer]
_SAMPLE = 4096  # number of elements of a tensor that are compared


@final
class ModelRebuilder:
    """Calls the user's function again; ``followed`` are names that may change the module it returns."""

    def __init__(
        self,
        module: nn.Module,
        call: Callable[[HyperParameters], ModelAndOptimizer],
        values: Mapping[str, Scalar],
        reads: set[str],
    ) -> None:
        self._module = module
        self._call = call
        self._values = dict(values)
        self._reads = reads
        self._outlines: dict[tuple[object, ...], dict[str, Any]] = {}
        self.followed: frozenset[str] = frozenset()

    def optimizer(self, values: Mapping[str, Scalar]) -> Optimizer:
        """Return the optimizer for these values, with the parameters of the model in training."""
        rebuilt, optimizer = self._rebuild(values)
        if any(values.get(name) != self._values.get(name) for name in self._reads):
            self._check_same_module(rebuilt, values)
        return _move_parameters(optimizer, rebuilt, self._module)

    def _rebuild(self, values: Mapping[str, Scalar]) -> ModelAndOptimizer:
        hp = HyperParameters(values, "model_fn")
        with preserved_generators():
            made = self._call(hp)
        self._reads |= hp.reads
        return made

    def _check_same_module(self, rebuilt: nn.Module, values: Mapping[str, Scalar]) -> None:
        for (name, built), (_, new) in zip(
            self._module.named_parameters(), rebuilt.named_parameters(), strict=False
        ):
            if built.shape != new.shape:
                raise TrainerError(
                    f"model_fn: {name} would have the shape {tuple(new.shape)} with {dict(values)}, but the "
                    f"model was built with {tuple(built.shape)}, and a model is built only once; keep the values "
                    "that its shape depends on constant in schedules and clones, and out of ht.PBT(change=…)"
                )
        # Use the new values of followed names on both sides: their changes are applied elsewhere.
        before = {**self._values, **{name: values[name] for name in self.followed if name in values}}
        key = tuple(sorted((name, repr(value)) for name, value in before.items()))
        if key not in self._outlines:
            self._outlines = {key: _outline(self._rebuild(before)[0])}
        one, two = self._outlines[key], _outline(rebuilt)
        different = sorted(name for name in one.keys() | two if one.get(name) != two.get(name))
        if different:
            changed = [name for name in sorted(self._reads) if values.get(name) != self._values.get(name)]
            raise TrainerError(
                f"{', '.join(changed)}: model_fn would create another {different[0]} with {dict(values)}, but a "
                "model is built only once; keep it constant in schedules and clones, and out of ht.PBT(change=…), "
                "or apply it in on_values=, a function (module, hp) that is called when a value changes"
            )


def _outline(module: nn.Module) -> dict[str, Any]:
    """Return a description of a module: classes, attributes, and a sample of its numbers."""
    parts = {id(part): f"module {name}" for name, part in module.named_modules()}
    tensors = {id(tensor): f"tensor {name}" for name, tensor in _tensors(module)}
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        found[f"layer {path!r}"] = type(part).__qualname__
        for name, value in vars(part).items():
            if name not in INTERNAL:
                found[f"attribute {name!r} of layer {path!r}"] = _content(value, {**parts, **tensors})
    for name, tensor in _tensors(module):
        sample = tensor.detach().flatten()[:_SAMPLE] if tensor.layout is torch.strided else None
        found[name] = (tuple(tensor.shape), None if sample is None else Encoder({}).encode(sample))
    return found


def _tensors(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _content(value: Any, registered: Mapping[int, str]) -> Any:
    try:
        return _classes(Encoder(registered).encode(value))
    except TooLargeError:
        return type(value).__qualname__


def _classes(content: Any) -> Any:
    if isinstance(content, Opaque):
        return content.kind
    return [_classes(item) for item in content] if isinstance(content, list) else content


def _move_parameters(optimizer: Optimizer, source: nn.Module, target: nn.Module) -> Optimizer:
    """Return an optimizer with its parameters replaced by those of another module."""
    replacements = {
        id(one): two
        for (_, one), (_, two) in zip(source.named_parameters(), target.named_parameters(), strict=True)
    }
    for group in optimizer.param_groups:
        parameters = group["params"]
        for index, parameter in enumerate(parameters):
            if id(parameter) not in replacements:
                raise TrainerError(
                    f"model_fn: its optimizer holds a parameter of shape {tuple(parameter.shape)} that does not "
                    "belong to the model; expected parameters of the model"
                )
            parameters[index] = replacements[id(parameter)]
    for name, value in vars(optimizer).items():
        if name != "param_groups" and isinstance(value, list) and any(id(item) in replacements for item in value):
            vars(optimizer)[name] = [replacements.get(id(item), item) for item in value]
    return optimizer

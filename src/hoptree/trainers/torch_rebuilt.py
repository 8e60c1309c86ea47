"""What a function that makes model and optimizer at once would make for other values.

The model is built once, so the new one is thrown away: of interest is whether it would be another model, which is
refused, and what its optimizer is, which is put onto the parameters of the model that is trained.
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
from hoptree.trainers.torch_session import undisturbed

Made = tuple[nn.Module, Optimizer]
_SAMPLE = 4096  # numbers of a tensor that are compared


@final
class Rebuilt:
    """Calls the user's function again; ``followed`` are names that may change what it makes of the module."""

    def __init__(
        self,
        module: nn.Module,
        call: Callable[[HyperParameters], Made],
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
        """Return the optimizer for these values, holding the parameters of the model that is trained."""
        fresh, optimizer = self._made(values)
        if any(values.get(name) != self._values.get(name) for name in self._reads):
            self._refuse_another(fresh, values)
        return _moved(optimizer, fresh, self._module)

    def _made(self, values: Mapping[str, Scalar]) -> Made:
        hp = HyperParameters(values, "model_fn")
        with undisturbed():
            made = self._call(hp)
        self._reads |= hp.reads
        return made

    def _refuse_another(self, fresh: nn.Module, values: Mapping[str, Scalar]) -> None:
        for (name, built), (_, asked) in zip(
            self._module.named_parameters(), fresh.named_parameters(), strict=False
        ):
            if built.shape != asked.shape:
                raise TrainerError(
                    f"model_fn: {name} would be of shape {tuple(asked.shape)} with {dict(values)}, but the model "
                    f"was built with {tuple(built.shape)}, and a model is built once; keep what its shape depends "
                    "on as it is in schedules, in clones, and out of ht.PBT(change=…)"
                )
        # Names that somebody follows are given their new values on both sides: what they change is their affair.
        before = {**self._values, **{name: values[name] for name in self.followed if name in values}}
        key = tuple(sorted((name, repr(value)) for name, value in before.items()))
        if key not in self._outlines:
            self._outlines = {key: _outline(self._made(before)[0])}
        one, two = self._outlines[key], _outline(fresh)
        different = sorted(name for name in one.keys() | two if one.get(name) != two.get(name))
        if different:
            changed = [name for name in sorted(self._reads) if values.get(name) != self._values.get(name)]
            raise TrainerError(
                f"{', '.join(changed)}: model_fn would make another {different[0]} with {dict(values)}, but a "
                "model is built once; keep it as it is in schedules, in clones, and out of ht.PBT(change=…), or "
                "set what depends on it in on_values=, a function (module, hp) that is called when a value changes"
            )


def _outline(module: nn.Module) -> dict[str, Any]:
    """Return what a module is: classes, attributes, and a sample of its numbers."""
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


def _moved(optimizer: Optimizer, source: nn.Module, target: nn.Module) -> Optimizer:
    """Return an optimizer that was made for one module, holding the parameters of another one instead."""
    places = {
        id(one): two
        for (_, one), (_, two) in zip(source.named_parameters(), target.named_parameters(), strict=True)
    }
    for group in optimizer.param_groups:
        held = group["params"]
        for place, parameter in enumerate(held):
            if id(parameter) not in places:
                raise TrainerError(
                    f"model_fn: its optimizer holds a parameter of shape {tuple(parameter.shape)} that is none of "
                    "the model's; expected parameters of the model"
                )
            held[place] = places[id(parameter)]
    for name, value in vars(optimizer).items():
        if name != "param_groups" and isinstance(value, list) and any(id(item) in places for item in value):
            vars(optimizer)[name] = [places.get(id(item), item) for item in value]
    return optimizer

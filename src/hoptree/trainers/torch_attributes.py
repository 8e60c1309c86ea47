"""Plain attributes that training changes: counters, lists, generators, unregistered tensors.

An attribute that is unchanged since the model was built is not part of a state, so a model without such
attributes has the same state as before.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, final

import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.trainers.errors import TrainerError
from hoptree.trainers.torch_encoding import MISSING, Decoder, Encoder, Opaque, TooLargeError, opaque

INTERNAL = frozenset(vars(nn.Module())) | {"_compiled_call_impl"}
_HOOKS = tuple(name for name in sorted(INTERNAL) if name.endswith("_hooks"))


@cache
def optimizer_internal() -> frozenset[str]:
    """Return the attributes that every optimizer has; creating the first optimizer loads torch's compiler."""
    made = Optimizer([nn.Parameter(torch.zeros(1))], {})
    return frozenset(vars(made)) | {"_need_device_dtype_check_for_fused", "_step_count", "_opt_called"}


AttributeId = tuple[int, str]  # id of an object and the name of an attribute


@final
class Attributes:
    """The plain attributes of a module's parts and of an optimizer, with their initial values."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        skip: Iterable[AttributeId] = (),
        option_attributes: Iterable[AttributeId] = (),
    ) -> None:
        self._module = module
        self._values = frozenset(skip)  # set from values of the config, not by training
        self._owners: dict[str, Any] = dict(module.named_modules())
        self._registered = _registered(module)
        self._by_name = dict(_named(module))
        self._skip = self._values
        self._built = {path: self._contents(owner, INTERNAL) for path, owner in self._owners.items()}
        self._hooks = _hook_count(module)
        self._flags = [(name, parameter, parameter.requires_grad) for name, parameter in module.named_parameters()]
        self.follow(optimizer, option_attributes)

    def follow(self, optimizer: Optimizer, option_attributes: Iterable[AttributeId] = ()) -> None:
        """Track another optimizer from now on; torch's own optimizers keep everything in their state."""
        self._skip = self._values | frozenset(option_attributes)
        own = type(optimizer).__module__.startswith("torch.optim")
        self._optimizer = None if own else optimizer
        self._optimizer_built = {} if own else self._contents(optimizer, optimizer_internal())

    def changed(self) -> dict[str, Any]:
        """Return the changed attributes, encoded, by name; raise an error if a state cannot hold one."""
        found: dict[str, Any] = {}
        if _hook_count(self._module) != self._hooks:
            raise TrainerError(
                "model: training added or removed a hook, which a state cannot hold; register hooks in the model "
                "function"
            )
        for path, owner in self._owners.items():
            self._compare(f"attribute.{path}:", owner, self._built[path], INTERNAL, found)
        if self._optimizer is not None:
            self._compare(
                "attribute/optimizer:", self._optimizer, self._optimizer_built, optimizer_internal(), found
            )
        flags = dict(self._flag_changes())
        if flags:
            found["requires_grad"] = ["dict", [[name, flag] for name, flag in flags.items()]]
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set all attributes from a state; those that it does not name get their initial values."""
        for path, owner in self._owners.items():
            self._set(f"attribute.{path}:", owner, self._built[path], INTERNAL, state)
        if self._optimizer is not None:
            self._set("attribute/optimizer:", self._optimizer, self._optimizer_built, optimizer_internal(), state)
        flags = dict(state["requires_grad"][1]) if "requires_grad" in state else {}
        for name, parameter, before in self._flags:
            if parameter.requires_grad != flags.get(name, before):
                parameter.requires_grad_(flags.get(name, before))

    def _flag_changes(self) -> Iterable[tuple[str, bool]]:
        return ((name, one.requires_grad) for name, one, before in self._flags if one.requires_grad != before)

    def _contents(self, owner: Any, internal: frozenset[str]) -> dict[str, tuple[Any, Any]]:
        """Return each attribute's value and its content (None: a scalar, which is its own content)."""
        return {
            name: (value, None if type(value) in _SCALARS else self._encode(value))
            for name, value in vars(owner).items()
            if name not in internal and (id(owner), name) not in self._skip
        }

    def _encode(self, value: Any) -> Any:
        try:
            return Encoder(self._registered).encode(value)
        except TooLargeError:
            return opaque(value)

    def _compare(
        self, prefix: str, owner: Any, built: Mapping[str, tuple[Any, Any]], internal: frozenset[str], found: Any
    ) -> None:
        now = vars(owner)
        for name, value in now.items():
            if name in internal or (id(owner), name) in self._skip:
                continue
            before = built.get(name)
            scalar = before is not None and before[1] is None and type(value) is type(before[0])
            if scalar and before is not None and (value is before[0] or value == before[0]):
                continue
            content = self._encode(value)
            if before is None or content != _content(before):
                if isinstance(value, list | dict | set | deque):
                    self._check_alias(prefix + name, value)
                _check_storable(content, None if before is None else _content(before), prefix, name)
                found[prefix + name] = content
        removed = [name for name in built if name not in now]
        for name in removed:
            found[prefix + name] = ["absent"]

    def _check_alias(self, name: str, value: Any) -> None:
        """Raise an error if another attribute is the same list or dictionary: after a hop they would be two."""
        owners = [(f"attribute.{path}:", owner) for path, owner in self._owners.items()]
        owners += [("attribute/optimizer:", self._optimizer)] if self._optimizer is not None else []
        for prefix, owner in owners:
            for other, attribute in vars(owner).items():
                if attribute is value and prefix + other != name:
                    raise TrainerError(
                        f"model: the attributes {name.split(':')[-1]!r} and {other!r} are the same "
                        f"{type(value).__name__}, which training changes; keep it in one attribute, or register it "
                        "as a buffer (self.register_buffer)"
                    )

    def _set(
        self, prefix: str, owner: Any, built: Mapping[str, tuple[Any, Any]], internal: frozenset[str], state: Any
    ) -> None:
        now = vars(owner)
        names = {name for name in now if name not in internal and (id(owner), name) not in self._skip}
        given = {name.removeprefix(prefix) for name in state if name.startswith(prefix)}
        for name in sorted(names | built.keys() | given):
            if name in given:
                content = state[prefix + name]
            elif name in built:
                content = _content(built[name])
                if name in now and (now[name] is built[name][0] and built[name][1] is None):
                    continue
            else:
                content = ["absent"]
            if content == ["absent"]:
                now.pop(name, None)
                continue
            present = now.get(name, built[name][0] if name in built else MISSING)
            if name in built and isinstance(content, Opaque):
                present = built[name][0]
            now[name] = Decoder(self._by_name).decode(content, present)


def outline(optimizer: Optimizer) -> dict[str, Any]:
    """Return the plain attributes of a new optimizer, objects by their class; empty for torch's own."""
    if type(optimizer).__module__.startswith("torch.optim"):
        return {}
    params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    encoder = Encoder({id(parameter): str(number) for number, parameter in enumerate(params)})
    attributes = {name: value for name, value in vars(optimizer).items() if name not in optimizer_internal()}
    try:
        return {name: _classes(encoder.encode(value)) for name, value in attributes.items()}
    except TooLargeError:
        return {}


def _classes(content: Any) -> Any:
    if isinstance(content, Opaque):
        return content.kind
    return [_classes(item) for item in content] if isinstance(content, list) else content


_SCALARS: tuple[type, ...] = (int, float, str, bool, types.NoneType)


def _content(before: tuple[Any, Any]) -> Any:
    value, content = before
    return Encoder({}).encode(value) if content is None else content


def _hook_count(module: nn.Module) -> int:
    return sum(
        len(attributes[name]) for part in module.modules() for attributes in (vars(part),) for name in _HOOKS
    )


def _named(module: nn.Module) -> Iterable[tuple[str, Any]]:
    yield from ((f"module {name}", part) for name, part in module.named_modules())
    yield from ((f"parameter {name}", tensor) for name, tensor in module.named_parameters())
    yield from ((f"buffer {name}", tensor) for name, tensor in module.named_buffers())


def _registered(module: nn.Module) -> dict[int, str]:
    return {id(value): name for name, value in _named(module)}


def _check_storable(content: Any, before: Any, prefix: str, name: str) -> None:
    """Raise an error if a changed attribute contains an object that a state cannot hold."""
    found = _new_opaque(content, before)
    if found is None:
        return
    if prefix.startswith("attribute/"):
        raise TrainerError(
            f"optimizer: training changes its attribute {name!r}, which contains a {found} that a state cannot "
            "hold; keep it in optimizer.state or as numbers, text, tensors, or lists and dictionaries of these"
        )
    layer = prefix.removeprefix("attribute.").removesuffix(":")
    where = f"layer {layer!r}" if layer else "the module"
    raise TrainerError(
        f"model: training changes the attribute {name!r} of {where}, which contains a {found} that a state cannot "
        "hold; register it as a buffer (self.register_buffer), or keep it as numbers, text, tensors, or lists and "
        "dictionaries of these"
    )


def _new_opaque(content: Any, before: Any) -> str | None:
    if isinstance(content, Opaque):
        return None if content == before else content.kind
    if not isinstance(content, list):
        return None
    others = before if isinstance(before, list) else []
    for index, item in enumerate(content):
        found = _new_opaque(item, others[index] if index < len(others) else None)
        if found is not None:
            return found
    return None

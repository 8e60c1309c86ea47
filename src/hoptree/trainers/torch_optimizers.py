"""Optimizers: create them by name, class or function, and keep them at the current values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import torch
from torch import nn
from torch.optim import Optimizer

from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import TrainerError, user_error
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.torch_attributes import outline
from hoptree.trainers.torch_session import preserved_generators

OptimizerFunction: TypeAlias = Callable[[list[nn.Parameter], HyperParameters], Optimizer]
OptimizerChoice: TypeAlias = str | type[Optimizer] | OptimizerFunction
GroupOptions: TypeAlias = list[dict[str, Any]]

OPTIMIZERS = {
    name.lower(): name
    for name in (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "LBFGS", "Muon", "NAdam", "RAdam",
        "RMSprop", "Rprop", "SGD", "SparseAdam",
    )
    if hasattr(torch.optim, name)
}  # fmt: skip
_FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}  # one pass over memory instead of ten; just as reproducible
_INTERNAL = {"self", "params", "foreach", "fused", "capturable", "differentiable"}


def check_choice(choice: object) -> OptimizerChoice:
    """Return the choice; raise an error if it does not name an optimizer."""
    if isinstance(choice, str):
        if choice.lower() in OPTIMIZERS:
            return choice.lower()
        raise TrainerError(
            f"optimizer: {choice!r} is unknown; expected one of {', '.join(OPTIMIZERS)}, "
            "or a function (params, hp) -> Optimizer"
        )
    if isinstance(choice, Optimizer) or not callable(choice):
        raise TrainerError(
            f"optimizer: {type(choice).__name__}; expected a name such as 'adam', a class of torch.optim, "
            "or a function (params, hp) -> Optimizer that creates a new one"
        )
    return choice


@final
class TunedOptimizer:
    """An optimizer whose parameter groups follow the values.

    When a value that its constructor reads changes, the optimizer is created again, so that groups may have their
    own values; every other option that the config names is set in all groups. If the new optimizer has another
    class or other parameters, it replaces the old one, with an empty state.
    """

    def __init__(
        self,
        create: Callable[[Mapping[str, Scalar]], Optimizer],
        values: Mapping[str, Scalar],
        reads: set[str],
        optimizer: Optimizer,
        also_follows: frozenset[str] = frozenset(),
    ) -> None:
        self._create = create
        self._reads = reads
        self._also_follows = also_follows
        self._origin = dict(values)
        self.switched: dict[str, Scalar] | None = None  # the values of the current one, if it is not the first one
        self._applied: Mapping[str, Scalar] | None = None
        self._use(optimizer, values)

    def _use(self, optimizer: Optimizer, values: Mapping[str, Scalar]) -> None:
        self.optimizer = optimizer
        self.needs_closure = _needs_closure(type(optimizer))
        self._options = settable(type(optimizer), optimizer.defaults)
        names = self._options - {"betas" if name in ("beta1", "beta2") else name for name in self._reads}
        self._direct = frozenset(name for name in names if all(name in group for group in optimizer.param_groups))
        # A user's optimizer may keep an option as an attribute of the same name: set it there.
        inside = vars(optimizer)
        others = [name for name in sorted(names - self._direct) if name in values]
        self._attribute_options = [name for name in others if name in inside and inside[name] == values[name]]
        self._fixed = {name: values[name] for name in others if name not in self._attribute_options}
        self._attributes = outline(optimizer)

    @property
    def follows(self) -> frozenset[str]:
        """The names whose values it applies, or that must not change."""
        return frozenset(self._reads) | self._options | {"beta1", "beta2"} | self._also_follows

    @property
    def attribute_options(self) -> list[tuple[int, str]]:
        """The attributes of the optimizer that are set from values, with the optimizer's id."""
        return [(id(self.optimizer), name) for name in self._attribute_options]

    def invalidate(self) -> None:
        """Apply all values the next time, because a state was loaded into the groups."""
        self._applied = None

    def apply(self, values: Mapping[str, Scalar]) -> bool:
        """Set the options of all groups if a value has changed; return whether the optimizer was replaced."""
        if values is self._applied or values == self._applied:
            return False
        before = self._applied
        changed = before is None or any(before.get(name) != values.get(name) for name in self._reads)
        switched = bool(self._reads) and changed and self._recreate(values)
        for name, given in self._fixed.items():
            if values.get(name) != given:
                raise TrainerError(
                    f"{name}: {values.get(name)!r}, but the optimizer {type(self.optimizer).__name__} was created "
                    f"with {given!r} and has it in none of its groups, so it cannot change; put it into the "
                    f"optimizer's defaults, or keep {name} constant in schedules"
                )
        direct = options(self._direct, values)
        for group in self.optimizer.param_groups:
            for name, value in direct.items():
                group[name] = _betas(value, group[name]) if name == "betas" else value
        for name in self._attribute_options:
            setattr(self.optimizer, name, values.get(name, self._origin.get(name)))
        self._applied = values
        return switched

    def _recreate(self, values: Mapping[str, Scalar]) -> bool:
        with preserved_generators():
            created = self._create(values)
        if not _same_kind(created, self.optimizer):
            self._use(created, values)
            self.switched = dict(values)
            return True
        if (found := outline(created)) != self._attributes:
            names = sorted(
                name for name in found.keys() | self._attributes if found.get(name) != self._attributes.get(name)
            )
            raise TrainerError(
                f"optimizer: the attribute {names[0]!r} of {type(created).__name__} would differ with "
                f"{dict(values)}, but an optimizer is created only once; keep such an option in its groups (its "
                "defaults), or keep the values that it depends on constant in schedules"
            )
        for group, new in zip(self.optimizer.param_groups, group_options(created), strict=True):
            group.update(new)
        return False

    def switch_to(self, made: Mapping[str, Scalar] | None) -> bool:
        """Switch to the optimizer of these values (None: the first one); return whether it changed."""
        if made == self.switched:
            return False
        values = self._origin if made is None else made
        with preserved_generators():
            self._use(self._create(values), values)
        self.switched = None if made is None else dict(made)
        self._applied = None
        return True


def make(choice: OptimizerChoice, module: nn.Module, values: Mapping[str, Scalar]) -> TunedOptimizer:
    """Create the optimizer of a module for the values at the start of training.

    A value named ``optimizer`` overrides a choice by name; for a function it is a value like any other.
    """
    params = list(module.parameters())
    if not params:
        raise TrainerError("model: it has no parameters; expected a module with something to train")
    if isinstance(choice, str) and "optimizer" in values:

        def by_value(now: Mapping[str, Scalar]) -> Optimizer:
            name = OPTIMIZERS[str(check_choice(_name(now.get("optimizer", choice))))]
            return _by_class(getattr(torch.optim, name), module, params, now)

        every = frozenset().union(*(settable(getattr(torch.optim, name)) for name in OPTIMIZERS.values()))
        return TunedOptimizer(by_value, values, {"optimizer"}, by_value(values), every)
    if isinstance(choice, str | type):
        kind = getattr(torch.optim, OPTIMIZERS[choice]) if isinstance(choice, str) else choice

        def by_class(now: Mapping[str, Scalar]) -> Optimizer:
            return _by_class(kind, module, params, now)

        return TunedOptimizer(by_class, values, set(), by_class(values))
    return _from_function(choice, params, values)


def _from_function(
    choice: OptimizerFunction, params: list[nn.Parameter], values: Mapping[str, Scalar]
) -> TunedOptimizer:
    def call(hp: HyperParameters) -> Optimizer:
        try:
            optimizer = choice(params, hp)
        except Exception as error:
            raise user_error(error, "optimizer: the optimizer function raised this") from None
        if not isinstance(optimizer, Optimizer):
            raise TrainerError(
                f"optimizer: the function returned {type(optimizer).__name__}; expected a torch.optim.Optimizer"
            )
        return optimizer

    hp = HyperParameters(values, "the optimizer function")
    optimizer = call(hp)

    def by_function(now: Mapping[str, Scalar]) -> Optimizer:
        again = HyperParameters(now, "the optimizer function")
        try:
            return call(again)
        finally:
            hp.reads.update(again.reads)

    return TunedOptimizer(by_function, values, hp.reads, optimizer)


def _name(value: Scalar) -> str:
    if isinstance(value, str):
        return value
    raise TrainerError(
        f"optimizer: {value!r} in the config; expected the name of an optimizer, one of {', '.join(OPTIMIZERS)}"
    )


def _needs_closure(kind: type[Optimizer]) -> bool:
    """Return whether ``step`` requires a function that computes the loss again."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def _same_kind(one: Optimizer, two: Optimizer) -> bool:
    """Return whether two optimizers have the same class, and the same parameters in the same groups."""
    groups = [
        [[id(each) for each in group["params"]] for group in optimizer.param_groups] for optimizer in (one, two)
    ]
    return type(one) is type(two) and groups[0] == groups[1]


def group_options(optimizer: Optimizer) -> GroupOptions:
    """Return the settable options of every group, without the parameters and the optimizer's own entries."""
    names = settable(type(optimizer), optimizer.defaults)
    return [{name: value for name, value in group.items() if name in names} for group in optimizer.param_groups]


def settable(kind: type[Optimizer], defaults: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the names of the options that the optimizer's constructor takes."""
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset(defaults or ()) - _INTERNAL
    return frozenset(parameter.name for parameter in parameters) - _INTERNAL


def options(names: frozenset[str], values: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the options that the config names; ``beta1`` and ``beta2`` form a pair with None for a missing one.

    >>> options(frozenset({"lr", "betas"}), {"lr": 0.1, "beta1": 0.8, "width": 64})
    {'lr': 0.1, 'betas': (0.8, None)}
    """
    result: dict[str, Any] = {name: value for name, value in values.items() if name in names}
    if "betas" in names and ("beta1" in values or "beta2" in values):
        result["betas"] = (values.get("beta1"), values.get("beta2"))
    return result


def _by_class(
    kind: type[Optimizer], module: nn.Module, params: list[nn.Parameter], values: Mapping[str, Scalar]
) -> Optimizer:
    given = options(settable(kind, values), values)
    if "betas" in given:
        given["betas"] = _betas(given["betas"], inspect.signature(kind).parameters["betas"].default)
    if kind.__name__ in _FUSED and kind.__module__.startswith("torch.optim."):
        sparse = any(getattr(part, "sparse", False) for part in module.modules())
        # For narrower types torch 2.13 reads uninitialized momentum.
        floating = all(parameter.dtype in (torch.float32, torch.float64) for parameter in params)
        given["fused"] = floating and not sparse
    make_it: Callable[..., Optimizer] = kind
    try:
        return make_it(params, **given)
    except (ValueError, TypeError) as error:
        given.pop("fused", None)
        shown = ", ".join(f"{name}={value!r}" for name, value in sorted(given.items()))
        raise TrainerError(f"optimizer: {kind.__name__} rejected {shown or 'its defaults'}: {error}") from None


def _betas(given: tuple[float | None, float | None], now: tuple[float, float]) -> tuple[float, float]:
    first, second = given
    return (now[0] if first is None else first, now[1] if second is None else second)

"""Optimizers: made by name, class or function, and kept at the values of the moment."""

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
from hoptree.trainers.torch_session import undisturbed

OptimizerFunction: TypeAlias = Callable[[list[nn.Parameter], HyperParameters], Optimizer]
OptimizerChoice: TypeAlias = str | type[Optimizer] | OptimizerFunction
GroupOptions: TypeAlias = list[dict[str, Any]]

OPTIMIZERS = {
    name.lower(): name
    for name in (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop",
        "SGD",
    )
}  # fmt: skip
_FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}  # one pass over memory instead of ten; no other bits between runs
_INTERNAL = {"self", "params", "foreach", "fused", "capturable", "differentiable"}


def known(choice: object) -> OptimizerChoice:
    """Return the choice if an optimizer can be made of it."""
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
            "or a function (params, hp) -> Optimizer that makes a new one"
        )
    return choice


@final
class TunedOptimizer:
    """An optimizer whose groups follow the values.

    A function is asked again when a value it read changes, so that groups may have values of their own; every
    other option of the optimizer that the config names is set in all groups.
    """

    def __init__(self, optimizer: Optimizer, ask: Callable[[Mapping[str, Scalar]], GroupOptions], reads: set[str]):
        self.optimizer = optimizer
        self._ask = ask
        self._reads = frozenset(reads)
        read = {"betas" if name in ("beta1", "beta2") else name for name in reads}
        self._direct = settable(type(optimizer), optimizer.defaults) - read
        self._applied: Mapping[str, Scalar] | None = None

    @property
    def follows(self) -> frozenset[str]:
        """The names whose values it applies."""
        return self._reads | self._direct | {"beta1", "beta2"}

    def forget(self) -> None:
        """Set everything at the next occasion: the groups were changed by someone else."""
        self._applied = None

    def apply(self, values: Mapping[str, Scalar]) -> None:
        """Set the options of all groups to the values, if a value changed."""
        if values is self._applied or values == self._applied:
            return
        groups = self.optimizer.param_groups
        before = self._applied
        if self._reads and (before is None or any(before.get(name) != values.get(name) for name in self._reads)):
            with undisturbed():
                asked = self._ask(values)
            for group, fresh in zip(groups, asked, strict=True):
                group.update(fresh)
        direct = options(self._direct, values)
        for group in groups:
            for name, value in direct.items():
                group[name] = _betas(value, group[name]) if name == "betas" else value
        self._applied = values


def make(choice: OptimizerChoice, module: nn.Module, values: Mapping[str, Scalar]) -> TunedOptimizer:
    """Make the optimizer of a module for the values at the beginning of training."""
    params = list(module.parameters())
    if not params:
        raise TrainerError("model: it has no parameters; expected a module with something to train")
    if isinstance(choice, str | type):
        kind = getattr(torch.optim, OPTIMIZERS[choice]) if isinstance(choice, str) else choice
        return TunedOptimizer(_by_class(kind, module, params, values), lambda _: [], set())

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
    return TunedOptimizer(
        optimizer, lambda now: group_options(call(HyperParameters(now, "the optimizer function"))), hp.reads
    )


def group_options(optimizer: Optimizer) -> GroupOptions:
    """Return what can be set in every group, without the parameters and what the optimizer keeps there itself."""
    names = settable(type(optimizer), optimizer.defaults)
    return [{name: value for name, value in group.items() if name in names} for group in optimizer.param_groups]


def settable(kind: type[Optimizer], defaults: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Return the names of the options that the optimizer's constructor takes."""
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset(defaults or ()) - _INTERNAL
    return frozenset(parameter.name for parameter in parameters) - _INTERNAL


def options(names: frozenset[str], values: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the options that the config names; ``beta1`` and ``beta2`` make a pair with None for the other.

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
        floating = all(parameter.is_floating_point() for parameter in params)
        given["fused"] = floating and not sparse
    make_it: Callable[..., Optimizer] = kind
    try:
        return make_it(params, **given)
    except (ValueError, TypeError) as error:
        given.pop("fused", None)
        shown = ", ".join(f"{name}={value!r}" for name, value in sorted(given.items()))
        raise TrainerError(f"optimizer: {kind.__name__} refused {shown or 'its defaults'}: {error}") from None


def _betas(given: tuple[float | None, float | None], now: tuple[float, float]) -> tuple[float, float]:
    first, second = given
    return (now[0] if first is None else first, now[1] if second is None else second)

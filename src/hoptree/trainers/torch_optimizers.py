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
from hoptree.trainers.torch_attributes import outline
from hoptree.trainers.torch_session import undisturbed

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

    It is asked for again when a value that decides about it changes, so that groups may have values of their own;
    every other option that the config names is set in all groups. If it would then be of another kind, or have
    other parameters, the new one takes over, with an empty state.
    """

    def __init__(
        self,
        ask: Callable[[Mapping[str, Scalar]], Optimizer],
        values: Mapping[str, Scalar],
        reads: set[str],
        optimizer: Optimizer,
        also: frozenset[str] = frozenset(),
    ) -> None:
        self._ask = ask
        self._reads = reads
        self._also = also
        self._origin = dict(values)
        self.switched: dict[str, Scalar] | None = None  # what the present one was made with, if not the first one
        self._applied: Mapping[str, Scalar] | None = None
        self._take(optimizer, values)

    def _take(self, optimizer: Optimizer, values: Mapping[str, Scalar]) -> None:
        self.optimizer = optimizer
        self.needs_closure = _needs_closure(type(optimizer))
        self._options = settable(type(optimizer), optimizer.defaults)
        names = self._options - {"betas" if name in ("beta1", "beta2") else name for name in self._reads}
        self._direct = frozenset(name for name in names if all(name in group for group in optimizer.param_groups))
        # A user's optimizer may keep an option as an attribute: it is set there, if it is found under its name.
        inside = vars(optimizer)
        others = [name for name in sorted(names - self._direct) if name in values]
        self._held = [name for name in others if name in inside and inside[name] == values[name]]
        self._fixed = {name: values[name] for name in others if name not in self._held}
        self._attributes = outline(optimizer)

    @property
    def follows(self) -> frozenset[str]:
        """The names whose values it applies, or refuses to change."""
        return frozenset(self._reads) | self._options | {"beta1", "beta2"} | self._also

    @property
    def held(self) -> list[tuple[int, str]]:
        """The attributes of the optimizer that are set to values, with the optimizer's identity."""
        return [(id(self.optimizer), name) for name in self._held]

    def forget(self) -> None:
        """Set everything at the next occasion: the groups were changed by someone else."""
        self._applied = None

    def apply(self, values: Mapping[str, Scalar]) -> bool:
        """Set the options of all groups to the values, if a value changed; return whether another one took over."""
        if values is self._applied or values == self._applied:
            return False
        before = self._applied
        changed = before is None or any(before.get(name) != values.get(name) for name in self._reads)
        switched = bool(self._reads) and changed and self._ask_again(values)
        for name, given in self._fixed.items():
            if values.get(name) != given:
                raise TrainerError(
                    f"{name}: {values.get(name)!r}, but the optimizer {type(self.optimizer).__name__} was made "
                    f"with {given!r} and has it in none of its groups, so that it cannot change; put it into the "
                    f"optimizer's defaults, or keep {name} as it is in schedules"
                )
        direct = options(self._direct, values)
        for group in self.optimizer.param_groups:
            for name, value in direct.items():
                group[name] = _betas(value, group[name]) if name == "betas" else value
        for name in self._held:
            setattr(self.optimizer, name, values.get(name, self._origin.get(name)))
        self._applied = values
        return switched

    def _ask_again(self, values: Mapping[str, Scalar]) -> bool:
        with undisturbed():
            asked = self._ask(values)
        if not _alike(asked, self.optimizer):
            self._take(asked, values)
            self.switched = dict(values)
            return True
        if (found := outline(asked)) != self._attributes:
            names = sorted(
                name for name in found.keys() | self._attributes if found.get(name) != self._attributes.get(name)
            )
            raise TrainerError(
                f"optimizer: the attribute {names[0]!r} of {type(asked).__name__} would be another one with "
                f"{dict(values)}, but an optimizer is made once; keep such an option in its groups (its defaults), "
                "or what it depends on as it is in schedules"
            )
        for group, fresh in zip(self.optimizer.param_groups, group_options(asked), strict=True):
            group.update(fresh)
        return False

    def switch_to(self, made: Mapping[str, Scalar] | None) -> bool:
        """Have the optimizer that was made with these values (None: the first one); return whether it changed."""
        if made == self.switched:
            return False
        values = self._origin if made is None else made
        with undisturbed():
            self._take(self._ask(values), values)
        self.switched = None if made is None else dict(made)
        self._applied = None
        return True


def make(choice: OptimizerChoice, module: nn.Module, values: Mapping[str, Scalar]) -> TunedOptimizer:
    """Make the optimizer of a module for the values at the beginning of training.

    A value named ``optimizer`` takes the place of a choice by name; to a function it is a value like any other.
    """
    params = list(module.parameters())
    if not params:
        raise TrainerError("model: it has no parameters; expected a module with something to train")
    if isinstance(choice, str) and "optimizer" in values:

        def by_value(now: Mapping[str, Scalar]) -> Optimizer:
            name = OPTIMIZERS[str(known(_name(now.get("optimizer", choice))))]
            return _by_class(getattr(torch.optim, name), module, params, now)

        every = frozenset().union(*(settable(getattr(torch.optim, name)) for name in OPTIMIZERS.values()))
        return TunedOptimizer(by_value, values, {"optimizer"}, by_value(values), every)
    if isinstance(choice, str | type):
        kind = getattr(torch.optim, OPTIMIZERS[choice]) if isinstance(choice, str) else choice

        def by_class(now: Mapping[str, Scalar]) -> Optimizer:
            return _by_class(kind, module, params, now)

        return TunedOptimizer(by_class, values, set(), by_class(values))

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
    """Return whether its step cannot be called without a function that computes the loss again."""
    closure = inspect.signature(kind.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def _alike(one: Optimizer, two: Optimizer) -> bool:
    """Return whether two optimizers are of one kind and have the same parameters in the same groups."""
    groups = [
        [[id(each) for each in group["params"]] for group in optimizer.param_groups] for optimizer in (one, two)
    ]
    return type(one) is type(two) and groups[0] == groups[1]


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
        # For narrower types torch 2.13 reads momentum that nobody has written yet.
        floating = all(parameter.dtype in (torch.float32, torch.float64) for parameter in params)
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

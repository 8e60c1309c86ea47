"""Conversions between our parameters and Optuna's distributions.

Optuna gets options as indices, so that an option can be anything. It gets numbers with a step as integer indices
too, because its own steps are computed in binary. It supports a step or a log scale, but not both: for both, we ask
for any number of the range and take the nearest value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from hoptree.search.parsed_parameters import Continuous, Stepped, Whole, nearest
from hoptree.search.tree import ChoiceNode, Decisions, Parameter

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial


def suggest(trial: Trial, parameter: Parameter) -> float:
    """Return Optuna's decision for a parameter; a parameter with a single value is not passed to Optuna."""
    path, count = parameter.path, parameter.count
    if count == 1:
        return 0
    match parameter:
        case Continuous(_, low, high, log):
            return trial.suggest_float(path, low, high, log=log)
        case Whole(_, low, high, 1, log):
            return trial.suggest_int(path, low, high, log=log) - low
        case Whole(log=True) | Stepped(log=True):
            return nearest(parameter, trial.suggest_float(path, parameter.low, _last(parameter), log=True))
        case Whole() | Stepped():
            return trial.suggest_int(path, 0, parameter.count - 1)
        case ChoiceNode():
            return int(trial.suggest_categorical(path, list(range(parameter.count))))
        case _:
            assert_never(parameter)


def optuna_arguments(parameters: Mapping[str, Parameter], decisions: Decisions) -> dict[str, Any]:
    """Return decisions as the arguments ``params`` and ``distributions`` of an Optuna trial."""
    distributions: dict[str, BaseDistribution] = {}
    params: dict[str, float] = {}
    for path, decision in decisions.items():
        parameter = parameters[path]
        if parameter.count != 1:
            distributions[path] = distribution_of(parameter)
            params[path] = _external(parameter, decision)
    return {"params": params, "distributions": distributions}


def _external(parameter: Parameter, decision: float) -> float:
    match parameter:
        case Whole(step=1) | Whole(log=True) | Stepped(log=True):
            return parameter.value(decision)
        case _:
            return decision


def _last(parameter: Whole | Stepped) -> float:
    return parameter.value(parameter.count - 1)


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """Return the distribution that ``suggest`` lets Optuna sample from."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter:
        case Continuous(_, low, high, log):
            return FloatDistribution(low, high, log=log)
        case Whole(_, low, high, 1, log):
            return IntDistribution(low, high, log=log)
        case Whole(log=True) | Stepped(log=True):
            return FloatDistribution(parameter.low, _last(parameter), log=True)
        case Whole() | Stepped():
            return IntDistribution(0, parameter.count - 1)
        case ChoiceNode():
            return CategoricalDistribution(list(range(parameter.count)))
        case _:
            assert_never(parameter)

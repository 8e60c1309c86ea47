"""A space and its configs as Optuna distributions and values, for display.

Unlike ``search/optuna_distributions.py``, which encodes options by index, it shows values as they are: numbers with
their ranges, options as themselves if Optuna accepts them, schedules and parts as text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never, final

from hoptree.core.schedules import Config, Schedule
from hoptree.search.describe_space import node_text
from hoptree.search.match_config import decisions_of
from hoptree.search.parse_space import Space, read
from hoptree.search.parsed_parameters import Continuous, Stepped, Whole
from hoptree.search.tree import ChoiceNode, Given, Node, Parameter, ScheduleNode, Several, SpacePart, parameters
from hoptree.search.value_kinds import text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@final
class Parameters:
    """The parameters of a space: their distributions, and their values in a config."""

    def __init__(self, space: Space) -> None:
        self._root = read(space)
        self._open = {found.path: found for found in parameters(self._root) if found.count != 1}
        self._options = {
            path: options_of(found) for path, found in self._open.items() if isinstance(found, ChoiceNode)
        }
        self.distributions = {path: self._distribution(found) for path, found in self._open.items()}

    @property
    def constants(self) -> dict[str, str]:
        """The values that are the same in every config, as text."""
        return {entry.path: text(entry.value) for _, entry in self._root.entries if isinstance(entry, Given)}

    def values(self, config: Config) -> dict[str, Any]:
        """Return the values of a config; values outside of the space, which users may add, are left out."""
        decisions = decisions_of(self._root, config)
        if decisions is None:
            decisions = {}
            for name, entry in self._root.entries:
                mine = {key: config[key] for key in config if key == name or key.startswith(f"{name}.")}
                decisions |= decisions_of(SpacePart("", ((name, entry),), ()), mine) or {}
        return {path: self._value(path, chosen) for path, chosen in decisions.items() if path in self._open}

    def _value(self, path: str, decision: float) -> Any:
        parameter = self._open[path]
        return (
            self._options[path][int(decision)] if isinstance(parameter, ChoiceNode) else parameter.value(decision)
        )

    def _distribution(self, parameter: Parameter) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        match parameter:
            case Continuous(_, low, high, log):
                return FloatDistribution(low, high, log=log)
            case Stepped(_, low, _, step, log):  # Optuna supports steps or logarithms, not both
                return FloatDistribution(
                    low, parameter.value(parameter.count - 1), log=log, step=None if log else step
                )
            case Whole(_, low, _, step, log):
                return IntDistribution(low, parameter.value(parameter.count - 1), log=log, step=1 if log else step)
            case ChoiceNode():
                return CategoricalDistribution(self._options[parameter.path])
            case _:
                assert_never(parameter)


def options_of(pick: ChoiceNode) -> Sequence[Any]:
    """Return options for Optuna: themselves if all are scalars that it can distinguish, else as text."""
    values = [option.value for option in pick.options if isinstance(option, Given)]
    if len(values) == pick.count and all(map(_is_plain, values)) and len(set(values)) == len(values):
        return values
    texts = [label(option) for option in pick.options]
    return [f"{text} (option {i})" if texts.count(text) > 1 else text for i, text in enumerate(texts)]


def label(node: Node) -> str:
    """Return a node as text, similar to how it was written."""
    match node:
        case SpacePart(_, entries):
            return "{" + ", ".join(f"{name!r}: {label(entry)}" for name, entry in entries) + "}"
        case ChoiceNode(_, options):
            return f"choice({', '.join(map(label, options))})"
        case Several(_, items):
            return f"[{', '.join(map(label, items))}]"
        case ScheduleNode(_, kind, arguments):
            return f"{kind}({', '.join(f'{name}={label(argument)}' for name, argument in arguments)})"
        case Given(_, value) if isinstance(value, str):
            return value
        case _:
            return node_text(node)


def config_text(config: Config) -> str:
    """Return a config as one line.

    >>> config_text({"lr": 0.1, "name": "sgd"})
    "lr=0.1, name='sgd'"
    """
    return ", ".join(f"{name}={text(value)}" for name, value in config.items())


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Schedule) and (not isinstance(value, float) or math.isfinite(value))

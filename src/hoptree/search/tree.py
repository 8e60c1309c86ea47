"""The tree of a parsed space: constants, parameters, schedules with searched arguments, and parts.

Every sampler works on it in two steps. ``decide`` walks the tree and asks for a decision for every active
parameter: those below an option only if that option was chosen. ``build`` turns the decisions into a config, or
raises an error if the space rejects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, assert_never, final

import msgspec

from hoptree.core.errors import ScheduleError
from hoptree.core.schedules import Config, Value, as_schedule
from hoptree.search.constraints import Condition, check
from hoptree.search.errors import ConfigRefusedError
from hoptree.search.parsed_parameters import Continuous, Range, Stepped, Whole, index_at
from hoptree.search.schedules import CONSTRUCTORS


@final
class Given(msgspec.Struct, frozen=True):
    """A constant or a schedule without searched values."""

    path: str
    value: Value


@final
class ChoiceNode(msgspec.Struct, frozen=True):
    """A choice between several nodes; the decision is an index."""

    path: str
    options: tuple[Node, ...]

    @property
    def count(self) -> int:
        """Return the number of options."""
        return len(self.options)

    def at(self, share: float) -> int:
        """Return the index at a fraction of the range."""
        return index_at(share, self.count)


@final
class Several(msgspec.Struct, frozen=True):
    """A list among the arguments of a schedule."""

    path: str
    items: tuple[Node, ...]


@final
class ScheduleNode(msgspec.Struct, frozen=True):
    """A schedule with searched arguments, built when they are decided."""

    path: str
    kind: str
    arguments: tuple[tuple[str, Node], ...]


@final
class SpacePart(msgspec.Struct, frozen=True):
    """A dictionary of named nodes, with conditions on their values."""

    path: str
    entries: tuple[tuple[str, Node], ...]
    conditions: tuple[Condition, ...]


Node: TypeAlias = Given | Range | ChoiceNode | Several | ScheduleNode | SpacePart
Parameter: TypeAlias = Range | ChoiceNode
Choose: TypeAlias = Callable[[Parameter], float]
Decisions: TypeAlias = dict[str, float]  # by path of the parameter: an index or, if it is continuous, the value


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct children of a node."""
    match node:
        case ChoiceNode():
            return node.options
        case Several():
            return node.items
        case ScheduleNode():
            return tuple(argument for _, argument in node.arguments)
        case SpacePart():
            return tuple(entry for _, entry in node.entries)
        case _:
            return ()


def nodes(node: Node) -> Iterator[Node]:
    """Yield a node and its descendants, in the order of definition."""
    yield node
    for child in children(node):
        yield from nodes(child)


def parameters(node: Node) -> list[Parameter]:
    """Return all parameters below a node, whether or not their option is chosen."""
    return [found for found in nodes(node) if isinstance(found, Parameter)]


def size(node: Node) -> int | None:
    """Return the number of ways to decide a node; None if it is infinite."""
    if isinstance(node, Range):
        return node.count
    below = [size(child) for child in children(node)]
    total = 0 if isinstance(node, ChoiceNode) else 1
    for count in below:
        if count is None:
            return None
        total = total + count if isinstance(node, ChoiceNode) else total * count
    return total


def decide(node: Node, choose: Choose) -> Decisions:
    """Return a decision for every active parameter, in order."""
    decisions: Decisions = {}
    _decide(node, choose, decisions)
    return decisions


def _decide(node: Node, choose: Choose, decisions: Decisions) -> None:
    if isinstance(node, Parameter):
        decision = decisions[node.path] = choose(node)
        if isinstance(node, ChoiceNode):
            _decide(node.options[int(decision)], choose, decisions)
        return
    for child in children(node):
        _decide(child, choose, decisions)


def build(root: SpacePart, decisions: Decisions) -> Config:
    """Return the config of the decisions; raise ConfigRefusedError if a schedule or a condition rejects it."""
    config: Config = _build(root, decisions)
    return config


def _build(node: Node, decisions: Decisions) -> Any:
    match node:
        case Given():
            return node.value
        case Continuous() | Stepped() | Whole():
            return node.value(decisions[node.path])
        case ChoiceNode():
            return _build(node.options[int(decisions[node.path])], decisions)
        case Several():
            return [_build(item, decisions) for item in node.items]
        case ScheduleNode():
            arguments = {name: _build(argument, decisions) for name, argument in node.arguments}
            try:
                return CONSTRUCTORS[node.kind](**arguments)
            except ScheduleError as error:
                raise ConfigRefusedError(f"{node.path}: {error}") from None
        case SpacePart():
            return _flat(node, decisions)
        case _:
            assert_never(node)


def _flat(part: SpacePart, decisions: Decisions) -> Config:
    """Return the values of a part; nested parts add their names after a dot."""
    config: Config = {}
    for name, entry in part.entries:
        value = _build(entry, decisions)
        if isinstance(value, dict):
            config.update({f"{name}.{inner}": part_value for inner, part_value in value.items()})
        else:
            config[name] = value
    check(part.path, part.conditions, config)
    return config


def identity(config: Config) -> tuple[tuple[str, str], ...]:
    """Return a key that is equal for equal configs: 0.1 and constant(0.1) are equal, 1, 1.0 and True are not."""
    return tuple((name, repr(as_schedule(config[name]))) for name in sorted(config))

"""Find the decisions that lead to a given config of a space."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, assert_never

from hoptree.core.schedules import Config, Schedule, as_schedule
from hoptree.search.parsed_parameters import Continuous, Range, Stepped, Whole
from hoptree.search.schedules import CONSTRUCTORS
from hoptree.search.tree import ChoiceNode, Decisions, Given, Node, ScheduleNode, Several, SpacePart


def decisions_of(root: SpacePart, config: Config) -> Decisions | None:
    """Return the decisions that build a config; None if the config is not in the space.

    If several options build the same value, use the first.
    """
    return _match(root, config)


def _match(node: Node, value: Any) -> Decisions | None:
    match node:
        case Given():
            same = not isinstance(value, Mapping) and as_schedule(value) == as_schedule(node.value)
            return {} if same else None
        case Continuous() | Stepped() | Whole():
            return _range(node, value)
        case ChoiceNode():
            for index, option in enumerate(node.options):
                below = _match(option, value)
                if below is not None:
                    return {node.path: index, **below}
            return None
        case Several():
            if not isinstance(value, list | tuple) or len(value) != len(node.items):
                return None
            return _all(zip(node.items, value, strict=True))
        case ScheduleNode():
            if not isinstance(value, Schedule) or value.kind != node.kind:
                return None
            given = dict(zip(signature(CONSTRUCTORS[node.kind]).parameters, value.arguments, strict=True))
            return _all((argument, given[name]) for name, argument in node.arguments)
        case SpacePart():
            return _part(node, value)
        case _:
            assert_never(node)


def _range(node: Range, value: Any) -> Decisions | None:
    if isinstance(value, Schedule) and value.kind == "constant":  # as in warmup(0, 5, log(1e-4, 0.1))
        value = value.arguments[0]
    if isinstance(value, bool) or not isinstance(value, int | float) or not node.low <= value <= node.high:
        return None
    if isinstance(node, Continuous):
        return {node.path: value}
    index = round((value - node.low) / node.step)
    return {node.path: index} if node.value(index) == value else None


def _part(node: SpacePart, config: Any) -> Decisions | None:
    """Match a part against a config; names of nested parts follow a dot, and every name must be used."""
    if not isinstance(config, Mapping):
        return None
    used: set[str] = set()
    pairs: list[tuple[Node, Any]] = []
    for name, entry in node.entries:
        inner = {key.removeprefix(f"{name}."): key for key in config if key.startswith(f"{name}.")}
        used |= {name} & config.keys() or set(inner.values())
        pairs.append((entry, config[name] if name in config else {key: config[inner[key]] for key in inner}))
    return _all(pairs) if len(used) == len(config) else None


def _all(pairs: Any) -> Decisions | None:
    decisions: Decisions = {}
    for node, value in pairs:
        below = _match(node, value)
        if below is None:
            return None
        decisions |= below
    return decisions

"""Convert procedures and spaces to plain data and back, so that a later program can rebuild an earlier search.

Data are numbers, strings, booleans, None, lists and dictionaries, as in JSON; nothing depends on a ``repr`` that
may change. A dictionary has a single entry: a tag and its content.

    >>> from hoptree.search.value_kinds import choice, log
    >>> space_data({"lr": log(1e-4, 0.1), "width": choice(8, 16)})
    {'part': [['lr', {'log': [0.0001, 0.1, None]}], ['width', {'choice': [8, 16]}]]}

Functions have no data. A condition is taken from the current space if it has the same path; a setting that is a
function, or an object of the user's own class, is described by its text and must stay the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from hoptree.core.plain_values import plain
from hoptree.core.schedules import Schedule
from hoptree.search.constraints import Condition, Constrained
from hoptree.search.parse_space import Space, read
from hoptree.search.stable_repr import stable_text
from hoptree.search.tree import SpacePart, nodes
from hoptree.search.value_kinds import Choice, Integer, Searched, Uniform


class RebuildError(Exception):
    """The data cannot be rebuilt with the current classes and functions; the message names the setting."""


# --- procedures -------------------------------------------------------------------------------------------


def setting_data(value: Any) -> Any:
    """Return a setting as data: a record by its fields, anything else by its text.

    >>> from hoptree.search.random import Random
    >>> setting_data(Random(4, epochs=2))
    {'record': ['Random', {'trials': 4, 'epochs': 2, 'every': 1, 'sampler': 'random'}]}
    """
    value = plain(value)
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [setting_data(item) for item in value]
        case dict() if all(isinstance(name, str) for name in value):
            return {"names": {name: setting_data(part) for name, part in value.items()}}
    names = _fields(value)
    if names is None:
        return {"text": stable_text(value)}
    return {"record": [type(value).__name__, {name: setting_data(getattr(value, name)) for name in names}]}


def rebuild_setting(data: Any, present: Any) -> Any:
    """Return the setting that data describes, with the classes and functions of the current one.

    A field that the data lacks was added later, and gets its default.
    """
    if setting_data(present) == data:
        return present
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return [rebuild_setting(item, None) for item in data]
        case {"names": dict(named)}:
            others = present if isinstance(present, dict) else {}
            return {name: rebuild_setting(item, others.get(name)) for name, item in named.items()}
        case {"text": str(text)} if text == stable_text(present):  # another class with the same text
            return present
        case {"record": [kind, dict(settings)]} if _fields(present) is not None:
            if kind != type(present).__name__:
                raise RebuildError(f"was {kind}, is {type(present).__name__}")
            return _rebuild_record(settings, present)
    raise RebuildError(f"was {data_text(data)}, is {stable_text(present)}")


def data_text(data: Any) -> str:
    """Return data in the notation of the user's code."""
    match data:
        case {"text": str(text)}:
            return text
        case {"record": [kind, dict(settings)]}:
            return f"{kind}({', '.join(f'{name}={data_text(item)}' for name, item in settings.items())})"
        case {"names": dict(named)}:
            return "{" + ", ".join(f"{name!r}: {data_text(item)}" for name, item in named.items()) + "}"
        case list():
            return f"[{', '.join(map(data_text, data))}]"
    return repr(data)


def _rebuild_record(settings: dict[str, Any], present: Any) -> Any:
    names = _fields(present) or ()
    found: dict[str, Any] = {}
    for name, data in settings.items():
        if name not in names:
            raise RebuildError(f"{name}: was {data_text(data)}, and does not exist any more")
        try:
            found[name] = rebuild_setting(data, getattr(present, name))
        except RebuildError as error:
            raise RebuildError(f"{name}: {error}") from None
    try:
        return type(present)(**found)
    except Exception as error:  # the user's own class may have changed
        raise RebuildError(f"{type(present).__name__} no longer accepts its earlier settings: {error}") from None


def _fields(value: Any) -> tuple[str, ...] | None:
    """Return the field names of a record; None if the value is not a record."""
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value) if field.init)
    return None


# --- spaces -----------------------------------------------------------------------------------------------


def space_data(value: Any) -> Any:
    """Return a space, or a value in it, as data without conditions."""
    value = plain(value)
    match value:
        case Uniform(low, high, step, log):
            return {"log" if log else "uniform": [plain(low), plain(high), plain(step)]}
        case Integer(low, high, step, log):
            return {"integer": [plain(low), plain(high), plain(step), log]}
        case Choice(options):
            return {"choice": [space_data(option) for option in options]}
        case Searched(kind, arguments):
            return {"searched": [kind, [[name, space_data(part)] for name, part in arguments]]}
        case Schedule(kind, arguments):
            return {"schedule": [kind, [space_data(part) for part in arguments]]}
        case Mapping():
            return {"part": [[name, space_data(part)] for name, part in value.items()]}
        case list() | tuple():
            return {"list": [space_data(item) for item in value]}
    return value


def rebuild_space(data: Any, present: Space) -> Space:
    """Return the space that data describes, with the current conditions at the same paths.

    >>> rebuild_space(space_data({"lr": Uniform(0.0, 1.0)}), {"lr": 0.1})
    {'lr': Uniform(low=0.0, high=1.0, step=None, log=False)}
    """
    conditions = {node.path: node.conditions for node in nodes(read(present)) if isinstance(node, SpacePart)}
    space: Space = _rebuild("", data, conditions)
    return space


def _rebuild(path: str, data: Any, conditions: Mapping[str, tuple[Condition, ...]]) -> Any:
    def inner(name: str, part: Any) -> Any:
        return _rebuild(f"{path}.{name}" if path else name, part, conditions)

    def item(index: int, part: Any) -> Any:
        return _rebuild(f"{path}[{index}]", part, conditions)

    match data:
        case {"uniform": [low, high, step]}:
            return Uniform(low, high, step)
        case {"log": [low, high, step]}:
            return Uniform(low, high, step, log=True)
        case {"integer": [low, high, step, log]}:
            return Integer(low, high, step, log)
        case {"choice": list(options)}:
            return Choice(tuple(item(index, option) for index, option in enumerate(options)))
        case {"searched": [kind, arguments]}:
            return Searched(kind, tuple((name, inner(name, part)) for name, part in arguments))
        case {"schedule": [kind, arguments]}:
            return Schedule(kind, tuple(_argument(part) for part in arguments))
        case {"list": list(items)}:
            return [item(index, part) for index, part in enumerate(items)]
        case {"part": list(entries)}:
            part = {name: inner(name, entry) for name, entry in entries}
            return Constrained(part, conditions[path]) if conditions.get(path) else part
        case None | bool() | int() | float() | str():
            return data
    raise RebuildError(f"{path or 'space'}: {data!r} is not a value of a space")


def _argument(data: Any) -> Any:
    """Return an argument of a schedule: a scalar, another schedule, or a list of them."""
    match data:
        case {"schedule": [kind, arguments]}:
            return Schedule(kind, tuple(map(_argument, arguments)))
        case {"list": list(items)}:
            return tuple(map(_argument, items))
    return data

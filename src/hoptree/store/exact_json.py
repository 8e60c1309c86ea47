"""JSON that round-trips exactly, or raises an error: a tuple must not return as a list, or a key 1 as "1"."""

from __future__ import annotations

import json
from typing import Any

from hoptree.store.errors import StateFormatError


def dump(value: dict[str, Any], where: str) -> str:
    """Return a dictionary as ASCII; ``where`` starts the message about a value that would not round-trip.

    >>> dump({"epochs": 3, "best": float("inf")}, "meta")
    '{"epochs":3,"best":Infinity}'
    """
    if type(value) is not dict:
        raise StateFormatError(f"{where}: a {type(value).__name__}; expected a dictionary")
    _check(value, where)
    return json.dumps(value, separators=(",", ":"))


def load(text: str) -> dict[str, Any]:
    """Return the dictionary that ``dump`` was given."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}; expected an object")
    return value


def _check(value: object, where: str) -> None:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return
    if isinstance(value, dict) and kind is dict:
        for name, inner in value.items():
            if type(name) is not str:
                raise StateFormatError(f"{where}: the key {name!r}; expected a string, for example {str(name)!r}")
            _check(inner, f"{where}[{name!r}]")
    elif isinstance(value, list) and kind is list:
        for index, inner in enumerate(value):
            _check(inner, f"{where}[{index}]")
    else:
        advice = "convert it to a list" if isinstance(value, tuple) else "convert it to one of these, or an array"
        raise StateFormatError(
            f"{where}: a {kind.__name__}; expected numbers, strings, booleans, None, lists and "
            f"dictionaries of Python's own types; {advice}"
        )

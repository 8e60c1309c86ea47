"""Text that identifies a procedure: a resumed study uses it to check that its search is still the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from hoptree.core.errors import WorkloadError

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


def stable_text(value: Any) -> str:
    """Return a text that is the same in every process: settings in full, functions by name.

    It is ``repr`` if that contains no memory address; an object whose ``repr`` does is an error, unless it is a
    function or a class.

    >>> stable_text([len, partial(max, 3)])
    '[len, partial(max, 3)]'
    """
    match value:
        case msgspec.Struct():
            fields = (f"{name}={stable_text(part)}" for name, part in _settings(value))
            return f"{type(value).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(stable_text, value))}]"
        case tuple():
            return f"({', '.join(map(stable_text, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return "{" + ", ".join(f"{name!r}: {stable_text(part)}" for name, part in value.items()) + "}"
        case partial():
            named = [f"{name}={stable_text(part)}" for name, part in value.keywords.items()]
            return f"partial({', '.join([stable_text(value.func), *map(stable_text, value.args), *named])})"
        case _ if not _ADDRESS.search(repr(value)):
            return value.__qualname__ if isinstance(value, type) or _is_builtin(value) else repr(value)
        case _ if _is_function(value):
            return str(value.__qualname__)
    raise WorkloadError(
        f"search: {value!r} has no repr but its memory address, so a resumed study could not tell that it is still "
        "the same; give its class a __repr__ with its settings, for example by making it a dataclass"
    )


def _settings(record: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Yield fields with their values, without those that were added later and have their default.

    A class names the latter in ``added_later``, so that studies of earlier versions are recognised.
    """
    later: Mapping[str, Any] = getattr(type(record), "added_later", {})
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name not in later or value != later[name]:
            yield name, value


def _is_builtin(value: Any) -> bool:
    return type(value).__name__ == "builtin_function_or_method"


def _is_function(value: Any) -> bool:
    """Return whether a value is a function, and not a method bound to an instance."""
    owner = getattr(value, "__self__", None)
    return callable(value) and hasattr(value, "__qualname__") and (owner is None or isinstance(owner, type))

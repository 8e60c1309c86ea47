"""The text of a procedure: how a study that goes on knows that its search is still the same one."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec

from hoptree.core.errors import WorkloadError

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


def lasting_text(value: Any) -> str:
    """Return a text that is the same in every process: settings as they are written, functions by their names.

    It is ``repr`` where that holds no memory address; what has one and is neither function nor class is refused.

    >>> lasting_text([len, partial(max, 3)])
    '[len, partial(max, 3)]'
    """
    match value:
        case msgspec.Struct():
            fields = (f"{name}={lasting_text(getattr(value, name))}" for name in value.__struct_fields__)
            return f"{type(value).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(lasting_text, value))}]"
        case tuple():
            return f"({', '.join(map(lasting_text, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return "{" + ", ".join(f"{name!r}: {lasting_text(part)}" for name, part in value.items()) + "}"
        case partial():
            named = [f"{name}={lasting_text(part)}" for name, part in value.keywords.items()]
            return f"partial({', '.join([lasting_text(value.func), *map(lasting_text, value.args), *named])})"
        case _ if not _ADDRESS.search(repr(value)):
            return value.__qualname__ if isinstance(value, type) or _is_builtin(value) else repr(value)
        case _ if _is_function(value):
            return str(value.__qualname__)
    raise WorkloadError(
        f"search: {value!r} is known by its place in memory only, so a study that goes on could not tell that it "
        "is still the same; give its class a __repr__ with its settings, for example by making it a dataclass"
    )


def _is_builtin(value: Any) -> bool:
    return type(value).__name__ == "builtin_function_or_method"


def _is_function(value: Any) -> bool:
    """Return whether it is a function, not one that is bound to something with settings of its own."""
    owner = getattr(value, "__self__", None)
    return callable(value) and hasattr(value, "__qualname__") and (owner is None or isinstance(owner, type))

"""Dictionaries that code fills while it runs, as caches: their content does not count as code."""

from __future__ import annotations

import dis
import functools
import types

from hoptree.identity.modules import is_empty_mapping

_NAMES = ("cache", "memo")
_METHODS = {"setdefault", "update"}


def is_cache(name: str, filled: frozenset[str], file: str) -> bool:
    """Return whether a dictionary is a cache: its name says so, the code fills it, and it starts empty."""
    lower = name.lower()
    return any(part in lower for part in _NAMES) and name in filled and is_empty_mapping(file, name)


@functools.lru_cache(maxsize=4096)
def fills(code: types.CodeType) -> frozenset[str]:
    """Return the names of the caches in which the code, or a nested function, stores items.

    >>> fills(compile("memo[1] = 2", "<doc>", "exec"))
    frozenset({'memo'})
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PRECALL")]
    names = {step.argval for step in steps if step.opname.startswith("LOAD_") and isinstance(step.argval, str)}
    nested = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    stores = any(step.opname == "STORE_SUBSCR" or step.argval in _METHODS for step in steps)
    found = {name for name in names if any(part in name.lower() for part in _NAMES)} if stores else set()
    return frozenset(found).union(*map(fills, nested))

"""Find functions of the user that replace a library's functions."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator

from hoptree.identity.libraries import is_library

# Parts of torch with many functions that no model uses.
_SKIPPED: tuple[str, ...] = (
    "torch._dynamo",
    "torch._inductor",
    "torch.testing",
    "torch.fx",
    "torch.onnx",
    "torch.distributed",
)
_SKIPPED += ("torch.export", "torch._export", "torch._functorch", "torch._higher_order_ops", "torch.ao")


def patches(roots: Iterable[str]) -> list[tuple[str, types.FunctionType]]:
    """Return the user's functions in the loaded modules and classes of these libraries, with their qualified names.

    >>> patches(["json"])
    []
    """
    wanted = set(roots) - {"builtins", "hoptree"}
    users: dict[int, bool] = {}  # by id of a module's variables: whether they are the user's
    found: list[tuple[str, types.FunctionType]] = []
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in wanted and not name.startswith(_SKIPPED) and is_library(name, None):
            found += _in_module(name, module, users)
    return found


def _in_module(name: str, module: object, users: dict[int, bool]) -> Iterator[tuple[str, types.FunctionType]]:
    members = getattr(module, "__dict__", None)
    if type(members) is not dict:
        return
    users[id(members)] = False
    for attribute, value in list(members.items()):
        if type(value) is types.FunctionType:
            if _is_users(value, users):
                yield f"{name}.{attribute}", value
        elif issubclass(type(value), type) and value.__module__ == name:
            for member, item in list(vars(value).items()):
                if type(item) is types.FunctionType and _is_users(item, users):
                    yield f"{name}.{attribute}.{member}", item


def _is_users(function: types.FunctionType, users: dict[int, bool]) -> bool:
    scope = function.__globals__
    known = users.get(id(scope))
    if known is None:
        module = scope.get("__name__")
        known = not is_library(None, function.__code__.co_filename) and not (
            isinstance(module, str) and is_library(module, None)
        )
        users[id(scope)] = known
    return known

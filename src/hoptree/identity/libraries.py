"""Which code is a library's, known by name and version, and which is the user's own."""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
import types
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

_PACKAGES = {"site-packages", "dist-packages"}


def is_library(module: str | None, file: str | None) -> bool:
    """Return whether a module (or the file a function was compiled from) belongs to an installed library.

    >>> is_library("json", None), is_library("__main__", None)
    (True, False)
    """
    root = (module or "").partition(".")[0]
    if root and root != "__main__":
        if root in sys.stdlib_module_names or root == "hoptree":
            return True
        found = getattr(sys.modules.get(module or ""), "__file__", None) or _origin(root)
        if found is not None and _installed(found):
            return True
    return file is not None and _installed(file)


@functools.cache
def release(module: str) -> str:
    """Return a library's name and version.

    >>> release("json.decoder") == "python-" + ".".join(map(str, sys.version_info[:2]))
    True
    """
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root == "builtins":
        return f"python-{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        return f"{root}-{metadata.version(root)}"
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(root, ())
        versions = sorted(f"{name}-{metadata.version(name)}" for name in set(names))
        return " ".join(versions) or root


def release_of_file(file: str) -> str:
    """Return the name and version of the library that an installed file belongs to."""
    parts = Path(file).parts
    inside = [index for index, part in enumerate(parts) if part in _PACKAGES]
    return release(Path(parts[inside[-1] + 1]).stem if inside else "builtins")


def module_code(name: str, level: int, package: str) -> types.CodeType | None:
    """Return the code of a user's own module, None for a library's or one that cannot be found."""
    spec = _spec("." * level + name, package)
    if spec is None or is_library(spec.name, spec.origin):
        return None
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code is not None else None
    return code if isinstance(code, types.CodeType) else None


def _spec(name: str, package: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name, package or None)
    except (ImportError, ValueError, AttributeError):
        return None


@functools.cache
def _origin(root: str) -> str | None:
    spec = _spec(root, "")
    return spec.origin if spec is not None else None


@functools.cache
def _installed(file: str) -> bool:
    path = Path(file)
    standard = Path(sysconfig.get_path("stdlib"))
    return bool(_PACKAGES & set(path.parts)) or path.is_relative_to(standard)

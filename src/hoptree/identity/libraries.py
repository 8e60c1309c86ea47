"""Tell library code, known by name and version, from the user's code: the file decides."""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from importlib import metadata
from pathlib import Path

_PACKAGES = {"site-packages", "dist-packages"}
_OWN = Path(__file__).parents[1]  # Hoptree itself, wherever it is installed


def is_library(module: str | None, file: str | None) -> bool:
    """Return whether a module (or the file of a function) belongs to an installed library.

    A user's file is the user's, whatever its name: ``statistics.py`` next to the program is not the library.

    >>> is_library("json", None), is_library("__main__", None)
    (True, False)
    """
    if module and module != "__main__":
        loaded = sys.modules.get(module)
        if loaded is not None:
            return _is_library_module(loaded)
        root = module.partition(".")[0]
        if root in sys.modules:
            return _is_library_module(sys.modules[root])
        if file is None:
            return root in sys.stdlib_module_names or root in sys.builtin_module_names
    return file is not None and _installed(file)


def is_library_module(module: types.ModuleType) -> bool:
    """Return whether a loaded module belongs to a library."""
    return _is_library_module(module)


def _is_library_module(module: object) -> bool:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return _installed(file)
    name = getattr(module, "__name__", "")
    if name == "__main__":
        return False
    try:
        folders = [str(folder) for folder in getattr(module, "__path__", ())]
    except Exception:  # a library's object that imitates a module
        folders = []
    if folders:
        return any(map(_installed, folders))
    root = str(name).partition(".")[0]
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return True
    parent = sys.modules.get(root)
    return parent is not None and parent is not module and _is_library_module(parent)


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
    if inside:
        return release(Path(parts[inside[-1] + 1]).stem)
    return release("hoptree" if Path(file).is_relative_to(_OWN) else "builtins")


@functools.cache
def _installed(file: str) -> bool:
    path = Path(file)
    if file.startswith("<"):
        return file.startswith("<frozen ")
    return (
        bool(_PACKAGES & set(path.parts))
        or path.is_relative_to(sysconfig.get_path("stdlib"))
        or path.is_relative_to(sysconfig.get_path("platstdlib"))
        or path.is_relative_to(_OWN)
    )

"""The solvers are optional: they are imported when a method needs them, never with the package."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hoptree.core.errors import MissingExtraError


def require(module: str, method: str) -> Any:
    """Import an optional module; raise an error that says how to install it if it is missing."""
    require_installed(module.partition(".")[0], method)
    return import_module(module)


def require_installed(package: str, method: str) -> None:
    """Raise an error that says how to install the package if it is missing."""
    if find_spec(package) is None:
        raise MissingExtraError(
            f"method {method!r}: needs {package}, which is not installed; pip install 'hoptree[optimize]'"
        )

"""Plug-ins: backends, trainers and procedures that other packages register by entry point.

A package registers a backend, a trainer or a procedure in its ``pyproject.toml``:

    [project.entry-points."hoptree.backends"]
    slurm = "my_package:Slurm"

and ``study.run(backend="slurm")`` finds it. A plug-in is imported only when it is loaded by name.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from hoptree.core.errors import WorkloadError

Kind: TypeAlias = Literal["backends", "trainers", "procedures"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Plugin(msgspec.Struct, frozen=True):
    """An entry point of a package; ``value`` names the object, such as ``my_package.backends:Slurm``."""

    kind: Kind
    name: str
    value: str
    package: str
    version: str

    def load(self) -> Any:
        """Import the registered object."""
        try:
            return EntryPoint(self.name, self.value, f"hoptree.{self.kind}").load()
        except Exception as error:  # importing somebody else's module may raise anything
            cause = f"{type(error).__name__}: {error}"
            raise WorkloadError(
                f"{self.kind}: {self.name!r} of the package {self.package} {self.version} cannot be imported from "
                f"{self.value} ({cause}); reinstall the package, or install another version"
            ) from error


def plugins(kind: Kind) -> list[Plugin]:
    """Return the plug-ins of a kind, sorted by name, without importing them.

    Kinds are "backends", "trainers" and "procedures".
    """
    if kind not in KINDS:
        raise WorkloadError(f"kind: {kind!r}; expected one of {', '.join(KINDS)}")
    found = {
        Plugin(kind, point.name, point.value, point.dist.name, point.dist.version)
        if point.dist is not None
        else Plugin(kind, point.name, point.value, "unknown", "")
        for point in entry_points(group=f"hoptree.{kind}")
    }
    return sorted(found, key=lambda plugin: (plugin.name, plugin.package, plugin.value))


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """Return the plug-in of a name, if there is one; raise an error if two packages register the name."""
    found = [plugin for plugin in plugins(kind) if plugin.name == name]
    if len(found) > 1:
        packages = " and ".join(plugin.package for plugin in found)
        raise WorkloadError(
            f"{kind}: {name!r} is registered by {packages}; uninstall one of them, or import the one you mean and "
            "pass it instead of its name"
        )
    return found[0] if found else None


def load_plugin(kind: Kind, name: str) -> Any:
    """Return the object that is registered under a name; raise an error that lists the known names."""
    plugin = find_plugin(kind, name)
    if plugin is None:
        known = ", ".join(repr(other.name) for other in plugins(kind)) or "none"
        raise WorkloadError(
            f"{kind}: {name!r} is not registered; registered by installed packages: {known}; a package registers "
            f"one as an entry point of the group hoptree.{kind}"
        )
    return plugin.load()

"""Files that are not inputs: those of libraries and the system, and those that the process wrote itself."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import final

_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/run", "/usr/lib", "/usr/lib64", "/usr/share", "/lib", "/lib64")
_PREFIX = ("lib", "lib64", "share", "include", "bin", "etc")  # below the folder of a Python installation
_CACHES = (".triton", ".nv", ".cache/matplotlib", ".cache/fontconfig", ".cache/torch/kernels", ".config/matplotlib")
_TEMPORARY = ("torchinductor_", "pymp-")  # prefixes of the temporary folders of frameworks


@final
class IgnoredPaths:
    """Decides which absolute paths are ignored."""

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        roots = [*_SYSTEM, *sysconfig.get_paths().values(), str(Path(__file__).parents[1])]
        roots += [os.path.join(prefix, part) for prefix in {sys.prefix, sys.base_prefix} for part in _PREFIX]
        roots += [str(Path.home() / cache) for cache in _CACHES]
        roots += [os.path.abspath(path) for path in ignored]
        roots += [os.path.realpath(root) for root in roots]
        self._roots = tuple({root.rstrip(os.sep) + os.sep for root in roots})
        self._temporary = tuple(os.path.join(tempfile.gettempdir(), name) for name in _TEMPORARY)
        self._ray = os.path.join(tempfile.gettempdir(), "ray", "")
        self._written: set[str] = set()
        self._folders: tuple[str, ...] = ()  # created by this process: everything in them is its own

    def is_ignored(self, path: str) -> bool:
        """Return whether a file or folder is not an input of the user's code."""
        if path in self._written or path.endswith((".pyc", ".pyo")) or "__pycache__" in path:
            return True
        inside = path + os.sep
        if inside.startswith((*self._roots, *self._folders)):
            return True
        if ".dist-info" in path or ".egg-info" in path or f"{os.sep}site-packages{os.sep}" in inside:
            return True
        return path.startswith(self._temporary) or (
            path.startswith(self._ray) and "runtime_resources" not in path  # Ray puts the user's own files there
        )

    def wrote(self, path: str) -> None:
        """Record that this process has written a file."""
        self._written.add(path)

    def made_folder(self, path: str | None) -> None:
        """Record that this process creates a folder, unless it exists."""
        if path is not None and not os.path.isdir(path):
            self._folders += (path + os.sep,)

    def moved(self, source: str | None, target: str | None) -> None:
        """Record the new name of a file that this process has written."""
        if source is not None and target is not None and source in self._written:
            self._written.add(target)

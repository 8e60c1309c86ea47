"""Who opens a file, imports a module or looks up a variable: the user's code, or a library for its own needs."""

from __future__ import annotations

import functools
import types
from enum import Enum, auto
from pathlib import Path

from hoptree.identity.libraries import is_library

_OURS = str(Path(__file__).parents[1])
_TRAINERS = str(Path(_OURS) / "trainers")


class Caller(Enum):
    """Who has asked; ``THREAD`` is a thread in which only libraries run."""

    USER = auto()
    LIBRARY = auto()
    THREAD = auto()


class _File(Enum):
    """What the code of a frame belongs to."""

    USER = auto()
    LIBRARY = auto()
    IMPORT = auto()  # the import system
    SOURCE = auto()  # what shows lines of source: warnings, tracebacks, inspect
    TRAINER = auto()  # ours, calling what the user has given
    OURS = auto()
    MAPPING = auto()  # methods of os.environ


def caller_of_file(frame: types.FrameType) -> Caller:
    """Return for whom a file is opened or a folder is listed.

    A library counts as the user's reader (``torch.load(path)``), but not while it is being imported.
    """
    at: types.FrameType | None = frame
    while at is not None:
        match _kind(at):
            case _File.USER | _File.TRAINER:
                return Caller.USER
            case _File.SOURCE | _File.OURS:
                return Caller.LIBRARY
            case _File.IMPORT if not _is_data(at):
                return Caller.LIBRARY
        at = at.f_back
    return Caller.THREAD


def caller_of_import(frame: types.FrameType) -> Caller:
    """Return whose statement imports a module."""
    at: types.FrameType | None = frame
    while at is not None and _kind(at) is _File.IMPORT:
        at = at.f_back
    return Caller.USER if at is not None and _kind(at) is _File.USER else Caller.LIBRARY


def caller_of_variable(frame: types.FrameType) -> bool:
    """Return whether the user's own code looks up one environment variable."""
    at: types.FrameType | None = frame
    while at is not None and _kind(at) is _File.MAPPING:
        if at.f_code.co_name == "__iter__":  # of items() or values(): all of them
            return False
        at = at.f_back
    return at is not None and _kind(at) is _File.USER


def _is_data(frame: types.FrameType) -> bool:
    """Return whether a loader reads a file that is no module, for ``pkgutil.get_data``."""
    outer = frame.f_back
    return frame.f_code.co_name == "get_data" and (outer is None or _kind(outer) is not _File.IMPORT)


def _kind(frame: types.FrameType) -> _File:
    file = frame.f_code.co_filename
    if file.startswith("<") and not file.startswith("<frozen"):  # typed in, or made by a library
        module = frame.f_globals.get("__name__")
        return _File.LIBRARY if is_library(module, None) else _File.USER
    return _kind_of_file(file)


@functools.cache
def _kind_of_file(file: str) -> _File:
    if file.startswith("<frozen importlib"):
        return _File.IMPORT
    if file.startswith("<frozen"):
        return _File.MAPPING if file in ("<frozen os>", "<frozen _collections_abc>") else _File.LIBRARY
    if file.startswith(_OURS):
        return _File.TRAINER if file.startswith(_TRAINERS) else _File.OURS
    if not is_library(None, file):
        return _File.USER
    path = Path(file)
    if path.name in ("linecache.py", "tokenize.py"):
        return _File.SOURCE
    if path.name in ("os.py", "_collections_abc.py"):
        return _File.MAPPING
    if path.parts[-2:] == ("importlib", "__init__.py") or path.parts[-3:-1] == ("importlib", "metadata"):
        return _File.IMPORT
    return _File.LIBRARY

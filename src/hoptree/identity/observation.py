"""Record what a user's code reads while it runs in a worker: files, folders, modules and environment variables.

Python reports every opened file and every imported module to audit hooks. A hook cannot be removed, so it is
installed once per process and does nothing until an ``InputRecorder`` is entered. Environment variables have no
such event, so ``os.environ`` reports its lookups while a recorder is entered.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, final

from hoptree.identity.callers import Caller, caller_of_file, caller_of_import, caller_of_variable
from hoptree.identity.contents import (
    ABSENT,
    Observations,
    file_digest,
    find_module,
    names_digest,
    present,
    source_digest,
    text_digest,
)
from hoptree.identity.forked import ForkedReports
from hoptree.identity.ignored_paths import IgnoredPaths
from hoptree.identity.libraries import is_library

__all__ = ["InputRecorder", "Observations", "note_file", "present"]

_EVENTS = {"open", "import", "exec", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "ctypes.dlopen"}
_EVENTS |= {"sqlite3.connect"}
# These describe where a process runs, not what it computes; the last ones are set for each worker.
_UNCOUNTED = {
    "HOME",
    "USER",
    "LOGNAME",
    "PWD",
    "OLDPWD",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TMP",
    "TEMP",
    "HOSTNAME",
}
_UNCOUNTED |= {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}
_WRITES = os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_EXCL

_active: InputRecorder | None = None
_installed = False
_Environ: Any = type(os.environ)


def note_file(path: str) -> None:
    """Record a file whose path was read, if a recorder is entered."""
    if _active is not None:
        _active.note_file(path)


@final
class InputRecorder:
    """Records what the code inside ``with recorder:`` reads, except paths in ``ignored``.

    A subject is reported once, and again when its content has changed. Files below the working directory are
    reported as if they were in ``folder``, because this process may run in a copy of it. Forked processes count as
    well.
    """

    def __init__(self, ignored: Iterable[str] = (), folder: str | None = None) -> None:
        self._ignored = IgnoredPaths(ignored)
        self._folders = os.getcwd(), folder or os.getcwd()
        self._forked = ForkedReports()
        self._path = list(sys.path)  # as in the driver: the user's code may add to it
        self._threads = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._local = threading.local()
        self._seen: Observations = {}  # the content of each subject when it was last read
        self._new: list[Observations] = []
        self._set_variables: set[str] = set()  # variables that the user's code has set itself
        self._imported: dict[str, None] = {}  # modules that the user's code has imported
        self._loaded: dict[str, None] = {}  # files of modules that were executed

    def __enter__(self) -> None:
        global _active
        _install()
        _active = self
        os.environ.__class__ = _RecordedEnviron

    def __exit__(self, *_: object) -> None:
        global _active
        os.environ.__class__ = _Environ
        _active = None
        self._note_modules()

    def fresh(self) -> list[Observations]:
        """Return the observations since the last call; several dictionaries if a subject had several contents."""
        for subject, digest in self._forked.read():
            self._note(subject, digest)
        new, self._new = self._new, []
        return new

    def note_file(self, path: str) -> None:
        """Record the current content of a file."""
        self._note(self._named("file", path), file_digest(path))

    def audited(self, event: str, arguments: tuple[Any, ...], frame: types.FrameType) -> None:
        """Process an audit event; ignore events that this causes itself."""
        if getattr(self._local, "busy", False):
            return
        self._local.busy = True
        try:
            with suppress(
                OSError, ValueError, TypeError
            ):  # an invalid name, for which the user's code gets an error
                self._audited(event, arguments, frame)
        finally:
            self._local.busy = False

    def _audited(self, event: str, arguments: tuple[Any, ...], frame: types.FrameType) -> None:
        match event:
            case "open":
                self._opened(arguments[0], arguments[1], arguments[2], frame)
            case "import":
                if caller_of_import(frame) is Caller.USER:
                    self._imported[arguments[0]] = None
            case "exec":
                code = arguments[0]
                if isinstance(code, types.CodeType) and code.co_name == "<module>":
                    self._loaded[code.co_filename] = None
            case "os.listdir" | "os.scandir":
                path = _absolute("." if arguments[0] is None else arguments[0])
                if path is not None and self._counts(path, frame):
                    self._note(self._named("folder", path), names_digest(path))
            case "os.mkdir":
                self._ignored.made_folder(_absolute(arguments[0]))
            case "os.rename":
                self._ignored.moved(_absolute(arguments[0]), _absolute(arguments[1]))
            case "ctypes.dlopen":
                name = arguments[0]
                if isinstance(name, str) and os.sep in name:
                    self._opened(name, "r", 0, frame)
            case "sqlite3.connect":
                self._connected(str(arguments[0]), frame)

    def _opened(self, name: Any, mode: str | None, flags: int, frame: types.FrameType) -> None:
        path = _absolute(name)
        if path is None:
            return
        if mode[:1] in ("w", "x") if mode is not None else flags & _WRITES:
            self._ignored.wrote(path)
        elif mode is not None and mode.startswith("a"):
            if not os.path.lexists(path):
                self._ignored.wrote(path)
        elif not os.path.isdir(path) and self._counts(path, frame):
            self.note_file(path)

    def _connected(self, database: str, frame: types.FrameType) -> None:
        """Record a database that is opened read-only; the code may write to others."""
        name, _, options = database.removeprefix("file:").partition("?")
        if "mode=ro" in options or "immutable=1" in options:
            self._opened(name, "r", 0, frame)

    def _counts(self, path: str, frame: types.FrameType) -> bool:
        if self._ignored.is_ignored(path):
            return False
        caller = caller_of_file(frame)
        return caller is Caller.USER or (caller is Caller.THREAD and threading.get_ident() not in self._threads)

    # --- environment variables ----------------------------------------------------------------------------

    def read_variable(self, name: object, value: str | None, frame: types.FrameType) -> None:
        """Record a variable that the user's code has read."""
        if (
            isinstance(name, str)
            and name not in _UNCOUNTED
            and name not in self._set_variables
            and caller_of_variable(frame)
        ):
            self._note(f"environment:{name}", text_digest(value))

    def set_variable(self, name: object) -> None:
        """Ignore a variable from now on, because the code has set it itself."""
        if isinstance(name, str):
            self._set_variables.add(name)

    # --- modules ------------------------------------------------------------------------------------------

    def _note_modules(self) -> None:
        """Record the user's modules that were imported, and those that were not found."""
        imported, self._imported = list(self._imported), {}
        loaded, self._loaded = list(self._loaded), {}
        for name in imported:
            file = getattr(sys.modules.get(name), "__file__", None)
            if name not in sys.modules and find_module(name) is None:
                self._note(f"module:{name}", ABSENT)
            if file is not None and file.endswith(tuple(EXTENSION_SUFFIXES)):
                loaded.append(file)
        own = [file for file in loaded if self._is_own_module(file)]
        names = (
            {getattr(module, "__file__", None): name for name, module in list(sys.modules.items())} if own else {}
        )
        for file in own:
            self._note_module(names.get(file), os.path.abspath(file))

    def _is_own_module(self, file: str) -> bool:
        return not is_library(None, file) and not self._ignored.is_ignored(file) and os.path.isfile(file)

    def _note_module(self, name: str | None, file: str) -> None:
        """Record a module by its name if every process finds it under that name, otherwise by its file."""
        spec = find_module(name, self._path) if name is not None else None
        if name is not None and spec is not None and spec.origin == file:
            self._note(f"module:{name}", source_digest(file))
        else:
            self.note_file(file)

    def _named(self, kind: str, path: str) -> str:
        here, there = self._folders
        if here != there and path.startswith(here + os.sep):
            path = there + path[len(here) :]
        return f"{kind}:{path}"

    def _note(self, subject: str, digest: str) -> None:
        if self._seen.get(subject) == digest:
            return
        self._seen[subject] = digest
        if self._forked.write(subject, digest):
            return
        if not self._new or subject in self._new[-1]:
            self._new.append({})
        self._new[-1][subject] = digest


class _RecordedEnviron(_Environ):  # type: ignore[misc]
    """``os.environ`` while a recorder is entered; copying all variables does not count as reading."""

    _copying: tuple[int, int] = (0, 0)

    def __getitem__(self, key: str) -> str:
        frame = sys._getframe(1)
        value: str | None = None
        try:
            value = super().__getitem__(key)
        finally:
            if _active is not None and (id(frame), frame.f_lasti) != _RecordedEnviron._copying:
                _active.read_variable(key, value, frame)
        assert value is not None
        return value

    def __setitem__(self, key: str, value: str) -> None:
        super().__setitem__(key, value)
        if _active is not None:
            _active.set_variable(key)

    def keys(self) -> Any:
        """Return the names; ``dict(os.environ)`` calls this first, at the same instruction as for the values."""
        frame = sys._getframe(1)
        _RecordedEnviron._copying = id(frame), frame.f_lasti
        return super().keys()


def _install() -> None:
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _active is not None and event in _EVENTS:
        recorder = _active
        recorder.audited(event, arguments, sys._getframe(1))


def _absolute(name: Any) -> str | None:
    """Return the absolute path of a name; None for a file descriptor."""
    if isinstance(name, int):
        return None
    return os.path.abspath(os.fsdecode(name))

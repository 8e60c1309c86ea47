"""Digests of what a program reads besides its code: files, folders, modules, environment variables.

A subject is ``"file:/absolute/path"``, ``"folder:/absolute/path"`` (the names in it), ``"module:package.name"`` or
``"environment:NAME"``. The digest "" means that the subject does not exist.
"""

from __future__ import annotations

import ast
import os
import stat
import sys
import time
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from typing import TypeAlias

import xxhash

from hoptree.identity.libraries import is_library, release

Observations: TypeAlias = dict[str, str]  # subject to digest
ABSENT = ""

_SETTLED = 100_000_000  # nanoseconds: a file changed more recently may change again within the same time stamp
_BLOCK = 1 << 20

_Version: TypeAlias = tuple[int, ...]
_digests: dict[str, tuple[_Version, str]] = {}  # by path: the file's version when it was read, and its digest


def present(observations: Iterable[str]) -> Observations:
    """Return the current digests of the same subjects, in this process.

    >>> present({"environment:HOPTREE_NO_SUCH_VARIABLE": "1", "file:/no/such/file": "2"})
    {'environment:HOPTREE_NO_SUCH_VARIABLE': '', 'file:/no/such/file': ''}
    """
    return {subject: _present(subject) for subject in observations}


def _present(subject: str) -> str:
    kind, _, name = subject.partition(":")
    match kind:
        case "file":
            return file_digest(name)
        case "folder":
            return names_digest(name)
        case "module":
            return module_digest(name)
        case "environment":
            return text_digest(os.environ.get(name))
        case _:
            raise ValueError(f"subject: {subject!r}; expected file:, folder:, module: or environment:")


def text_digest(text: str | None) -> str:
    """Return the digest of a text; "" for None, but not for an empty text."""
    return ABSENT if text is None else _digest([text.encode("utf-8", "surrogateescape")])


def file_digest(path: str) -> str:
    """Return the digest of a file, or of all files below a folder with their names; "" if it cannot be read.

    A file is read again only if its size, times or inode have changed.
    """
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            return _digest(_folder_content(path))
        if not stat.S_ISREG(found.st_mode):
            return ABSENT
        version = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
        before = _digests.get(path)
        if before is not None and before[0] == version:
            return before[1]
        digest = _read(path)
        if time.time_ns() - found.st_ctime_ns > _SETTLED:
            _digests[path] = version, digest
    except (OSError, ValueError):
        return ABSENT
    return digest


def names_digest(path: str) -> str:
    """Return the digest of the names in a folder, without hidden files and compiled Python files."""
    try:
        names = os.listdir(path)
    except (OSError, ValueError):
        return ABSENT
    return _digest(os.fsencode(name) for name in sorted(names) if not _is_hidden(name))


def module_digest(name: str) -> str:
    """Return the digest of a module's source on disk, or of a library's version; nothing is imported."""
    spec = find_module(name)
    if spec is None:
        return ABSENT
    if is_library(name, spec.origin):
        return text_digest(release(name))
    return source_digest(spec.origin) if spec.origin is not None else text_digest("a folder")


def source_digest(path: str) -> str:
    """Return the digest of a Python file's syntax tree, without comments, layout and docstrings."""
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError:
        return ABSENT
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # an extension module
        return _digest([source])
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return _digest([ast.dump(tree).encode("utf-8", "surrogatepass")])


def find_module(name: str, path: Iterable[str] | None = None) -> ModuleSpec | None:
    """Return where a module would be imported from, without importing its parent packages."""
    if name in sys.builtin_module_names:
        return ModuleSpec(name, None)
    inside = list(path) if path is not None else None
    root, *parts = name.split(".")
    full = root
    try:
        spec = PathFinder.find_spec(root, inside)
        for part in parts:
            if spec is None or spec.submodule_search_locations is None:
                return None
            full = f"{full}.{part}"
            spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return None
    return spec


def _folder_content(folder: str) -> Iterable[bytes]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in sorted(names):
            path = os.path.join(directory, name)
            if not _is_hidden(name) and (digest := file_digest(path)):
                yield os.fsencode(os.path.relpath(path, folder))
                yield digest.encode()


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__" or name.endswith(".pyc")


def _read(path: str) -> str:
    state = xxhash.xxh3_128()
    block = memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            state.update(block[:count])
    return str(state.hexdigest())


def _digest(parts: Iterable[bytes]) -> str:
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return str(state.hexdigest())

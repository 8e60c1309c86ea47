"""``ht.file``: a file whose content counts, also for readers that bypass Python, such as safetensors."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import final

from hoptree.core.errors import RefusedError
from hoptree.identity.contents import file_digest
from hoptree.identity.observation import note_file


@final
class File(os.PathLike[str]):
    """The path of a file, or of a folder with all files below it, to pass to any reader.

    Its content is part of a trainer's fingerprint if the trainer's code refers to it, and it is recorded when a
    worker reads the path. The location of the file does not count.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The path; reading this property counts as reading the file."""
        return Path(os.fspath(self))

    def __fspath__(self) -> str:
        self.__fingerprint__()
        note_file(self._path)
        return self._path

    def __str__(self) -> str:
        return os.fspath(self)

    def __repr__(self) -> str:
        return f"ht.file({self._path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __fingerprint__(self) -> tuple[str, str]:
        """Return the suffix of the file, which tells readers its format, and the digest of its current content."""
        digest = file_digest(self._path)
        if not digest:
            raise RefusedError(
                f"file: {self._path} is missing or unreadable on {socket.gethostname()}; put it there, or give "
                "ht.file a path that every node has"
            )
        return os.path.splitext(self._path)[1], digest

    def __reduce__(self) -> tuple[object, ...]:
        here = os.getcwd()  # a worker runs in the same folder, or in a copy of it
        path = os.path.relpath(self._path, here) if self._path.startswith(here + os.sep) else self._path
        return _load, (path, *self.__fingerprint__())


def file(path: str | os.PathLike[str]) -> File:
    """Return a path whose content counts, where it is named and where it is opened.

    A relative path is relative to the working directory. Raises ``RefusedError`` if the file does not exist.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise RefusedError(f"file: {path!r}; expected the path of a file, for example ht.file('weights.pt')")
    named = File(os.path.abspath(os.fspath(path)))
    named.__fingerprint__()
    return named


def _load(path: str, suffix: str, digest: str) -> File:
    """Return the file that a program has sent; raise an error if it is missing here or has other content."""
    named = File(os.path.abspath(path))
    if named.__fingerprint__() != (suffix, digest):
        raise RefusedError(
            f"file: {named._path} on {socket.gethostname()} has other content than when the program sent it; copy "
            "the same file to every node, and run the program again if the file was changed on purpose"
        )
    return named

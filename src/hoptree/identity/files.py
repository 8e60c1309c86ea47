"""``ht.file``: a file whose content counts, also for readers that Python does not see, such as safetensors."""

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
    """The path of a file, or of a folder with all files below it, to be given to whatever opens it.

    Its content is part of a trainer's fingerprint wherever the trainer's code refers to it, and it is recorded when
    a worker asks for the path. Where the file lies does not count.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """Where it lies; asking for it counts as reading the file."""
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
        """Return what counts: how the file's name ends, which tells readers its format, and its content now."""
        digest = file_digest(self._path)
        if not digest:
            raise RefusedError(
                f"file: {self._path} is missing on {socket.gethostname()}, or cannot be read there; put it there, "
                "or give ht.file a path that every node has"
            )
        return os.path.splitext(self._path)[1], digest

    def __reduce__(self) -> tuple[object, ...]:
        here = os.getcwd()  # a worker runs in the same folder, or in a copy of it
        path = os.path.relpath(self._path, here) if self._path.startswith(here + os.sep) else self._path
        return _load, (path, *self.__fingerprint__())


def file(path: str | os.PathLike[str]) -> File:
    """Return a path whose content counts: where it is named, and wherever it is opened.

    A relative path is below the folder that the program runs in. Raises ``RefusedError`` if there is no such file.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise RefusedError(f"file: {path!r}; expected the path of a file, for example ht.file('weights.pt')")
    named = File(os.path.abspath(os.fspath(path)))
    named.__fingerprint__()
    return named


def _load(path: str, suffix: str, digest: str) -> File:
    """Return the file that a program has sent; refuse one that is missing here, or holds something else."""
    named = File(os.path.abspath(path))
    if named.__fingerprint__() != (suffix, digest):
        raise RefusedError(
            f"file: {named._path} on {socket.gethostname()} holds something else than when the program sent it; "
            "copy the same file to every node, and run the program again if the file was changed on purpose"
        )
    return named

"""Reports of forked processes to the one that they were forked from: a data loader's workers read files as well."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import final

import msgspec

_LINE = msgspec.json.Decoder(tuple[str, str])


@final
class ForkedReports:
    """A file without a name that children append to; whoever made it reads what is new."""

    def __init__(self) -> None:
        self._maker = os.getpid()
        with tempfile.TemporaryFile("ab") as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._read = 0

    def write(self, subject: str, digest: str) -> bool:
        """Report what a child has read; return False in the process that made this."""
        if os.getpid() == self._maker:
            return False
        with suppress(OSError, ValueError):  # its code has closed what it did not open
            os.write(self._file, msgspec.json.encode((subject, digest)) + b"\n")
        return True

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield what children have reported since, each line once it is whole."""
        with suppress(OSError, ValueError):
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size - self._read, self._read) if size > self._read else b""
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            yield from map(_LINE.decode, whole.splitlines())

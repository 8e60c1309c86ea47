"""Reports from forked processes to their parent: the workers of a data loader read files as well."""

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
    """An unnamed file to which child processes append; the process that created it reads new lines."""

    def __init__(self) -> None:
        self._creator = os.getpid()
        with tempfile.TemporaryFile("ab") as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._read = 0

    def write(self, subject: str, digest: str) -> bool:
        """Report what a child process has read; return False in the process that created this."""
        if os.getpid() == self._creator:
            return False
        with suppress(OSError, ValueError):  # the user's code has closed our descriptor
            os.write(self._file, msgspec.json.encode((subject, digest)) + b"\n")
        return True

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield new reports of child processes, each line once it is complete."""
        with suppress(OSError, ValueError):
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size - self._read, self._read) if size > self._read else b""
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            yield from map(_LINE.decode, whole.splitlines())

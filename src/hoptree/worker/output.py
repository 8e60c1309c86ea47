"""Output of the user's code in a worker, even if nobody reads it any more."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def survive_closed_output() -> None:
    """Discard output to a closed pipe (``python study/study.py | head``), so that no trial fails because of it."""
    sys.stdout, sys.stderr = _tolerant(sys.stdout), _tolerant(sys.stderr)


def _tolerant(stream: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # Python has None if there is no such file
        return stream  # type: ignore[return-value]
    stream.flush()
    file = _TolerantFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _TolerantFile(io.FileIO):
    """A file that discards what cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BlockingIOError:
            raise
        except OSError:
            return memoryview(data).nbytes

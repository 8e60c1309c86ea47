"""What the user's code prints in a worker, also when nobody reads it any more."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def survive_closed_output() -> None:
    """Let prints to a pipe that was closed (``python study/study.py | head``) vanish: they are no fault of a trial."""
    sys.stdout, sys.stderr = _forgiving(sys.stdout), _forgiving(sys.stderr)


def _forgiving(stream: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # python has None where there is no such file
        return stream  # type: ignore[return-value]
    stream.flush()
    file = _Forgiving(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Forgiving(io.FileIO):
    """A file that takes what cannot be written for written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BlockingIOError:
            raise
        except OSError:
            return memoryview(data).nbytes

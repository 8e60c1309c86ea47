"""The format of errors: what happened and what to do, the line of the user's code, and the file with the trace.

The command line prints errors in this format, and so does a user's program: see ``brief_errors``.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, final

from hoptree.core.errors import HoptreeError
from hoptree.report.failures import has_trace, own_place, without_traces

_OURS: Final = str(Path(__file__).resolve().parents[1])
_LINES: Final = 30  # of a message that are shown at most
_NOT_WRITABLE: Final = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR,
    errno.ENAMETOOLONG,
)  # fmt: skip
_STORE: Final = Path(".hoptree")  # its logs get the full trace, if it exists and no other store is known


def format_error(error: HoptreeError, store: Path = _STORE) -> str:
    """Return the text of a Hoptree error: its message, the line of the user's code, and the file with the trace.

    The file is left out if it would not help: the message is complete, and no user code took part.
    """
    text = f"{type(error).__name__}: {error}"
    traced = has_trace(text)
    lines = (without_traces(text) if traced else text).splitlines()
    place = _own_line(error, text)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 3], "…", *lines[-_LINES * 2 // 3 :]]
    elif not place and not traced:
        return text
    return "\n".join([lines[0], *(f"  {line}" for line in lines[1:]), *place, *_write_trace(error, store)])


def format_bug(error: Exception) -> str:
    """Return the text of an unexpected error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    place = _own_line(error)
    lines = [f"{type(error).__name__}: {error}"]
    if place:
        lines += [*place, "  Your code raised an error that Hoptree did not expect."]
    else:
        where = f" ({Path(ours[-1].filename).relative_to(_OURS)}, line {ours[-1].lineno})" if ours else ""
        lines.append(f"  This is a bug in Hoptree{where}; please report it with the full trace.")
    return "\n".join([*lines, *_write_trace(error, _STORE)])


def format_unwritable_path(error: OSError) -> str | None:
    """Return the text for a file or folder that the system does not let us write; None if that may be a bug."""
    if error.errno not in _NOT_WRITABLE or not error.filename or _own_line(error):
        return None
    return f"{type(error).__name__}: {error.filename}: {error.strerror}; expected a path that can be written"


def _own_line(error: BaseException, text: str = "") -> list[str]:
    """Return the last line of user code, of a trace in the message or else of the error's own trace."""
    place = own_place(text) or own_place("".join(traceback.format_tb(error.__traceback__)))
    if place is None:
        return []
    return [f"  at {place[0]}", *([f"      {place[1]}"] if place[1] else [])]


def _write_trace(error: BaseException, store: Path) -> list[str]:
    """Write the full trace to a file, and return the line that names it."""
    from tempfile import gettempdir

    from hoptree.store.logs import Logs

    home = store.absolute() if store.is_dir() else Path(gettempdir(), f"hoptree-{os.getuid()}")
    logs = Logs(home / "logs")
    text = f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}"
    file = logs.write(logs.of_command(), text)
    return [] if file is None else [f"  The full trace: {file}"]


# --- in a user's program ----------------------------------------------------------------------------------

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


@contextmanager
def brief_errors(store: Path = _STORE) -> Iterator[None]:
    """Print an uncaught Hoptree error that leaves this block in the same format as the command line.

    ``sys.excepthook`` is replaced only after such an error, and never at a prompt; other errors go to the previous
    hook.
    """
    try:
        yield
    except HoptreeError:
        at_a_prompt = hasattr(sys, "ps1") or sys.flags.interactive
        if not at_a_prompt and not isinstance(sys.excepthook, _BriefHook):
            sys.excepthook = _BriefHook(store, sys.excepthook)
        raise


@final
class _BriefHook:
    """A ``sys.excepthook`` that leaves out Hoptree's own frames."""

    def __init__(self, store: Path, previous: _Hook) -> None:
        self._store = store
        self._previous = previous

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, HoptreeError):
            sys.stderr.write(f"{format_error(error, self._store)}\n")
        else:
            self._previous(kind, error, trace)

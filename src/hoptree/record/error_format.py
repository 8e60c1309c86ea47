"""One look for all errors: what happened and what to do, where in the user's code, and which file has all of it.

The command line prints errors so, and so does python when it runs a program of the user's: see ``in_one_look``.
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

_OURS: Final = str(Path(__file__).resolve().parent)
_LINES: Final = 30  # of a message that are shown
_REFUSED: Final = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EISDIR, errno.ENOTDIR,
    errno.ENAMETOOLONG,
)  # fmt: skip
_STORE: Final = Path(".hoptree")  # where the whole trace goes, if nothing better is known and it is there


def told(error: HoptreeError, store: Path = _STORE) -> str:
    """Return what an error of ours says, where in the user's code it came from, and where all of it is.

    The file is left out where there is nothing in it for the user: no code of theirs had a part in it, and the
    message is whole.
    """
    text = f"{type(error).__name__}: {error}"
    traced = has_trace(text)
    lines = (without_traces(text) if traced else text).splitlines()
    place = _own_line(error, text)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 3], "…", *lines[-_LINES * 2 // 3 :]]
    elif not place and not traced:
        return text
    return "\n".join([lines[0], *(f"  {line}" for line in lines[1:]), *place, *_whole(error, store)])


def told_bug(error: Exception) -> str:
    """Return what is known of an error that nobody thought of."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    place = _own_line(error)
    lines = [f"{type(error).__name__}: {error}"]
    if place:
        lines += [*place, "  Hoptree did not expect this of your code."]
    else:
        where = f" ({Path(ours[-1].filename).relative_to(_OURS)}, line {ours[-1].lineno})" if ours else ""
        lines.append(f"  Hoptree did not expect this{where}: it is a bug; please report it with the whole trace.")
    return "\n".join([*lines, *_whole(error, _STORE)])


def told_place(error: OSError) -> str | None:
    """Return what is known of a file or folder that the system refuses to us; None if that may be a bug."""
    if error.errno not in _REFUSED or not error.filename or _own_line(error):
        return None
    return f"{type(error).__name__}: {error.filename}: {error.strerror}; expected a place that can be written"


def _own_line(error: BaseException, text: str = "") -> list[str]:
    """Return the last line that is neither ours nor a library's: of a trace that the error tells, or of its own."""
    place = own_place(text) or own_place("".join(traceback.format_tb(error.__traceback__)))
    if place is None:
        return []
    return [f"  at {place[0]}", *([f"      {place[1]}"] if place[1] else [])]


def _whole(error: BaseException, store: Path) -> list[str]:
    """Write the whole trace to a file, and return the line that names it."""
    from tempfile import gettempdir

    from hoptree.store.logs import Logs

    home = store.absolute() if store.is_dir() else Path(gettempdir(), f"hoptree-{os.getuid()}")
    logs = Logs(home / "logs")
    text = f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}"
    file = logs.write(logs.of_command(), text)
    return [] if file is None else [f"  The whole trace: {file}"]


# --- in a program of the user's ---------------------------------------------------------------------------

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


@contextmanager
def in_one_look(store: Path = _STORE) -> Iterator[None]:
    """Have errors of ours that leave here, and that nobody catches, printed as the command line prints them.

    Only then is python's hook for them replaced, and never at a prompt; all other errors go to the hook before.
    """
    try:
        yield
    except HoptreeError:
        at_a_prompt = hasattr(sys, "ps1") or sys.flags.interactive
        if not at_a_prompt and not isinstance(sys.excepthook, _Brief):
            sys.excepthook = _Brief(store, sys.excepthook)
        raise


@final
class _Brief:
    """A ``sys.excepthook`` without frames of ours."""

    def __init__(self, store: Path, before: _Hook) -> None:
        self._store = store
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, HoptreeError):
            sys.stderr.write(f"{told(error, self._store)}\n")
        else:
            self._before(kind, error, trace)

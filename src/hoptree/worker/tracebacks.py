"""Tracebacks as users want them: from their own code on, without the frames that called it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType

from hoptree.core.errors import HoptreeError

_OURS = str(Path(__file__).parents[1])
_LONGEST = 20_000  # characters of an account that are passed on: its beginning and its end


def user_traceback(error: BaseException) -> str:
    """Return an exception with the user's own traceback."""
    if isinstance(error, HoptreeError):  # says where in the user's code it happened by itself
        return _printable(f"{type(error).__name__}: {error}")
    lines = traceback.format_list(_own(traceback.extract_tb(error.__traceback__)))
    return _printable("".join([*lines, *traceback.format_exception_only(error)]).rstrip())


def user_stack(frame: FrameType) -> str:
    """Return where in the user's code a thread is."""
    return _printable("".join(traceback.format_list(_own(traceback.extract_stack(frame)))).rstrip())


def _own(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames that our code called, without ours; all of them if the fault is our own."""
    entered = [index for index, frame in enumerate(frames) if frame.filename.startswith(_OURS)]
    own = [frame for frame in frames[min(entered, default=0) :] if not frame.filename.startswith(_OURS)]
    return own or list(frames)


def _printable(text: str) -> str:
    """Return a text that can be sent, stored and printed: without lone surrogates, and not too long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()

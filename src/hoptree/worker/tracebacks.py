"""Tracebacks that start in the user's code, without the frames that called it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType

from hoptree.core.errors import HoptreeError

_HOPTREE = str(Path(__file__).parents[1])
_LONGEST = 20_000  # characters: of a longer text, the beginning and the end are kept


def user_traceback(error: BaseException) -> str:
    """Return the text of an exception, with the traceback from the user's code on."""
    if isinstance(error, HoptreeError):  # its message says where in the user's code it happened
        return _printable(f"{type(error).__name__}: {error}")
    lines = traceback.format_list(_user_frames(traceback.extract_tb(error.__traceback__)))
    return _printable("".join([*lines, *traceback.format_exception_only(error)]).rstrip())


def user_stack(frame: FrameType) -> str:
    """Return the stack of a thread, from the user's code on."""
    return _printable("".join(traceback.format_list(_user_frames(traceback.extract_stack(frame)))).rstrip())


def _user_frames(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames that Hoptree called, without its own; all of them if the error is in Hoptree."""
    entered = [index for index, frame in enumerate(frames) if frame.filename.startswith(_HOPTREE)]
    found = [frame for frame in frames[min(entered, default=0) :] if not frame.filename.startswith(_HOPTREE)]
    return found or list(frames)


def _printable(text: str) -> str:
    """Return a text that can be sent, stored and printed: without lone surrogates, and cut if too long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()
